// Draw takes a run through all interconnects that this machine has (see
// package journey) and draws how long messages took. "make journey" runs it,
// in the folder that holds go.mod; it writes docs/journey.svg.
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
	out := flag.String("o", "docs/journey.svg", "the picture")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := draw(ctx, *steps, *out); err != nil {
		fmt.Fprintln(os.Stderr, "journey:", err)
		os.Exit(1)
	}
}

func draw(ctx context.Context, steps int, out string) error {
	if _, err := os.Stat("go.mod"); err != nil {
		return errors.New("run it in the folder that holds go.mod: make journey")
	}
	folder, err := os.MkdirTemp("", "cairn-journey-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	o := interconnects.Options{Folder: filepath.Join(folder, "journey"), Steps: steps, Tell: func(text string) { fmt.Println(text) }}
	if err := os.Mkdir(o.Folder, 0o755); err != nil {
		return err
	}
	for program, pkg := range map[*string]string{&o.Cairn: "./cmd/cairn", &o.Ring: "./examples/ring"} {
		*program = filepath.Join(folder, filepath.Base(pkg))
		cmd := exec.CommandContext(ctx, "go", "build", "-o", *program, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build %s: %w\n%s", pkg, err, text)
		}
	}
	phases, last, err := interconnects.Travel(ctx, o)
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
