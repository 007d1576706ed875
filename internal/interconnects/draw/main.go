// Draw takes a run through all interconnects that this machine has (see
// package interconnects) and draws how long messages took. "make interconnects"
// runs it, in the directory that holds go.mod; it writes
// docs/interconnects.svg.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/cairnrun/cairn/internal/interconnects"
)

func main() {
	steps := flag.Int("steps", 1000, "steps in each phase, at least")
	out := flag.String("o", "docs/interconnects.svg", "the picture")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := draw(ctx, *steps, *out); err != nil {
		fmt.Fprintln(os.Stderr, "interconnects:", err)
		os.Exit(1)
	}
}

func draw(ctx context.Context, steps int, out string) error {
	if _, err := os.Stat("go.mod"); err != nil {
		return errors.New("run it in the directory that holds go.mod: make interconnects")
	}
	tmp, err := os.MkdirTemp("", "cairn-interconnects-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	o := interconnects.Options{Dir: filepath.Join(tmp, "run"), Steps: steps, Report: func(text string) { fmt.Println(text) }}
	if err := os.Mkdir(o.Dir, 0o755); err != nil {
		return err
	}
	for program, pkg := range map[*string]string{&o.Cairn: "./cmd/cairn", &o.Ring: "./examples/ring"} {
		*program = filepath.Join(tmp, filepath.Base(pkg))
		cmd := exec.CommandContext(ctx, "go", "build", "-o", *program, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build %s: %w\n%s", pkg, err, text)
		}
	}
	phases, last, err := interconnects.Run(ctx, o)
	if err != nil {
		return err
	}
	fmt.Println(last)
	if !strings.HasPrefix(last, "ring ok") {
		return errors.New("the ring did not end well")
	}
	if err := os.WriteFile(out, []byte(interconnects.Picture(phases)), 0o644); err != nil {
		return err
	}
	fmt.Println("the picture is", out)
	return nil
}
