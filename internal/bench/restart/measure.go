package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/compiler/golang"
)

// bench is one run of this program.
type bench struct {
	ctx   context.Context
	tmp   string
	cairn string // the command
}

// took is what one run of a program took.
type took struct{ cpu, wall float64 } // seconds

// sample is what a kind of runs took.
type sample struct {
	all   []took
	start took // with no work to do
}

func (s *sample) cpu() []float64 {
	var out []float64
	for _, t := range s.all {
		out = append(out, t.cpu-s.start.cpu)
	}
	return out
}

func (s *sample) wall() []float64 {
	var out []float64
	for _, t := range s.all {
		out = append(out, t.wall-s.start.wall)
	}
	return out
}

// more is by how many per cent something takes longer.
type more struct{ median, least float64 }

func (m more) String() string { return fmt.Sprintf("%+.1f (%+.1f)", m.median, m.least) }

func compare(a, b []float64) more {
	return more{100 * (median(b)/median(a) - 1), 100 * (slices.Min(b)/slices.Min(a) - 1)}
}

// result is what was measured of a program.
type result struct {
	plain             float64 // seconds
	again, alone, run more
	wall              more // alone
	held              []time.Duration
	state             string
	points            []golang.PointInfo
	functions         []string
	refused           string // why it was not rewritten
}

func (r *result) row(p *program) string {
	name := p.name
	if p.hot {
		name += "*"
	}
	if r.refused != "" {
		return fmt.Sprintf("%-12s refused: %s", name, r.refused)
	}
	held, state, under := "-", "-", "-"
	if len(r.held) > 0 {
		held, state = fmt.Sprintf("%.2f", median(r.held).Seconds()*1e3), r.state
	}
	if !*skipRun {
		under = r.run.String()
	}
	var at []string
	for _, q := range r.points {
		at = append(at, fmt.Sprintf("%s:%d", filepath.Base(q.File), q.Line))
	}
	return fmt.Sprintf("%-12s %8.3f  %15s  %15s  %15s  %7.1f  %9s %9s  %s; %s", name, r.plain, r.again, r.alone, under, r.wall.median, held, state,
		strings.Join(at, " "), strings.Join(r.functions, " "))
}

// kinds of runs, in the order in which they are done.
const (
	plain = iota
	again
	alone
	supervised
	kinds
)

// measure builds a program and runs it.
func (b *bench) measure(p *program) (*result, error) {
	r := &result{}
	w, err := golang.Rewrite(b.ctx, p.dir, []string{p.pkg}, golang.MakeOptions{})
	if errors.Is(err, golang.ErrRefused) {
		r.refused = err.Error()
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	r.points = w.Points
	for _, f := range w.Frames {
		if !slices.Contains(r.functions, f.Func) {
			r.functions = append(r.functions, f.Func)
		}
	}
	bin := filepath.Join(b.tmp, p.name)
	if err := b.do(p.dir, "go", "build", "-o", bin+".plain", p.pkg); err != nil {
		return nil, err
	}
	if err := b.do(p.dir, b.cairn, "build", "-q", "-o", bin, p.pkg); err != nil {
		return nil, err
	}
	runs := bin + ".cairn"
	commands := [kinds][]string{
		plain: {bin + ".plain"}, again: {bin + ".plain"}, alone: {bin},
		supervised: {b.cairn, "run", "-q", "--fresh", "--every", "1h", "--run", runs, bin},
	}
	n := kinds
	if *skipRun {
		n = supervised
	}
	var all [kinds]sample
	var want []byte
	for k := range n {
		if p.nothing == nil {
			break
		}
		var cpu, wall []float64
		for range 3 {
			t, _, err := b.once(commands[k], p.nothing)
			if err != nil {
				return nil, err
			}
			cpu, wall = append(cpu, t.cpu), append(wall, t.wall)
		}
		all[k].start = took{median(cpu), median(wall)}
	}
	for range *rounds {
		for k := range n {
			t, out, err := b.once(commands[k], p.args)
			if err != nil {
				return nil, err
			}
			if want == nil {
				want = out
			}
			if !bytes.Equal(out, want) && k != supervised { // cairn run shows a program's lines with their rank
				return nil, fmt.Errorf("%s printed %q, before %q", strings.Join(commands[k], " "), out, want)
			}
			all[k].all = append(all[k].all, t)
		}
	}
	r.plain = median(all[plain].cpu())
	r.again = compare(all[plain].cpu(), all[again].cpu())
	r.alone = compare(all[plain].cpu(), all[alone].cpu())
	r.wall = compare(all[plain].wall(), all[alone].wall())
	if *skipRun {
		return r, nil
	}
	r.run = compare(all[plain].cpu(), all[supervised].cpu())
	return r, b.checkpoints(p, bin, r)
}

// once runs a command to its end.
func (b *bench) once(command, args []string) (took, []byte, error) {
	cmd := exec.CommandContext(b.ctx, command[0], slices.Concat(command[1:], args)...)
	cmd.Dir = b.tmp
	var out, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return took{}, nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, trouble.Bytes())
	}
	wall := time.Since(began)
	st := cmd.ProcessState // of the process and those that it waited for
	return took{(st.UserTime() + st.SystemTime()).Seconds(), wall.Seconds()}, out.Bytes(), nil
}

// committed is what a run's log says of a checkpoint: its state, and how long the
// program was held.
var committed = regexp.MustCompile(`set \d+ committed: ([^,]+), .*held ([^,]+),`)

// checkpoints runs a program with checkpoints, and looks how long they hold it.
func (b *bench) checkpoints(p *program, bin string, r *result) error {
	runs := bin + ".cairn"
	if _, _, err := b.once([]string{b.cairn, "run", "-q", "--fresh", "--every", "100ms", "--run", runs, bin}, p.args); err != nil {
		return err
	}
	log, err := os.ReadFile(filepath.Join(runs, "log"))
	if err != nil {
		return err
	}
	for _, m := range committed.FindAllStringSubmatch(string(log), -1) {
		d, err := time.ParseDuration(strings.ReplaceAll(m[2], " ", ""))
		if err != nil {
			return fmt.Errorf("the run's log: %w", err)
		}
		r.held, r.state = append(r.held, d), m[1]
	}
	return os.RemoveAll(runs)
}
