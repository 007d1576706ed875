// Demo shows what Cairn does: it runs a simulation undisturbed, runs it again
// with checkpoints, kills that twice without warning, lets it go on, and
// compares the results byte for byte; then the same with a program of four
// ranks, which comes back by itself. "make demo" runs it; it needs nothing but
// Go, and leaves everything in build/demo.
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

const (
	cells = "512"
	steps = "900"
	work  = "build/demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	same, err := demo(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	if !same {
		os.Exit(1)
	}
}

// demo does it all and returns whether the results were identical.
func demo(ctx context.Context) (same bool, err error) {
	if _, err := os.Stat("go.mod"); err != nil {
		return false, errors.New("run it in the folder that holds go.mod: make demo")
	}
	if err := os.RemoveAll(work); err != nil {
		return false, err
	}
	water, cairn := program("water"), program("cairn")
	for _, b := range [][2]string{{water, "./examples/water"}, {cairn, "./cmd/cairn"}} {
		if err := run(ctx, "go", "build", "-o", b[0], b[1]); err != nil {
			return false, err
		}
	}

	fmt.Printf("Waves in a basin of %s×%s cells, %s steps (examples/water).\n\n", cells, cells, steps)
	began := time.Now()
	args := []string{"-n", cells, "-steps", steps, "-out"}
	if err := run(ctx, water, append(args, filepath.Join(work, "undisturbed"))...); err != nil {
		return false, err
	}
	undisturbed := time.Since(began)
	fmt.Printf("1  undisturbed, without Cairn: %.1f s\n", undisturbed.Seconds())

	every := max(undisturbed/25, 50*time.Millisecond).Round(time.Millisecond)
	folder := filepath.Join(work, "checkpoints")
	s := &survival{program: water, folder: folder,
		args: append(args, filepath.Join(work, "killed"), "-dir", folder, "-every", every.String())}
	fmt.Printf("2  with a checkpoint every %v\n", every)
	if err := s.start(ctx, s.afterSet(4)); err != nil {
		return false, err
	}
	if err := s.start(ctx, s.insideSet(6)); err != nil {
		return false, err
	}
	kept := filepath.Join(work, "kept") // the run removes its own when it is done
	if err := os.CopyFS(kept, os.DirFS(folder)); err != nil {
		return false, err
	}
	fmt.Printf("\n   what it left behind, checked:  build/cairn verify %s\n", kept)
	if err := show(ctx, cairn, "verify", kept); err != nil {
		return false, err
	}
	fmt.Printf("\n   what it will go on from:  build/cairn inspect %s\n", kept)
	if err := show(ctx, cairn, "inspect", kept); err != nil {
		return false, err
	}
	fmt.Println()
	if err := s.start(ctx, nil); err != nil {
		return false, err
	}
	same, err = s.compare()
	if err != nil {
		return false, err
	}
	s.table(undisturbed, same)
	picture := filepath.Join(work, "killed", "field.png")
	if err := draw(os.Stdout, picture); err != nil {
		return false, err
	}
	fmt.Printf("\nThe picture is %s, the numbers are beside it. The checkpoints\nfrom after the second kill are in %s; look at them with build/cairn.\n", picture, kept)
	also, err := ranks(ctx, cairn)
	return same && also, err
}

func program(name string) string {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	path, err := filepath.Abs(filepath.Join("build", name))
	if err != nil {
		return filepath.Join("build", name)
	}
	return path
}

// run runs a program to its end; what it says matters only if it fails.
func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return nil
}

// show runs a program and shows its output, indented.
func show(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		fmt.Print("     ", line)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", filepath.Base(name), args[0], err)
	}
	return nil
}

// compare tells whether the run that was killed gave the undisturbed one's
// results.
func (s *survival) compare() (bool, error) {
	for _, name := range []string{"field.f64", "series.txt"} {
		a, err := os.ReadFile(filepath.Join(work, "undisturbed", name))
		if err != nil {
			return false, err
		}
		b, err := os.ReadFile(filepath.Join(work, "killed", name))
		if err != nil {
			return false, err
		}
		if !bytes.Equal(a, b) {
			s.differs = append(s.differs, name)
		}
	}
	return len(s.differs) == 0, nil
}
