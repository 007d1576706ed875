package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// bench is one run of this program.
type bench struct {
	ctx   context.Context
	tmp   string
	bin   string // directory of the built programs
	cairn string // path of the cairn command
}

// more says by how many percent something takes longer, with the standard
// error.
type more struct{ median, sigma float64 }

func (m more) String() string { return fmt.Sprintf("%+.1f ±%.1f", m.median, m.sigma) }

// above reports whether the difference exceeds the bound beyond chance: a
// difference as large occurs by chance once in 40 comparisons.
func (m more) above(bound float64) bool { return m.median-2*m.sigma > bound }

// compare returns the median of ratios. Its error is derived from the distance
// of the quartiles, which a few bad rounds do not change.
func compare(ratios []float64) more {
	s := slices.Sorted(slices.Values(ratios))
	n := len(s)
	const normal = 1.253 / 1.349 // factor for the error of a median, from the quartiles of a normal distribution
	return more{100 * (median(s) - 1), 100 * normal * (s[3*n/4] - s[n/4]) / math.Sqrt(float64(n))}
}

// result holds the measurements of a program.
type result struct {
	plain             float64 // seconds
	again, alone, run more
	pauses            []time.Duration
	state             string
}

func (r *result) row(p *program) string {
	pause, state, under := "-", "-", "-"
	if len(r.pauses) > 0 {
		pause, state = fmt.Sprintf("%.2f", median(r.pauses).Seconds()*1e3), r.state
	}
	if r.run != (more{}) {
		under = r.run.String()
	}
	return fmt.Sprintf("%-12s %8.3f  %13s  %13s  %13s  %9.0f %9s %9s", p.name, r.plain, r.again, r.alone, under, p.bound, pause, state)
}

// Kinds of runs.
const (
	asPlain = iota
	alone
	supervised
	kinds
)

// measure runs a program in all ways.
func (b *bench) measure(p *program) (r *result, err error) {
	r = new(result)
	m := &match{b: b, p: p, dir: filepath.Join(b.tmp, "run-"+p.name)}
	if err := os.Mkdir(m.dir, 0o777); err != nil {
		return nil, err
	}
	for k := range *layouts {
		plain, made := b.binaries(p, k)
		m.commands = append(m.commands, m.ways(plain, made))
	}
	if r.alone, err = m.rounds(alone); err != nil {
		return nil, err
	}
	if !*skipRun && p.nothing != nil {
		if r.run, err = m.rounds(supervised); err != nil {
			return nil, err
		}
	}
	r.plain, r.again = median(m.plain), compare(m.again)
	if *skipRun {
		return r, nil
	}
	return r, m.checkpoints(r)
}

// ways returns the commands that run a program. The last word of each is its
// binary.
func (m *match) ways(plain, made string) [kinds][]string {
	return [kinds][]string{
		asPlain: {plain}, alone: {made},
		supervised: {m.b.cairn, "run", "-q", "--fresh", "--every", "1h", "--run", "run.cairn", made},
	}
}

// match compares runs of a program with plain runs.
type match struct {
	b        *bench
	p        *program
	dir      string            // working directory
	commands [][kinds][]string // by layout
	start    [kinds]float64    // seconds without work to do
	want     []byte            // expected output
	plain    []float64         // seconds
	again    []float64         // ratios of plain runs
}

// rounds compares one kind of runs with plain ones.
func (m *match) rounds(kind int) (more, error) {
	for _, k := range []int{asPlain, kind} {
		var all []float64
		for range 5 {
			if m.p.nothing == nil {
				break
			}
			t, _, err := m.run(m.commands[0][k], m.p.nothing)
			if err != nil {
				return more{}, err
			}
			all = append(all, t)
		}
		if all != nil {
			m.start[k] = median(all)
		}
	}
	var ratios []float64
	for i := range *rounds {
		order := []int{asPlain, kind, kind, asPlain}
		if i%2 == 1 {
			order = []int{kind, asPlain, asPlain, kind}
		}
		var took [kinds][]float64
		for _, k := range order {
			t, err := m.once(m.commands[i/2%len(m.commands)], k)
			if err != nil {
				return more{}, err
			}
			took[k] = append(took[k], t)
		}
		x, y := took[asPlain], took[kind]
		ratios = append(ratios, (y[0]+y[1])/(x[0]+x[1]))
		m.plain = append(m.plain, x...)
		m.again = append(m.again, x[(i/2+1)%2]/x[i/2%2]) // alternately the later by the earlier run, and the reverse
	}
	return compare(ratios), nil
}

// once runs the program, and checks its output.
func (m *match) once(commands [kinds][]string, kind int) (float64, error) {
	t, out, err := m.run(commands[kind], m.p.args)
	if err != nil {
		return 0, err
	}
	if kind != supervised && !m.p.changes { // cairn run prefixes a program's lines with their rank
		if m.want == nil {
			m.want = out
		}
		if !bytes.Equal(out, m.want) {
			return 0, fmt.Errorf("%s printed %q, before %q", strings.Join(commands[kind], " "), out, m.want)
		}
	}
	return t - m.start[kind], nil
}

// run runs a command to its end, and returns its processor time in seconds, or
// with -elapsed how long it took.
func (m *match) run(command, args []string) (float64, []byte, error) {
	cmd := exec.CommandContext(m.b.ctx, command[0], slices.Concat(command[1:], args)...)
	cmd.Dir = m.dir
	var out, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	begun := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, trouble.Bytes())
	}
	if *elapsed {
		return time.Since(begun).Seconds(), out.Bytes(), nil
	}
	st := cmd.ProcessState // includes processes that it waited for
	return (st.UserTime() + st.SystemTime()).Seconds(), out.Bytes(), nil
}

// committed matches what a run's log says about a checkpoint: the size of the
// state, and how long the program was paused.
var committed = regexp.MustCompile(`checkpoint \d+ committed: ([^,]+) of state, .*paused ([^,]+),`)

// checkpoints runs a program with checkpoints, and records how long they pause
// it.
func (m *match) checkpoints(r *result) error {
	if _, _, err := m.run([]string{m.b.cairn, "run", "-q", "--fresh", "--every", "100ms", "--run", "run.cairn", m.commands[0][alone][0]}, m.p.args); err != nil {
		return err
	}
	log, err := os.ReadFile(filepath.Join(m.dir, "run.cairn", "log"))
	if err != nil {
		return err
	}
	for _, m := range committed.FindAllStringSubmatch(string(log), -1) {
		d, err := time.ParseDuration(strings.ReplaceAll(m[2], " ", ""))
		if err != nil {
			return fmt.Errorf("the run's log: %w", err)
		}
		r.pauses, r.state = append(r.pauses, d), m[1]
	}
	if len(r.pauses) == 0 && strings.Contains(string(log), " committed: ") {
		return errors.New("the run's log reports checkpoints in another form than expected")
	}
	return os.RemoveAll(m.dir)
}
