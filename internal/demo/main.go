// Demo shows what Cairn does. It runs a plain program, examples/galaxies, by
// itself. Then it runs the unchanged source with "cairn run", kills it without
// warning several times, and compares both results byte for byte. After that it
// does the same with a program of four ranks. "make demo" runs it. It needs
// nothing but Go, and leaves everything in build/demo.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const work = "build/demo"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := demo(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// errDiffers says that a run that was killed has another result.
var errDiffers = errors.New("the results differ")

func demo(ctx context.Context) error {
	if _, err := os.Stat("go.mod"); err != nil {
		return errors.New("run it in the directory that holds go.mod: make demo")
	}
	if runtime.GOOS != "linux" {
		return errors.New("cairn run needs Linux, and so does this; elsewhere, what cairn build makes keeps its checkpoints in CAIRN_DIR (docs/programs.md)")
	}
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	if err := os.MkdirAll(work, 0o777); err != nil {
		return err
	}
	cairn, err := filepath.Abs(filepath.Join("build", "cairn"))
	if err != nil {
		return err
	}
	if err := build(ctx, cairn, "./cmd/cairn"); err != nil {
		return err
	}
	if err := galaxies(ctx, cairn); err != nil {
		return err
	}
	return ranks(ctx, cairn)
}

// galaxies kills a plain program, which must still give the same result.
func galaxies(ctx context.Context, cairn string) error {
	const source = "./examples/galaxies"
	program := filepath.Join(work, "galaxies")
	if err := build(ctx, program, source); err != nil {
		return err
	}
	args := func(path string) []string { return []string{"-path", filepath.Join(work, path)} }
	fmt.Print("Two galaxies meet: 20,000 stars, 20,000 steps (examples/galaxies, 125 lines).\nThe program is plain Go and imports nothing of Cairn.\n\n")

	fmt.Printf("1  built by go build, and left alone: ")
	began := time.Now()
	out, err := exec.CommandContext(ctx, program, args("plain-path.txt")...).Output()
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	alone := time.Since(began)
	fmt.Printf("%.1f s\n", alone.Seconds())
	if err := os.WriteFile(filepath.Join(work, "plain.txt"), out, 0o666); err != nil {
		return err
	}

	d := &disturbed{cairn: cairn, runDir: filepath.Join(work, "galaxies.cairn"), blows: []blow{
		{checkpoints: 3}, {checkpoints: 2}, {checkpoints: 3, all: true}, {checkpoints: 3},
	}}
	d.args = append([]string{"run", "--every-points", "1250", "--run", d.runDir, "-o", filepath.Join(work, "killed.txt"), source}, args("killed-path.txt")...)
	fmt.Printf("\n2  the same source by cairn, and killed with SIGKILL %d times:\n\n   $ cairn %s\n", len(d.blows), strings.Join(d.args, " "))
	began = time.Now()
	if err := d.run(ctx); err != nil {
		return err
	}
	took := time.Since(began)

	same := true
	fmt.Print("\n3  what came out:\n\n")
	for _, name := range []string{".txt", "-path.txt"} {
		a, b := filepath.Join(work, "plain"+name), filepath.Join(work, "killed"+name)
		n, err := compare(a, b)
		if err != nil {
			return err
		}
		if n < 0 {
			fmt.Printf("   %s and %s DIFFER\n", a, b)
			same = false
			continue
		}
		fmt.Printf("   %s and %s: the same %d bytes\n", a, b, n)
	}
	if !same {
		return errDiffers
	}
	lines := strings.SplitAfter(string(out), "\n")
	fmt.Println()
	for _, line := range lines[max(0, len(lines)-32) : len(lines)-1] { // the last picture
		fmt.Print("   ", line)
	}
	fmt.Println()
	fmt.Printf("   %.1f s alone; %.1f s with building, %d checkpoints and %d kills (machines are noisy).\n", alone.Seconds(), took.Seconds(), d.checkpoints, len(d.blows))
	return nil
}

// compare returns the length of two files, or -1 if they differ.
func compare(a, b string) (int, error) {
	x, err := os.ReadFile(a)
	if err != nil {
		return 0, err
	}
	y, err := os.ReadFile(b)
	if err != nil {
		return 0, err
	}
	if !bytes.Equal(x, y) {
		return -1, nil
	}
	return len(x), nil
}

// build builds a program and prints a line about it.
func build(ctx context.Context, to, source string) error {
	fmt.Printf("building %s ", source)
	began, done := time.Now(), make(chan error, 1)
	go func() { done <- run(ctx, "go", "build", "-o", to, source) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			fmt.Printf(" %.1f s\n", time.Since(began).Seconds())
			return err
		case <-tick.C:
			fmt.Print(".")
		}
	}
}

// run runs a program to its end. Its output is shown only if it fails.
func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return nil
}
