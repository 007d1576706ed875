package supervise

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

const (
	shownMoves = 16 // of those that are over
	maxMoves   = 64 // that wait
)

// request is a move that was asked for.
type request struct {
	ranks []int
	host  string // all that are there, instead of ranks
	to    string // "": to be chosen
	how   control.Move
	w     *waiter // nil: nobody waits
	tries int     // of one that nobody waits for, so far
	state *control.MoveState
}

// Who asks for a host to be left does not wait and ask again, so that is done
// here.
const (
	leaveTries = 3
	leaveAgain = 30 * time.Second
)

// again asks once more for a move that did not succeed, if nobody waits for it.
func (s *Supervisor) again(q *request) {
	if q.w != nil || q.tries >= leaveTries {
		return
	}
	s.say("host %s is to be left: that is tried again in %s", q.host, timeText(leaveAgain))
	s.after(leaveAgain, func() {
		s.ask(&request{host: q.host, to: q.to, how: q.how, tries: q.tries + 1})
	})
}

// gone reports whether who asked has gone away.
func (q *request) gone() bool { return q.w != nil && q.w.done }

// note tells who asked how far it is.
func (q *request) note() {
	if q.w != nil && q.w.note != nil {
		q.w.note(q.message(true))
	}
}

// answer tells who asked how it ended.
func (q *request) answer() {
	if q.w != nil {
		q.w.reply(q.message(false))
	}
}

func (q *request) message(more bool) *control.Message {
	return &control.Message{Kind: control.Migrate, Busy: more, Run: &State{Moves: []control.MoveState{*q.state}}}
}

// migrate handles a request of a command.
func (s *Supervisor) migrate(w *waiter) {
	m := w.m.Move
	if m == nil {
		m = new(control.Move)
	}
	q := &request{ranks: slices.Clone(m.Ranks), host: w.m.Host, to: w.m.To, w: w,
		how: control.Move{Chunk: m.Chunk, Rounds: m.Rounds, Files: m.Files, Sequential: m.Sequential, Program: m.Program, Env: m.Env}}
	slices.Sort(q.ranks)
	q.ranks = slices.Compact(q.ranks)
	refuse := func(format string, args ...any) {
		w.reply(&control.Message{Kind: w.kind, Error: fmt.Sprintf(format, args...)})
	}
	switch {
	case s.stopping || s.killed || s.stopLater != "":
		refuse("the run is to stop; nothing is moved any more")
	case (len(q.ranks) == 0) == (q.host == ""):
		refuse("either ranks or a host are to be moved")
	case len(q.ranks) > 0 && (q.ranks[0] < 0 || q.ranks[len(q.ranks)-1] >= s.n):
		refuse("there is no rank %s; the run has ranks 0 to %d", outside(q.ranks, s.n), s.n-1)
	case q.how.Chunk < 0 || q.how.Rounds < 0:
		refuse("chunk and rounds can't be below zero")
	case q.to != "" && !hostName(q.to):
		refuse("%q is no host", q.to)
	case q.host != "" && q.host == q.to:
		refuse("ranks can't leave host %s for itself", q.host)
	case q.to == "" && (q.how.Program != "" || len(q.how.Env) > 0):
		refuse("a program and variables are those of one host: name it with --to")
	case q.how.Program != "" && !filepath.IsAbs(q.how.Program):
		refuse("the program's path has to be absolute, not %q", q.how.Program)
	case slices.ContainsFunc(q.how.Env, func(v string) bool { return strings.Index(v, "=") < 1 || strings.ContainsRune(v, 0) }):
		refuse("variables are given as NAME=VALUE")
	case len(s.queue) >= maxMoves:
		refuse("%d moves wait already; ask again when they are done", len(s.queue))
	default:
		if q.host != "" && s.a != nil && s.a.begun && !s.knows(q.host) {
			refuse("the run has no host %s; it has %s", q.host, strings.Join(s.titles(), ", "))
			return
		}
		s.addWaiter(w)
		s.ask(q)
		time.AfterFunc(helloTime, func() { s.post(func() { s.judgeSilent(q) }) })
	}
}

func outside(ranks []int, n int) string {
	for _, r := range ranks {
		if r < 0 || r >= n {
			return fmt.Sprint(r)
		}
	}
	return ""
}

// hostName reports whether this can be the name of a host.
func hostName(name string) bool {
	return name != "" && !strings.HasPrefix(name, "-") && !strings.ContainsAny(name, " \t\n\r,/\x00") && len(name) < 256
}

// judgeSilent refuses a move of a program that does not use Cairn.
func (s *Supervisor) judgeSilent(q *request) {
	if slices.Contains(s.queue, q) && s.a != nil && s.a.begun && !slices.ContainsFunc(s.a.ranks, func(r rank) bool { return r.Cairn }) {
		s.drop(q, "the program has not told that it uses Cairn: it has not called Open yet, or never does; then it can't be moved")
	}
}

// ask puts a request in the queue.
func (s *Supervisor) ask(q *request) {
	q.state = &control.MoveState{Ranks: q.ranks, From: q.host, To: q.to, State: control.MoveWaits, Time: time.Now()}
	if q.ranks == nil {
		q.state.Ranks = []int{}
	}
	s.moves = append(s.moves, q.state)
	for i := 0; len(s.moves) > shownMoves && i < len(s.moves); {
		if s.moves[i].Over() {
			s.moves = slices.Delete(s.moves, i, i+1)
		} else {
			i++
		}
	}
	s.queue = append(s.queue, q)
	q.note()
	s.changed()
}

// drop ends a request that did not begin.
func (s *Supervisor) drop(q *request, why string) {
	s.queue = slices.DeleteFunc(s.queue, func(x *request) bool { return x == q })
	q.state.State, q.state.Why, q.state.Time = control.NotMoved, why, time.Now()
	s.say("%s", MoveText(q.state))
	q.answer()
}

// endMoves ends what is under way and what waits.
func (s *Supervisor) endMoves(why string) {
	if m := s.move; m != nil {
		s.endMove(m, control.NotMoved, why)
	}
	for _, m := range s.back {
		m.State, m.Why, m.Time = control.NotMoved, m.Why+"; "+why, time.Now()
		m.q.answer()
	}
	s.back = nil
	for len(s.queue) > 0 {
		s.drop(s.queue[0], why)
	}
}

// nextMove begins the next move if there is one and the ranks run. It reports
// whether it did something.
func (s *Supervisor) nextMove() bool {
	a := s.a
	if len(s.queue) == 0 || a == nil || !a.begun || a.failure != nil || a.killed || a.again || s.stopping || s.killed || len(s.back) > 0 {
		return false
	}
	if slices.ContainsFunc(a.ranks, func(r rank) bool { return r.done || r.State == "ended" }) {
		s.drop(s.queue[0], "the program is about to end")
		return true
	}
	if slices.ContainsFunc(a.ranks, func(r rank) bool { return !r.Cairn || !r.ready || r.State != Running }) || s.n > 1 && a.card == nil {
		return false
	}
	q := s.queue[0]
	m := &move{MoveState: q.state, q: q, linked: make([]bool, s.n)}
	if err := s.plan(m); err != nil {
		s.drop(q, err.Error())
		return true
	}
	s.queue = s.queue[1:]
	a.moves++
	m.ID = a.moves
	s.move = m
	s.say("moving %s from %s to %s", ranksText(m.Ranks), m.From, m.To)
	s.prepareMove()
	return true
}

// knows reports whether a host is one of the run's.
func (s *Supervisor) knows(name string) bool { return slices.Contains(s.titles(), name) }

// titles are the hosts' names for people.
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

// plan settles which ranks go where.
func (s *Supervisor) plan(m *move) error {
	q, a := m.q, s.a
	ranks := q.ranks
	if q.host != "" {
		if !s.knows(q.host) {
			return fmt.Errorf("the run has no host %s; it has %s", q.host, strings.Join(s.titles(), ", "))
		}
		for i := range a.ranks {
			if a.ranks[i].Host == q.host {
				ranks = append(ranks, i)
			}
		}
		if len(ranks) == 0 {
			s.closeHost(q.host)
			return fmt.Errorf("no rank is on %s, and none will be placed there", q.host)
		}
	}
	m.Ranks = ranks
	var from []string
	for _, r := range ranks {
		x := &a.ranks[r]
		m.seats = append(m.seats, &seat{rank: r, from: x.on, place: x.place})
		if !slices.Contains(from, x.Host) {
			from = append(from, x.Host)
		}
	}
	m.From = strings.Join(from, ", ")
	if m.To = q.to; m.To != "" {
		return nil
	}
	var best *host
	free := func(h *host) int { return h.slots + h.lent - s.onHost(h) }
	for _, h := range s.hosts {
		if h.up && h.fixed == nil && !h.leaves && !slices.Contains(from, h.title()) && (best == nil || free(h) > free(best)) {
			best = h
		}
	}
	if best == nil || free(best) < len(ranks) {
		return fmt.Errorf("no other host of the run has room for %s; name a host with --to", ranksText(ranks))
	}
	m.To = best.title()
	return nil
}

// prepareMove sees to it that helpers are there for the newcomers.
func (s *Supervisor) prepareMove() {
	m := s.move
	if s.starter != nil {
		s.enter(control.MovePrepares, s.limits.arrive)
		s.sendErrands()
		return
	}
	i := slices.IndexFunc(s.hosts, func(h *host) bool { return h.name == m.To })
	if i < 0 {
		own, _ := os.Hostname()
		h := &host{s: s, name: m.To, local: m.To == "localhost" || m.To == "127.0.0.1" || m.To == own}
		s.hosts = append(s.hosts, h)
		m.added = append(m.added, h)
		i = len(s.hosts) - 1
	}
	h := s.hosts[i]
	h.extra = false
	for _, x := range m.seats {
		x.to = h
	}
	// A helper that waits for an earlier one to end has a limit of its own.
	s.enter(control.MovePrepares, s.o.Grace+leaveTime+2*joinTime)
	if !h.up && !h.joining {
		h.join()
	}
}

// resettle changes the hosts' slots so that a restart places ranks where they
// are now.
func (s *Supervisor) resettle(m *move) {
	if s.starter != nil {
		return // it places them
	}
	if m.q.host != "" {
		s.closeHost(m.q.host)
	}
	for _, x := range m.seats {
		if m.q.host == "" && x.from != x.to {
			if x.from.slots > 0 { // a restart is not to bring the rank back, but there is room for others
				x.from.slots--
				x.from.lent++
			}
			if x.to.lent > 0 {
				x.to.slots++
				x.to.lent--
			}
		}
		x.to.slots = max(x.to.slots, s.onHost(x.to))
		x.to.leaves = false
	}
	s.recordHosts()
}

// closeHost sees to it that no rank is placed on a host any more.
func (s *Supervisor) closeHost(name string) {
	for _, h := range s.hosts {
		if h.title() == name && h.fixed == nil {
			h.slots, h.lent = 0, 0
		}
	}
	s.recordHosts()
	s.letGoOfEmpty()
}

func (s *Supervisor) recordHosts() {
	s.rec.Hosts = nil
	for _, h := range s.hosts {
		if h.fixed == nil {
			s.rec.Hosts = append(s.rec.Hosts, fmt.Sprintf("%s:%d", h.name, h.slots))
		}
	}
}

// letGoOfEmpty ends the helpers of hosts that take no ranks any more and have
// none. Hosts that were only there for a move that was not made are forgotten.
func (s *Supervisor) letGoOfEmpty() {
	for _, h := range slices.Clone(s.hosts) {
		if h.slots+h.lent > 0 || h.busy || s.move != nil && slices.ContainsFunc(s.move.seats, func(x *seat) bool { return x.to == h }) {
			continue
		}
		switch {
		case h.up:
			h.letGo()
		case h.joining && h.extra && h.cmd != nil: // nobody waits for it any more
			syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL)
			h.hangUp()
		}
		if h.extra && !h.joining {
			s.hosts = slices.DeleteFunc(s.hosts, func(x *host) bool { return x == h })
		}
	}
}

// letGo lets a helper end that has no ranks.
func (h *host) letGo() {
	box, conn, ended := h.box, h.conn, h.ended
	h.up, h.served, h.box, h.conn = false, false, nil, nil
	box.send(&control.Message{Kind: control.Quit})
	box.finish()
	go func() {
		select {
		case <-box.done:
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
