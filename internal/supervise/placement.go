//go:build linux

package supervise

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// This file chooses the hosts of moving ranks, and changes the hosts' slots
// accordingly.

// knows reports whether a host is one of the run's.
func (s *Supervisor) knows(name string) bool { return slices.Contains(s.titles(), name) }

// titles returns the hosts' names in messages.
func (s *Supervisor) titles() (out []string) {
	for _, h := range s.hosts {
		if !slices.Contains(out, h.title()) {
			out = append(out, h.title())
		}
	}
	return out
}

// onHost counts the ranks on a host.
func (s *Supervisor) onHost(h *host) (n int) {
	for i := range s.a.ranks {
		if s.a.ranks[i].on == h {
			n++
		}
	}
	return n
}

// ranksOn returns the ranks on the hosts of that name.
func (s *Supervisor) ranksOn(name string) (out []int) {
	for i := range s.a.ranks {
		if s.a.ranks[i].Host == name {
			out = append(out, i)
		}
	}
	return out
}

// errNobody says that no rank is on a host that is to be evacuated.
var errNobody = errors.New("no rank is there")

// plan decides which ranks move to which hosts.
func (s *Supervisor) plan(m *move) error {
	q, a := m.q, s.a
	ranks := q.ranks
	if q.host != "" {
		if !s.knows(q.host) {
			return fmt.Errorf("the run has no host %s; it has %s", q.host, strings.Join(s.titles(), ", "))
		}
		if ranks = s.ranksOn(q.host); len(ranks) == 0 {
			return errNobody
		}
	}
	m.Ranks = ranks
	var from []string
	for _, r := range ranks {
		x := &a.ranks[r]
		m.moving = append(m.moving, &movingRank{rank: r, from: x.on, byMove: x.byMove, goal: q.to})
		if !slices.Contains(from, x.Host) {
			from = append(from, x.Host)
		}
	}
	m.From = strings.Join(from, ", ")
	if m.To = q.to; m.To != "" {
		return nil
	}
	goals, err := s.spread(q, ranks, from)
	if err != nil {
		return err
	}
	var to []string
	for i, x := range m.moving {
		x.goal = goals[i]
		if !slices.Contains(to, x.goal) {
			to = append(to, x.goal)
		}
	}
	m.To = strings.Join(to, ", ")
	return nil
}

// spread finds hosts of the run with free slots for moving ranks: first the one
// with the most, then the next.
func (s *Supervisor) spread(q *moveRequest, ranks []int, from []string) (goals []string, err error) {
	if s.launcher != nil {
		return nil, fmt.Errorf("%s places the ranks, and the free slots of its hosts are not known; %s", s.launcher.name, s.advice(q))
	}
	free := func(h *host) int { return max(0, h.slots+h.vacated-s.onHost(h)) }
	var list []*host
	room := 0
	for _, h := range s.hosts {
		if h.state == hostUp && h.fixed == nil && !h.evacuating && !slices.Contains(from, h.title()) && free(h) > 0 {
			list = append(list, h)
			room += free(h)
		}
	}
	if room < len(ranks) {
		slots := ""
		if room > 0 {
			slots = fmt.Sprintf(" (free slots: %d)", room)
		}
		return nil, fmt.Errorf("no other host of the run has room for %s%s; %s", control.RanksText(ranks), slots, s.advice(q))
	}
	slices.SortStableFunc(list, func(a, b *host) int { return free(b) - free(a) })
	for _, h := range list {
		for range min(free(h), len(ranks)-len(goals)) {
			goals = append(goals, h.title())
		}
	}
	return goals, nil
}

// advice returns the remedy for a move that finds no host.
func (s *Supervisor) advice(q *moveRequest) string {
	switch {
	case q.by == byFile:
		return fmt.Sprintf("write '%s TARGET' into %s and send SIGUSR2 again, or use 'cairn migrate --host %s --to TARGET'", q.host, s.dir.File(rundir.EvacuateFile), q.host)
	case q.by == byWatch && s.launcher == nil:
		return fmt.Sprintf("the ranks move as soon as a host has room; 'cairn migrate --host %s --to TARGET' does not wait", q.host)
	case q.by == byWatch:
		return fmt.Sprintf("use 'cairn migrate --host %s --to TARGET'", q.host)
	}
	return "name a host with --to"
}

// prepareMove starts the helpers that the destinations need.
func (s *Supervisor) prepareMove() {
	m := s.move
	if s.launcher != nil {
		s.enter(control.MovePreparing, s.limits.join)
		s.launchHelpers()
		return
	}
	for _, x := range m.moving {
		x.to = s.goal(m, x.goal)
		x.to.extra = false
	}
	// A helper that waits for an earlier one to end has a limit of its own.
	s.enter(control.MovePreparing, s.o.Grace+helperEndTime+2*joinTime)
	for _, x := range m.moving {
		if h := x.to; h.state == hostDown && h.err == nil {
			h.join()
		}
	}
}

// goal returns the host of that name. If the run does not have it, goal adds
// it.
func (s *Supervisor) goal(m *move, name string) *host {
	if i := slices.IndexFunc(s.hosts, func(h *host) bool { return h.name == name }); i >= 0 {
		h := s.hosts[i]
		if h.state == hostDown {
			h.err = nil // try it again
		}
		return h
	}
	own, _ := os.Hostname()
	h := &host{s: s, name: name, local: name == "localhost" || name == "127.0.0.1" || name == own}
	s.hosts = append(s.hosts, h)
	m.added = append(m.added, h)
	return h
}

// resettle changes the hosts' slots after a move, so that a restart places the
// ranks where they are now.
func (s *Supervisor) resettle(m *move) {
	if s.launcher != nil {
		return // the launcher places ranks
	}
	drained := m.q.host != ""
	if drained {
		s.closeHost(m.q.host)
	}
	for _, x := range m.moving {
		if x.from != x.to {
			if !drained && x.from.slots > 0 { // a restart must not bring the rank back, but its slot is free for others
				x.from.slots--
				if !x.from.closed {
					x.from.vacated++
				}
			}
			if x.to.vacated > 0 && (!drained || x.to.slots < s.onHost(x.to)) {
				x.to.slots++
				x.to.vacated--
			}
		}
		x.to.slots = max(x.to.slots, s.onHost(x.to))
		x.to.evacuating = false
		delete(s.watches, x.to.title())
	}
	s.recordHosts()
}

// closeHost takes all slots from a host. It reports whether the supervisor
// places the ranks of that host.
func (s *Supervisor) closeHost(name string) (closed bool) {
	for _, h := range s.hosts {
		if h.title() == name && h.fixed == nil {
			h.slots, h.vacated, h.closed = 0, 0, true
			closed = true
		}
	}
	s.recordHosts()
	s.releaseEmptyHosts()
	return closed
}

func (s *Supervisor) recordHosts() {
	s.rec.Hosts = nil
	for _, h := range s.hosts {
		if h.fixed == nil {
			s.rec.Hosts = append(s.rec.Hosts, fmt.Sprintf("%s:%d", h.name, h.slots))
		}
	}
}

// releaseEmptyHosts ends the helpers of hosts that have no ranks and no slots.
// It removes such hosts that were added for their files or for a move.
func (s *Supervisor) releaseEmptyHosts() {
	for _, h := range slices.Clone(s.hosts) {
		if h.slots+h.vacated > 0 || h.busy || h.holds || h.spawned && h.served && h.state == hostUp || s.move != nil && slices.ContainsFunc(s.move.moving, func(x *movingRank) bool { return x.to == h }) {
			continue
		}
		switch {
		case h.state == hostUp:
			h.release()
		case h.state == hostJoining && h.extra && h.cmd != nil: // it is not needed any more
			syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL)
			h.hangUp()
		}
		if h.extra && h.state != hostJoining {
			s.hosts = slices.DeleteFunc(s.hosts, func(x *host) bool { return x == h })
		}
	}
}

// release ends a helper that has no ranks.
func (h *host) release() {
	queue, conn, ended := h.queue, h.conn, h.ended
	h.state, h.served, h.queue, h.conn = hostDown, false, nil, nil
	if h.s.local != nil && h.files != nil && !h.s.needsDir(h.files.ID) {
		queue.Send(&control.Discard{All: true})
	}
	h.files = nil
	queue.Send(&control.Quit{})
	queue.Finish()
	go func() {
		select {
		case <-queue.Done:
		case <-time.After(time.Second):
		}
		if ended != nil {
			select {
			case <-ended:
			case <-time.After(5 * time.Second):
			}
		}
		conn.Close()
	}()
}
