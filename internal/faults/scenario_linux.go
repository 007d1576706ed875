package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// scenario says how a case's program is run.
type scenario struct {
	alone    bool   // it runs without a supervisor
	cairn    string // build of the cairn command; "": the usual one
	every    int    // points between checkpoints
	run      string // the run's directory, in the case's directory
	out      string // the directory for output, in the case's directory
	absolute bool   // the command names absolute paths
	piped    bool   // standard input is a pipe
	fresh    bool   // discard an earlier run
	flags    []string
	env      []string
	starts   int // how often the command was started
}

func (t *faultCase) file(name string) string { return filepath.Join(t.dir, name) }

// work returns the program's working directory.
func (t *faultCase) work() string { return t.file(t.workName) }

// choose chooses a program of one process that cairn build made, and how to run
// it.
func (t *faultCase) choose() *scenario {
	modes := []string{"files", "files", "files", "append", "append", "many", "compute", "input", "exit"}
	t.prog = program{source: "plain", made: true, ranks: 1, mode: modes[t.r.IntN(len(modes))], seed: t.r.IntN(40), steps: 40 + t.r.IntN(40), pause: "3ms"}
	if t.prog.mode == "exit" {
		t.prog.status = 7
	}
	if t.r.IntN(5) == 0 {
		t.prog = program{source: "library", mode: "single", ranks: 1, seed: t.r.IntN(10), steps: 40 + t.r.IntN(40), pause: "3ms"}
	}
	return t.scenario()
}

// scenario returns the usual scenario.
func (t *faultCase) scenario() *scenario {
	return &scenario{every: []int{1, 2, 3, 5, 8, 13}[t.r.IntN(6)], run: "run", out: "out", absolute: t.r.IntN(2) == 0, piped: t.r.IntN(3) == 0}
}

// place returns the command's name for a file of the case.
func (c *scenario) place(t *faultCase, name string) string {
	if c.absolute {
		return t.file(name)
	}
	return filepath.Join("..", name)
}

// start starts the command.
func (t *faultCase) start(c *scenario, env ...string) (*start, error) {
	c.starts++
	binary, err := t.program(t.ctx, t.prog.binary())
	if err != nil {
		return nil, err
	}
	argv := append([]string{binary}, t.prog.args(t.prog.pause)...)
	env = append(append([]string{}, c.env...), env...)
	if t.prog.devices != "" {
		env = append(env, "CAIRN_DEVICES="+t.prog.devices)
	}
	if c.alone {
		env = append(env, "CAIRN_DIR="+c.place(t, c.run), "CAIRN_EVERY_POINTS="+strconv.Itoa(c.every),
			"LIBRARY_DIR="+c.place(t, c.run), "LIBRARY_EVERY_POINTS="+strconv.Itoa(c.every))
	} else {
		cairn, err := t.program(t.ctx, cmp.Or(c.cairn, "cairn"))
		if err != nil {
			return nil, err
		}
		flags := []string{cairn, "run", "--run", c.place(t, c.run), "-o", c.place(t, c.out), "--every-points", strconv.Itoa(c.every),
			"--retries", "6", "--grace", "20s", "-n", strconv.Itoa(t.prog.ranks)}
		argv = append(append(flags, c.flags...), argv...)
	}
	var in io.Reader
	if t.prog.mode == "input" {
		in = strings.NewReader(t.prog.input())
		if !c.piped {
			name := t.file("input")
			if err := os.WriteFile(name, []byte(t.prog.input()), 0o644); err != nil {
				return nil, err
			}
			f, err := os.Open(name)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			in = f
		}
	}
	return t.launch(in, env, argv...)
}

// finished reports whether the run's record says that the run has finished.
// Then the same command would rightly begin a new run.
func (t *faultCase) finished(c *scenario) bool {
	if c.alone {
		return false
	}
	ctx, cancel := context.WithTimeout(t.ctx, 10*time.Second)
	defer cancel()
	st, err := client.Read(ctx, t.file(c.run))
	return err == nil && st.State == rundir.Finished
}

const statusStopped = 75

// mostStarts is how often a command is started that does not reach its end.
const mostStarts = 6

// complete brings the run to its end, by starting the same command repeatedly,
// and compares the results. All faults have been undone before.
func (t *faultCase) complete(c *scenario, s *start) error {
	said := ""
	for range mostStarts {
		if s == nil {
			if t.finished(c) {
				return t.compare(c, t.prog.status)
			}
			var err error
			if s, err = t.start(c); err != nil {
				return err
			}
		}
		if err := s.end(); err != nil {
			return err
		}
		switch code := s.exit(); code {
		case t.prog.status:
			return t.compare(c, code)
		case -1, statusStopped: // it was killed, or it has stopped
		default:
			said = fmt.Sprintf("exit status %d: %s", code, tail(s.text()))
		}
		s = nil
	}
	return judged(lost, "the same command, given %d times, does not complete the run: %s", mostStarts, said)
}

// compare compares the results with those of an undisturbed run.
func (t *faultCase) compare(c *scenario, status int) error {
	if err := t.quiet(); err != nil {
		return err
	}
	want, err := t.want(t.ctx, t.prog)
	if err != nil {
		return err
	}
	got := &results{status: status}
	if got.files, err = readTree(t.work()); err != nil {
		return err
	}
	if !c.alone {
		text, err := os.ReadFile(t.file(c.out))
		if err != nil {
			return judged(lost, "the output is not there: %v", err)
		}
		got.stdout = string(text)
	}
	if text := got.differs(want, !c.alone); text != "" {
		return judged(wrong, "%s", text)
	}
	t.mu.Lock()
	safe, begun := t.safe, t.begun
	t.mu.Unlock()
	if n := t.begins(); safe > 0 && n > begun && !c.fresh {
		return judged(lost, "checkpoint %d was committed, and later the program was started from its beginning", safe)
	}
	return nil
}

// quiet waits until no process of the case is left.
func (t *faultCase) quiet() error {
	w := t.watch()
	for len(t.processes()) > 0 {
		if err := w.look(nil); err != nil {
			return fmt.Errorf("processes are left after the end of the run: %w", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

var started = regexp.MustCompile(`cairn: started`)

// moment waits for the moment of a fault: some time after the start, or after
// some more checkpoints.
func (t *faultCase) moment(c *scenario, s *start) error {
	wait := time.Duration(t.r.IntN(60)) * time.Millisecond
	if !c.alone {
		switch t.r.IntN(4) {
		case 0: // right at the start
		case 1:
			if _, err := s.sees(started, 1); err != nil {
				return err
			}
		default:
			if _, err := s.sees(committed, s.count(committed)+1+t.r.IntN(4)); err != nil {
				return err
			}
			wait = time.Duration(t.r.IntN(15)) * time.Millisecond
		}
	} else {
		wait *= 4
	}
	s.pause(wait)
	return nil
}
