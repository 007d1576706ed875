package main

import (
	"syscall"
	"time"
)

// killStorm kills ranks, helpers, supervisors, or all at once.
func killStorm(t *faultCase) error { return t.storm(t.choose(), 1+t.r.IntN(4)) }

// killAlone kills a program that has no supervisor.
func killAlone(t *faultCase) error {
	c := t.choose()
	c.alone = true
	return t.storm(c, 1+t.r.IntN(4))
}

// roles are the processes that are killed. Roles with more processes appear
// more often.
var roles = []string{"rank", "rank", "rank", "helper", "supervisor", "supervisor", "all", "all"}

// storm kills processes a number of times, and then completes the run.
func (t *faultCase) storm(c *scenario, blows int) error {
	var s *start
	for range blows {
		if s != nil && s.over() {
			s = nil
		}
		if s == nil {
			if c.starts > 0 && t.finished(c) {
				break
			}
			var err error
			if s, err = t.start(c); err != nil {
				return err
			}
		}
		if err := t.moment(c, s); err != nil {
			return err
		}
		if s.over() {
			if s.exit() == t.prog.status {
				break
			}
			continue
		}
		role := roles[t.r.IntN(len(roles))]
		if c.alone {
			role = "rank"
		}
		if hit := t.strike(role, syscall.SIGKILL); len(hit) > 0 {
			t.note("SIGKILL %s (%d)", role, len(hit))
		}
		if role == "supervisor" || role == "all" || c.alone {
			if err := s.end(); err != nil {
				return err
			}
		}
	}
	if s != nil && s.over() && s.exit() == t.prog.status {
		return t.compare(c, t.prog.status)
	}
	if s != nil && s.over() {
		s = nil
	}
	return t.complete(c, s)
}

// freezeStorm stops processes for a while. Some are killed while they are
// stopped.
func freezeStorm(t *faultCase) error {
	c := t.choose()
	if t.r.IntN(4) == 0 {
		t.prog = t.ranksProgram()
	}
	s, err := t.start(c)
	if err != nil {
		return err
	}
	for range 1 + t.r.IntN(3) {
		if err := t.moment(c, s); err != nil {
			return err
		}
		role := roles[t.r.IntN(len(roles))]
		hit := t.strike(role, syscall.SIGSTOP)
		if len(hit) == 0 || s.over() {
			break
		}
		rest := time.Duration(20+t.r.IntN(400)) * time.Millisecond
		s.pause(rest)
		last, word := syscall.SIGCONT, "SIGCONT"
		if t.r.IntN(2) == 0 {
			last, word = syscall.SIGKILL, "SIGKILL"
		}
		t.note("SIGSTOP %s (%d), %s after %v", role, len(hit), word, rest)
		for _, pid := range hit {
			syscall.Kill(pid, last)
		}
		if last == syscall.SIGKILL && (role == "supervisor" || role == "all") {
			if err := s.end(); err != nil {
				return err
			}
			if t.finished(c) {
				return t.compare(c, t.prog.status)
			}
			if s, err = t.start(c); err != nil {
				return err
			}
		}
	}
	return t.complete(c, s)
}

// ranksProgram chooses a program of several ranks.
func (t *faultCase) ranksProgram() program {
	p := program{ranks: 2 + t.r.IntN(2), seed: t.r.IntN(5), steps: 30 + t.r.IntN(20), pause: "2ms"}
	switch t.r.IntN(5) {
	case 0:
		p.source, p.mode = "library", "ranks"
	default:
		p.source, p.made, p.mode = "plainranks", true, []string{"ring", "turn", "cells", "own"}[t.r.IntN(4)]
	}
	return p
}

// ranksOver kills ranks that communicate over a transport. The run continues
// over the same transport, or another one.
func ranksOver(transport string) func(t *faultCase) error {
	return func(t *faultCase) error {
		t.prog = t.ranksProgram()
		c := t.scenario()
		c.every = 2 + t.r.IntN(8)
		c.flags = []string{"--transport", transport}
		if transport == "mpi" {
			c.flags = []string{"--launcher", "mpirun", "--launcher-args=--oversubscribe"}
		}
		return t.storm(c, 1+t.r.IntN(3))
	}
}
