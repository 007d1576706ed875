package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cairnrun/cairn/device"
)

// report is the report of a run of the testbed.
type report struct {
	Devices     []string `json:"devices"`
	Steps       int      `json:"steps"`
	From        int      `json:"from"`
	Resumed     bool     `json:"resumed"`
	Restore     float64  `json:"restore_seconds"`
	Loop        float64  `json:"loop_seconds"`
	Checkpoints int      `json:"checkpoints"`
	State       int64    `json:"state_bytes"`
	Pause       float64  `json:"pause_seconds"`
	Copied      float64  `json:"copied_seconds"`
	Took        float64  `json:"took_seconds"`
	Digest      string   `json:"digest"`
}

// mostAdded bounds what protection, and one checkpoint, add to the run time, in
// percent.
const mostAdded = 1

// testbed runs every program in turn without checkpoints (plain), protected,
// and with a checkpoint at three quarters. It shows what the latter two add,
// and how long the parts of a checkpoint take, as table 5 and figure 7 of
// Losada et al. do. The run times and states differ from theirs, so the seconds
// that a gigabyte of state adds are compared, too.
func testbed(ctx context.Context) error {
	path, err := testbedProgram(ctx)
	if err != nil {
		return err
	}
	on, err := programDevices()
	if err != nil {
		return err
	}
	fmt.Printf("\nPrograms, size %s (medians of %d; bounds: protected and one checkpoint ≤ %d %% each)\n", *size, *programRounds, mostAdded)
	fmt.Println("  paused: the next kernel waits (in the paper: the consistency protocol); in memory: digested and copied (generation); safe: written. The program runs meanwhile.")
	const row = "  %-6s %7s %9s %9s %10s %11s %9s %9s %9s %8s %7s %9s %9s %11s %11s  %s\n"
	fmt.Printf(row, "", "steps", "plain", "state", "protected", "checkpoint", "of paper", "s per GB", "of paper", "paused", "paper", "in memory", "paper", "safe after", "", "")
	run := &figure{Name: "devices-checkpoint", Title: "What one checkpoint adds to the run time, size " + *size + " (table 5 and figure 7 of Losada et al.)", Unit: "% of the plain run"}
	parts := &figure{Name: "devices-checkpoint-parts", Title: "Parts of a checkpoint, size " + *size + " (table 5 of Losada et al.)", Unit: "seconds per GB of state",
		Parts: []string{"paused (paper: consistency protocol)", "until it is in host memory (generation)", "until it is durable (paper: not shown)"},
		Note:  "Grey: the paper, whose programs wait for both of its parts. Cairn's programs wait for the first part only."}
	for _, name := range strings.Split(*names, ",") {
		var loops [3][]float64
		var last report
		digest := ""
		// The first run has cold caches and clocks. It does not count.
		if _, err := runProgram(ctx, path, name, on, 0); err != nil {
			return err
		}
		for round := range *programRounds {
			for i := range loops {
				mode := (round + i) % len(loops) // each round begins with another mode
				r, err := runProgram(ctx, path, name, on, mode)
				if err != nil {
					return err
				}
				loops[mode] = append(loops[mode], r.Loop)
				digest = cmp.Or(digest, r.Digest)
				if r.Digest != digest {
					return fmt.Errorf("%s: results differ between runs", name)
				}
				if mode == 2 {
					last = r
				}
			}
		}
		// Each run is compared with the plain run of its round.
		var protected, saved []float64
		for i, plain := range loops[0] {
			protected = append(protected, 100*(loops[1][i]/plain-1))
			saved = append(saved, 100*(loops[2][i]/plain-1))
		}
		k := min(len(last.Devices), 2) - 1
		paper := papers[name]
		if paper.runtime[k] == 0 {
			k = 0
		}
		share := 100 * paper.added[k] / paper.runtime[k]
		p, s, plain := median(protected), median(saved), median(loops[0])
		gb, theirs := float64(last.State)/1e9, paper.megabytes/1e3
		met := verdict(p <= mostAdded && s <= mostAdded)
		fmt.Printf(row, name, fmt.Sprint(last.Steps), fmt.Sprintf("%.2f s", plain), fmt.Sprintf("%.2f GB", gb), fmt.Sprintf("%+.2f %%", p), fmt.Sprintf("%+.2f %%", s), fmt.Sprintf("%.2f %%", share),
			fmt.Sprintf("%+.3f", s/100*plain/gb), fmt.Sprintf("%.2f", paper.added[k]/theirs),
			fmt.Sprintf("%.1f ms", 1e3*last.Pause), fmt.Sprintf("%.3f s", paper.protocol[k]), fmt.Sprintf("%.3f s", last.Copied), fmt.Sprintf("%.3f s", paper.generation[k]), fmt.Sprintf("%.2f s", last.Took), "", met)
		run.Groups = append(run.Groups, group{name, []bar{{Name: "Cairn", Parts: []float64{s}}, {Name: "paper", Parts: []float64{share}, Paper: true}}})
		parts.Groups = append(parts.Groups, group{name, []bar{
			{Name: "Cairn", Parts: []float64{last.Pause / gb, max(last.Copied-last.Pause, 0) / gb, max(last.Took-last.Copied, 0) / gb}},
			{Name: "paper", Parts: []float64{paper.protocol[k] / theirs, paper.generation[k] / theirs}, Paper: true},
		}})
	}
	if err := run.save(); err != nil {
		return err
	}
	return parts.save()
}

// programDevices returns the devices for the programs. It must not be all
// devices: programs for several devices would give the host's processors as
// much work as the GPU, and wait for them.
func programDevices() (string, error) {
	if *list != "" || os.Getenv("CAIRN_DEVICES") != "" {
		return *list, nil
	}
	devs, err := device.Devices()
	if err != nil {
		return "", err
	}
	return devs[0].Info().ID, nil
}

// runProgram runs a program: plain (0), protected (1), or with a checkpoint
// (2).
func runProgram(ctx context.Context, path, name, on string, mode int) (report, error) {
	dir := filepath.Join(*tmpDir, "run")
	defer os.RemoveAll(dir)
	args := []string{"-size", *size}
	if mode > 0 {
		args = append(args, "-dir", dir)
	}
	if mode == 2 {
		args = append(args, "-checkpoint-at", fmt.Sprint(saveAt))
	}
	r, _, err := runTestbed(ctx, path, name, on, args...)
	if err == nil && mode == 2 && r.Checkpoints != 1 {
		err = fmt.Errorf("testbed %s: %d checkpoints were saved, not one", name, r.Checkpoints)
	}
	return r, err
}

// runTestbed runs a program, and returns its report and how many seconds the
// process took.
func runTestbed(ctx context.Context, path, name, on string, args ...string) (r report, took float64, err error) {
	out := filepath.Join(*tmpDir, "report.json")
	args = append(args, "-json", out)
	if on != "" {
		args = append(args, "-devices", on)
	}
	cmd := exec.CommandContext(ctx, path, append(args, name)...)
	begin := time.Now()
	text, err := cmd.CombinedOutput()
	took = time.Since(begin).Seconds()
	if err != nil {
		return r, took, fmt.Errorf("testbed %s: %w\n%s", name, err, text)
	}
	text, err = os.ReadFile(out)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, took, err
}

// testbedProgram finds the program, or builds it.
func testbedProgram(ctx context.Context) (string, error) {
	if *bed != "" {
		return *bed, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(self), "testbed")
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	path := filepath.Join(*tmpDir, "testbed")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/cairnrun/cairn/examples/testbed")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the testbed: %w\n%s", err, text)
	}
	return path, nil
}
