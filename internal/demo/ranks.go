package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ranks shows a program of four ranks that loses one of them twice.
func ranks(ctx context.Context, cairn string) error {
	heat := filepath.Join(work, "heat")
	if err := build(ctx, heat, "./examples/heat"); err != nil {
		return err
	}
	outputs := [2]string{filepath.Join(work, "heat-undisturbed.txt"), filepath.Join(work, "heat-killed.txt")}
	command := func(out string, flags ...string) []string {
		args := append([]string{"run", "-n", "4", "--run", strings.TrimSuffix(out, ".txt") + ".cairn", "-o", out}, flags...)
		return append(args, heat, "-n", "400", "-steps", "4000", "-check", "1000")
	}
	fmt.Printf("\nHeat in a plate, 4 ranks that send each other messages (examples/heat).\n\n")
	began := time.Now()
	if err := run(ctx, cairn, command(outputs[0])...); err != nil {
		return err
	}
	fmt.Printf("4  left alone: %.1f s\n", time.Since(began).Seconds())

	d := &disturbed{cairn: cairn, runDir: strings.TrimSuffix(outputs[1], ".txt") + ".cairn", args: command(outputs[1], "--every-points", "300"),
		blows: []blow{{checkpoints: 3, rank: 1}, {checkpoints: 3, rank: 2}}}
	fmt.Print("5  with checkpoints, and a rank killed twice:\n\n")
	if err := d.run(ctx); err != nil {
		return err
	}
	n, err := compare(outputs[0], outputs[1])
	if err != nil {
		return err
	}
	if n < 0 {
		fmt.Printf("\n   %s and %s DIFFER\n", outputs[0], outputs[1])
		return errDiffers
	}
	out, err := os.ReadFile(outputs[1])
	if err != nil {
		return err
	}
	lines := strings.SplitAfter(string(out), "\n")
	fmt.Printf("\n   %s and %s: the same %d bytes.\n   The last line: %s", outputs[0], outputs[1], n, lines[max(0, len(lines)-2)])
	return nil
}
