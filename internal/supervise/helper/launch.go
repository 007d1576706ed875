//go:build linux

package helper

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// launch is this host's part of one start of all ranks. It is over when all its
// ranks have ended. A destination that starts later begins another launch.
type launch struct {
	h     *helper
	start *control.Start // the first start
	watch *watch
	err   error         // why there is no watch
	bad   atomic.Bool   // a rank ended with an error, or was sent a signal
	done  chan struct{} // closed when all ranks have ended, with their writers and outputs

	// helper.mu guards the following fields.
	children []*child
	live     int    // children that are not done, and starts in progress
	number   uint64 // number of the last start
	over     bool   // live has reached zero
}

// running reports whether there is a launch that is not done.
func (h *helper) running() bool {
	if h.now == nil {
		return false
	}
	select {
	case <-h.now.done:
		return false
	default:
		return true
	}
}

// serves reports whether there are ranks.
func (h *helper) serves() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now != nil && !h.now.over
}

// begin starts the host's ranks.
func (h *helper) begin(s *control.Start) {
	if h.running() {
		h.refuse(s, "ranks of the last start still run on this host")
		return
	}
	if h.local != nil && s.Attempt != nil {
		if err := h.local.SetAttempt(s.Attempt); err != nil {
			h.refuse(s, fmt.Sprintf("the start could not be recorded on %s: %v", h.name, err))
			return
		}
		h.local.scrub()
	}
	h.fill(h.open(s), s)
}

// startDestination starts one more rank in the current launch, or in a new one.
func (h *helper) startDestination(s *control.Start) {
	if h.running() && h.now.start.Launch != s.Launch {
		h.refuse(s, "ranks of the last start still run on this host")
		return
	}
	h.mu.Lock()
	l := h.now
	joins := l != nil && !l.over && l.start.Launch == s.Launch
	if joins {
		l.live++
		l.number = s.Number
	}
	h.mu.Unlock()
	switch {
	case joins:
	case h.running(): // the launch is about to end
		h.late = append(h.late, &lateStart{Start: s})
		return
	default:
		l = h.open(s)
	}
	h.fill(l, s)
}

// lateStart is a destination that has to wait for the end of a launch.
type lateStart struct {
	*control.Start
	off bool // it is not needed any more
}

// forget cancels a destination that has not started.
func (h *helper) forget(p control.Process) {
	for _, s := range h.late {
		s.off = s.off || s.Ranks[0] == p.Rank && s.Welcome.Move.ID == p.ByMove
	}
}

// startLate starts the destinations that waited for the end of a launch.
func (h *helper) startLate() {
	late := h.late
	h.late = nil
	for _, s := range late {
		if s.off {
			h.refuse(s.Start, "it is not needed any more")
		} else {
			h.startDestination(s.Start)
		}
	}
}

// refuse reports that ranks do not start.
func (h *helper) refuse(s *control.Start, why string) {
	byMove := uint64(0)
	if s.Welcome.Move != nil {
		byMove = s.Welcome.Move.ID
	}
	for _, r := range s.Ranks {
		(&child{h: h, s: s, rank: r, byMove: byMove}).say(&control.Exited{Code: 1, Error: why})
	}
	if !h.running() || h.now.start.Launch != s.Launch {
		h.up.Send(&control.Drained{Launch: s.Launch, Number: s.Number})
	}
}

// open begins a launch. It stays open until fill returns.
func (h *helper) open(s *control.Start) *launch {
	h.keepShell()
	l := &launch{h: h, start: s, live: 1, number: s.Number, done: make(chan struct{})}
	l.watch, l.err = newWatch(s.Output)
	h.mu.Lock()
	h.now = l
	h.mu.Unlock()
	return l
}

// fill starts ranks in a launch that is open.
func (h *helper) fill(l *launch, s *control.Start) {
	if h.secret != nil {
		s.Welcome.Secret = control.Derive(h.secret, s.Launch)
	}
	for i, rank := range s.Ranks {
		c := &child{h: h, l: l, s: s, rank: rank}
		if s.Welcome.Move != nil {
			c.byMove = s.Welcome.Move.ID
		}
		err := l.err
		if err == nil {
			err = c.start(i)
		}
		if err != nil {
			code := 1
			switch {
			case errors.Is(err, os.ErrNotExist):
				code = 127
			case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.ENOEXEC):
				code = 126
			}
			if c.byMove == 0 {
				l.bad.Store(true)
			}
			c.say(&control.Exited{Code: code, Error: err.Error()})
		}
	}
	h.record()
	l.release()
}

// add adds a child. The caller does so before the child can send or get
// messages.
func (l *launch) add(c *child) {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	l.children = append(l.children, c)
	l.live++
}

// remove removes a child that was dismissed.
func (l *launch) remove(c *child) {
	l.h.mu.Lock()
	l.children = slices.DeleteFunc(l.children, func(x *child) bool { return x == c })
	l.h.mu.Unlock()
	l.h.record()
}

// release records that a child, or a start, is done. The last one ends the
// launch.
func (l *launch) release() {
	l.h.mu.Lock()
	l.live--
	l.over = l.live == 0
	over, number := l.over, l.number
	l.h.mu.Unlock()
	if !over {
		return
	}
	go func() {
		l.reap()
		if l.watch != nil {
			l.watch.close()
		}
		l.h.mu.Lock()
		l.children = nil
		l.h.mu.Unlock()
		l.h.record()
		close(l.done)
		l.h.up.Send(&control.Drained{Launch: l.start.Launch, Number: number})
	}()
}

// reap reaps the ended ranks. After a launch that failed it first kills their
// children, which could write into the output of the next launch.
func (l *launch) reap() {
	if l.bad.Load() {
		groups := make(map[int]bool)
		for _, c := range l.children { // not reaped yet, so the numbers still belong to them
			groups[c.id.Pid] = true
			syscall.Kill(-c.id.Pid, syscall.SIGKILL)
		}
		endGroup(func(st stat) bool { return groups[st.group] })
	}
	for _, c := range l.children {
		c.reap()
	}
}

// record writes the ranks that run now into the host's lock file.
func (h *helper) record() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	launch, list := "", []rundir.Process(nil)
	if h.now != nil {
		launch = h.now.start.Launch
		for _, c := range h.now.children {
			list = append(list, c.id)
		}
	}
	supervisor := ""
	if h.local != nil {
		supervisor = h.local.supervisor
	}
	return rundir.RecordProcesses(h.lock, supervisor, launch, list)
}

// addressed returns the children that a message is for.
func (h *helper) addressed(p control.Process) []*child {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now == nil {
		return nil
	}
	var out []*child
	for _, c := range h.now.children {
		if p.Rank == control.AllRanks || c.process() == p {
			out = append(out, c)
		}
	}
	return out
}

func (h *helper) all() []*child { return h.addressed(control.Process{Rank: control.AllRanks}) }

func (h *helper) child(p control.Process) *child {
	if p.Rank == control.AllRanks {
		return nil
	}
	for _, c := range h.addressed(p) {
		return c
	}
	return nil
}

// name returns the child's name in messages.
func (c *child) name() string { return fmt.Sprintf("rank %d on %s", c.rank, c.h.name) }

// keepShell makes the shell that started this helper stay when the helper is
// killed.
func (h *helper) keepShell() {
	if st, ok := readStat(h.shell); h.shell > 1 && ok && st.group == syscall.Getpgrp() {
		syscall.Kill(h.shell, syscall.SIGUSR1)
	}
}
