//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ranks shows a program of four ranks that loses one of them three times. It
// returns whether the output was that of an undisturbed run.
func ranks(ctx context.Context, cairn string) (same bool, err error) {
	heat := program("heat")
	if err := run(ctx, "go", "build", "-o", heat, "./examples/heat"); err != nil {
		return false, err
	}
	outputs := [2]string{filepath.Join(work, "heat-undisturbed.txt"), filepath.Join(work, "heat-killed.txt")}
	command := func(out string, flags ...string) *exec.Cmd {
		args := append([]string{"run", "-n", "4", "--run", out + ".cairn", "-o", out}, flags...)
		return exec.CommandContext(ctx, cairn, append(args, heat, "-n", "400", "-steps", "6000", "-check", "1000")...)
	}
	fmt.Printf("\nHeat in a plate, 4 ranks (examples/heat), started by cairn run.\n\n")
	began := time.Now()
	if out, err := command(outputs[0]).CombinedOutput(); err != nil {
		return false, fmt.Errorf("cairn run: %w\n%s", err, out)
	}
	undisturbed := time.Since(began)
	fmt.Printf("4  undisturbed: %.1f s\n", undisturbed.Seconds())
	every := max(undisturbed/20, 50*time.Millisecond).Round(time.Millisecond)
	fmt.Printf("5  with a checkpoint every %v, and a rank killed with SIGKILL after every fourth; cairn says:\n", every)
	if err := disturb(command(outputs[1], "--every", every.String()), cairn, outputs[1]+".cairn"); err != nil {
		return false, err
	}
	a, err := os.ReadFile(outputs[0])
	if err != nil {
		return false, err
	}
	b, err := os.ReadFile(outputs[1])
	if err != nil {
		return false, err
	}
	if !bytes.Equal(a, b) {
		fmt.Printf("\n   The outputs DIFFER: compare %s and %s.\n", outputs[0], outputs[1])
		return false, nil
	}
	fmt.Printf("\n   Both outputs are the same, byte for byte. The last line: %s", lastLine(a))
	return true, nil
}

// disturb runs the command and kills ranks of its run on the way.
func disturb(cmd *exec.Cmd, cairn, folder string) error {
	says, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	sets, kills := 0, 0
	lines := bufio.NewScanner(says)
	for lines.Scan() {
		line := lines.Text()
		if !strings.Contains(line, " committed") {
			if strings.HasPrefix(line, "cairn: ") {
				fmt.Println("    ", line)
			}
			continue
		}
		if sets++; sets%4 == 0 && kills < 3 {
			if err := killRank(cairn, folder, kills+1); err != nil {
				return err
			}
			kills++
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("cairn run: %w", err)
	}
	return nil
}

// killRank kills one rank of a run, without warning.
func killRank(cairn, folder string, rank int) error {
	raw, err := exec.Command(cairn, "status", "--json", folder).Output()
	if err != nil {
		return fmt.Errorf("cairn status: %w", err)
	}
	var st struct {
		Ranks []struct{ Rank, Pid int }
	}
	if err := json.Unmarshal(raw, &st); err != nil {
		return fmt.Errorf("cairn status: %w", err)
	}
	for _, r := range st.Ranks {
		if r.Rank == rank && r.Pid > 0 {
			return syscall.Kill(r.Pid, syscall.SIGKILL)
		}
	}
	return nil // it has ended
}

func lastLine(text []byte) string {
	lines := strings.SplitAfter(string(text), "\n")
	return lines[max(0, len(lines)-2)]
}
