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

	"github.com/cairnrun/cairn/device"
)

// shares are the times that one checkpoint adds, in percent, from table 5 of
// Losada et al., for one device and for two.
var shares = map[string][2]float64{
	"ft": {5.9, 0}, "floyd": {2.32, 0}, "spmv": {1.27, 0},
	"ftmd": {5.34, 5.17}, "summa": {8.97, 16.06}, "mg": {6.71, 8.98}, "shwa": {0.29, 0.44},
}

// report is the report of a run of the testbed.
type report struct {
	Devices     []string `json:"devices"`
	Steps       int      `json:"steps"`
	Loop        float64  `json:"loop_seconds"`
	Checkpoints int      `json:"checkpoints"`
	State       int64    `json:"state_bytes"`
	Pause       float64  `json:"pause_seconds"`
	Took        float64  `json:"took_seconds"`
	Digest      string   `json:"digest"`
}

// testbed runs every program in turn without checkpoints (plain), protected,
// and with a checkpoint at three quarters. It shows what the latter two add, as
// table 5 and figure 7 of Losada et al. do.
func testbed(ctx context.Context) error {
	path, err := testbedProgram(ctx)
	if err != nil {
		return err
	}
	on, err := programDevices()
	if err != nil {
		return err
	}
	fmt.Printf("\nPrograms, size %s (medians of %d; bounds: protected ≤ 1 %%, one checkpoint below the paper's share)\n", *size, *rounds)
	const row = "  %-7s %7s %7s %9s %10s %15s %8s %10s %10s %10s  %s\n"
	fmt.Printf(row, "program", "devices", "steps", "plain", "protected", "one checkpoint", "paper", "pause", "safe after", "state", "")
	bars := ""
	for _, name := range strings.Split(*names, ",") {
		var loops [3][]float64
		var last report
		digest := ""
		// The first run has cold caches and clocks. It does not count.
		if _, err := runProgram(ctx, path, name, on, 0); err != nil {
			return err
		}
		for round := range *rounds {
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
		paper := shares[name][min(len(last.Devices), 2)-1]
		p, s := median(protected), median(saved)
		verdict := "ok"
		if p > 1 || s >= paper {
			verdict = "MISSED"
		}
		fmt.Printf(row, name, fmt.Sprint(len(last.Devices)), fmt.Sprint(last.Steps), fmt.Sprintf("%.2f s", median(loops[0])),
			fmt.Sprintf("%+.2f %%", p), fmt.Sprintf("%+.2f %%", s), fmt.Sprintf("%.2f %%", paper),
			fmt.Sprintf("%.1f ms", 1e3*last.Pause), fmt.Sprintf("%.2f s", last.Took), fmt.Sprintf("%.1f MB", float64(last.State)/1e6), verdict)
		bars += fmt.Sprintf("  %-6s %s %.4f\n", name, strings.Repeat("█", int(50*(1+max(s, 0)/100)+0.5)), 1+s/100)
	}
	fmt.Printf("\nRun time with one checkpoint, the plain run being 1\n%s", bars)
	return nil
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
	var r report
	dir := filepath.Join(*tmpDir, "run")
	out := filepath.Join(*tmpDir, "report.json")
	defer os.RemoveAll(dir)
	args := []string{"-size", *size, "-json", out}
	if on != "" {
		args = append(args, "-devices", on)
	}
	if mode > 0 {
		args = append(args, "-dir", dir)
	}
	if mode == 2 {
		args = append(args, "-checkpoint-at", "0.75")
	}
	cmd := exec.CommandContext(ctx, path, append(args, name)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return r, fmt.Errorf("testbed %s: %w\n%s", name, err, text)
	}
	text, err := os.ReadFile(out)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil && mode == 2 && r.Checkpoints != 1 {
		err = fmt.Errorf("testbed %s: %d sets were saved, not one", name, r.Checkpoints)
	}
	return r, err
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
