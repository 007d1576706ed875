package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A named step is a place in Cairn's own code, such as commit.written; see
// package internal/step. A process kills or stops itself when it reaches the
// step.

// route is a sequence of actions that reaches certain steps. For example, a
// plain run reaches no step of a migration.
type route struct {
	name    string
	program func(t *faultCase) (program, *scenario)
	// before, if not nil, is called before the command is started.
	before func(t *faultCase, c *scenario) error
	// during is called while the command runs.
	during func(t *faultCase, c *scenario, s *start) error
}

// routes are all ways through the protocol.
var routes = []route{
	{name: "alone", program: func(t *faultCase) (program, *scenario) {
		c := t.choose()
		c.alone = true
		return t.prog, c
	}},
	{name: "run", program: oneRank},
	{name: "restart", program: oneRank, during: func(t *faultCase, c *scenario, s *start) error {
		return t.after(s, 2, func() { t.strike("rank", syscall.SIGKILL) })
	}},
	{name: "resume", program: oneRank, before: func(t *faultCase, c *scenario) error { return t.halted(c, 2) }},
	{name: "stop", program: oneRank, during: func(t *faultCase, c *scenario, s *start) error {
		return t.after(s, 1, func() { t.tool("stop", t.file(c.run)) })
	}},
	{name: "checkpoint", program: oneRank, during: func(t *faultCase, c *scenario, s *start) error {
		return t.after(s, 1, func() { t.tool("checkpoint", t.file(c.run)) })
	}},
	// Discard a run that has made some progress. Its program changes no files,
	// which the user would have to remove.
	{name: "fresh", program: func(t *faultCase) (program, *scenario) {
		c := t.choose()
		t.prog = program{source: "plain", made: true, ranks: 1, mode: "compute", seed: t.r.IntN(40), steps: 40, pause: "3ms"}
		return t.prog, c
	}, before: func(t *faultCase, c *scenario) error {
		err := t.halted(c, 2)
		c.fresh, c.flags = true, append(c.flags, "--fresh")
		return err
	}},
	{name: "ranks", program: manyRanks},
	{name: "ranks-restart", program: manyRanks, during: func(t *faultCase, c *scenario, s *start) error {
		return t.after(s, 2, func() { t.strike("rank", syscall.SIGKILL) })
	}},
	{name: "migrate", program: func(t *faultCase) (program, *scenario) { return t.movingProgram() }, during: func(t *faultCase, c *scenario, s *start) error {
		return t.after(s, 1, func() { t.migrate(c) })
	}},
}

func oneRank(t *faultCase) (program, *scenario) { c := t.choose(); return t.prog, c }

func manyRanks(t *faultCase) (program, *scenario) { return t.ranksProgram(), t.scenario() }

// after does something when a number of checkpoints have been committed, unless
// the run has ended.
func (t *faultCase) after(s *start, checkpoints int, do func()) error {
	ok, err := s.sees(committed, checkpoints)
	if ok && !s.over() {
		do()
	}
	return err
}

// stepsOf returns the steps that a route reaches in an undisturbed run, and how
// often.
func (l *lab) stepsOf(t *faultCase, j *route) (map[string]int, error) {
	l.mu.Lock()
	once := l.steps[j.name]
	if once == nil {
		once = sync.OnceValues(func() (map[string]int, error) {
			probe := &faultCase{lab: l, ctx: t.ctx, kind: t.kind, n: t.n, r: dice(1, len(j.name)), dir: t.dir + "-steps-" + j.name, name: t.name + j.name, workName: "work"}
			if err := os.MkdirAll(probe.work(), 0o755); err != nil {
				return nil, err
			}
			defer os.RemoveAll(probe.dir)
			var c *scenario
			probe.prog, c = j.program(probe)
			log := probe.file("steps")
			c.env = append(c.env, "CAIRN_STEP_LOG="+log)
			if err := probe.undergo(j, c); err != nil {
				return nil, fmt.Errorf("steps of %s: %w", j.name, err)
			}
			return readSteps(log)
		})
		l.steps[j.name] = once
	}
	l.mu.Unlock()
	return once()
}

// undergo starts the command, performs the route's actions, and completes the
// run.
func (t *faultCase) undergo(j *route, c *scenario) error {
	if j.before != nil {
		if err := j.before(t, c); err != nil {
			return err
		}
	}
	s, err := t.start(c)
	if err != nil {
		return err
	}
	if j.during != nil {
		if err := j.during(t, c, s); err != nil {
			return err
		}
	}
	return t.complete(c, s)
}

// readSteps counts the steps in a log.
func readSteps(log string) (map[string]int, error) {
	text, err := os.ReadFile(log)
	if err != nil {
		return nil, err
	}
	steps := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, " ")
		steps[name]++
	}
	return steps, nil
}

// stepFault makes a process kill or stop itself at a named step.
func stepFault(t *faultCase) error {
	j := &routes[t.r.IntN(len(routes))]
	steps, err := t.stepsOf(t, j)
	if err != nil {
		return err
	}
	names := slices.Sorted(keysOf(steps))
	if len(names) == 0 {
		return judged(skipped, "there are no steps")
	}
	// Steps that only this route reaches are more interesting.
	usual, err := t.stepsOf(t, &routes[1])
	if err != nil {
		return err
	}
	special := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return usual[name] > 0 })
	// The second fault may hit the recovery from the first, such as a restore.
	var rules []string
	for range 1 + t.r.IntN(2) {
		name := names[t.r.IntN(len(names))]
		if len(special) > 0 && t.r.IntN(3) > 0 {
			name = special[t.r.IntN(len(special))]
		}
		// A disturbed run may reach the step more often, so one more is
		// possible.
		at, act := 1+t.r.IntN(steps[name]+1), "kill"
		if t.r.IntN(5) < 2 {
			act = "stop"
		}
		rules = append(rules, fmt.Sprintf("%s#%d=%s", name, at, act))
	}
	var c *scenario
	t.prog, c = j.program(t)
	log := t.file("steps")
	c.env = append(c.env, "CAIRN_STEP="+strings.Join(rules, ","), "CAIRN_STEP_LOG="+log)
	stop := t.thaw()
	err = t.undergo(j, c)
	stop()
	reached, _ := readSteps(log)
	for _, rule := range rules {
		name, rest, _ := strings.Cut(rule, "#")
		at, act, _ := strings.Cut(rest, "=")
		if n, _ := strconv.Atoi(at); reached[name] >= n {
			t.note("%s at %s (%s), %s", act, name, at, j.name)
		}
	}
	return err
}

// thaw continues stopped processes of the case after a while, or kills them, or
// kills all processes, until the returned function is called.
func (t *faultCase) thaw() (stop func()) {
	done := make(chan struct{})
	var all sync.WaitGroup
	how := t.r.IntN(3)
	rest := time.Duration(50+t.r.IntN(400)) * time.Millisecond
	struck := false
	all.Go(func() {
		since := make(map[int]time.Time)
		for {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
			of := t.processes()
			for _, p := range of {
				if !stopped(p.pid) {
					delete(since, p.pid)
					continue
				}
				if since[p.pid].IsZero() {
					since[p.pid] = time.Now()
				}
				if time.Since(since[p.pid]) <= rest {
					continue
				}
				switch how {
				case 0:
					syscall.Kill(p.pid, syscall.SIGCONT)
				case 1:
					syscall.Kill(p.pid, syscall.SIGKILL)
				case 2:
					for _, p := range of {
						syscall.Kill(p.pid, syscall.SIGKILL)
					}
					struck = true
				}
			}
		}
	})
	return func() {
		close(done)
		all.Wait()
		if struck {
			t.note("all killed while one was stopped")
		}
	}
}

// stopped reports whether a process was stopped by a signal.
func stopped(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	i := strings.LastIndex(string(text), ") ")
	return i >= 0 && len(text) > i+2 && text[i+2] == 'T'
}

// tool runs a cairn command in addition to the run, and returns its output.
func (t *faultCase) tool(args ...string) (string, int) {
	s, err := t.launchCairn(args...)
	if err != nil {
		return err.Error(), -1
	}
	if err := s.end(); err != nil {
		return err.Error(), -1
	}
	return s.text(), s.exit()
}

func (t *faultCase) launchCairn(args ...string) (*start, error) {
	cairn, err := t.program(t.ctx, "cairn")
	if err != nil {
		return nil, err
	}
	return t.launch(nil, nil, append([]string{cairn}, args...)...)
}

// movingProgram returns a program whose ranks are moved.
func (t *faultCase) movingProgram() (program, *scenario) {
	p := t.ranksProgram()
	p.steps += 60
	c := t.scenario()
	c.every = 5 + t.r.IntN(10)
	c.flags = append(c.flags, "--hosts", fmt.Sprintf("localhost:%d", p.ranks+2))
	return p, c
}

// migrate moves a rank. It may fail.
func (t *faultCase) migrate(c *scenario) (string, int) {
	return t.tool("migrate", "--rank", strconv.Itoa(t.r.IntN(t.prog.ranks)), "--to", "localhost", "--rounds", strconv.Itoa(t.r.IntN(3)), t.file(c.run))
}

// migrateUnderFire moves ranks, and kills processes that take part.
func migrateUnderFire(t *faultCase) error {
	var c *scenario
	t.prog, c = t.movingProgram()
	s, err := t.start(c)
	if err != nil {
		return err
	}
	for range 1 + t.r.IntN(2) {
		if ok, err := s.sees(committed, s.count(committed)+1); !ok || err != nil {
			if err != nil {
				return err
			}
			break
		}
		m, err := t.launchCairn("migrate", "--rank", strconv.Itoa(t.r.IntN(t.prog.ranks)), "--to", "localhost", "--rounds", strconv.Itoa(t.r.IntN(3)), t.file(c.run))
		if err != nil {
			return err
		}
		m.pause(time.Duration(t.r.IntN(120)) * time.Millisecond)
		role := roles[t.r.IntN(len(roles))]
		if hit := t.strike(role, syscall.SIGKILL); len(hit) > 0 {
			t.note("SIGKILL %s (%d) during a migration", role, len(hit))
		}
		if err := m.end(); err != nil {
			return err
		}
		if role == "supervisor" || role == "all" {
			if err := s.end(); err != nil {
				return err
			}
		}
		if s.over() {
			if s.exit() == t.prog.status || t.finished(c) {
				break
			}
			if s, err = t.start(c); err != nil {
				return err
			}
		}
	}
	if s.over() && s.exit() != t.prog.status {
		s = nil
	}
	return t.complete(c, s)
}

// stopUnderFire tells the run to stop, and kills a process meanwhile.
func stopUnderFire(t *faultCase) error {
	c := t.choose()
	if t.r.IntN(3) == 0 {
		t.prog = t.ranksProgram()
	}
	for range 1 + t.r.IntN(2) {
		if t.finished(c) {
			break
		}
		s, err := t.start(c)
		if err != nil {
			return err
		}
		if err := t.moment(c, s); err != nil {
			return err
		}
		if s.over() {
			return t.complete(c, s)
		}
		if t.r.IntN(2) == 0 {
			t.note("SIGTERM supervisor")
			t.strike("supervisor", syscall.SIGTERM)
		} else {
			t.note("cairn stop")
			t.tool("stop", t.file(c.run))
		}
		if t.r.IntN(3) > 0 {
			s.pause(time.Duration(t.r.IntN(30)) * time.Millisecond)
			role := roles[t.r.IntN(len(roles))]
			if hit := t.strike(role, syscall.SIGKILL); len(hit) > 0 {
				t.note("SIGKILL %s (%d)", role, len(hit))
			}
		}
		if err := s.end(); err != nil {
			return err
		}
		if s.exit() == t.prog.status {
			return t.compare(c, t.prog.status)
		}
	}
	return t.complete(c, nil)
}
