//go:build linux

package supervise

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/step"
)

// A move of ranks to another host, step by step (control/doc.go has the
// messages):
//
//	preparing   the target's helper is started        ┐
//	arriving    newcomers come                        │ whatever fails: not
//	ahead       sources send while the program runs   │ moved, all goes on
//	gathering   all are held, the rest is sent        ┘
//	leaving     decided: sources go                   ┐ whatever fails: the
//	linking     newcomers and others connect          ┘ attempt has failed
//	moved
//
// Sources are the ranks' processes until they have said Left, and newcomers
// from then on. One move is made at a time; others wait in Supervisor.queue.

// moveLimits are how long the phases of a move may take.
type moveLimits struct{ join, spawn, come, arrive, ahead, hold, send, leave, link, again time.Duration }

var usualLimits = moveLimits{
	join:   joinTime,
	spawn:  joinTime / 2,
	come:   joinTime / 6,      // a helper that was spawned
	arrive: DefaultStartLimit, // up to Restore
	ahead:  6 * time.Hour,     // a state's first round, over a slow link
	hold:   6 * time.Hour,     // until every rank comes to a point
	send:   time.Hour,         // the rest; a link that stands still is noticed by the ranks
	leave:  joinTime,
	link:   joinTime,
	again:  30 * time.Second, // after a failure, if nobody waits who could ask again
}

// causeTime is how long what a process says of its failure waits for news of
// another that has ended: then that is the cause.
const causeTime = 200 * time.Millisecond

// move is the one under way.
type move struct {
	*control.MoveState
	q      *request
	seats  []*seat
	added  []*host   // for it
	told   bool      // all ranks were told to gather
	doomed bool      // it can't be
	set    bool      // decided
	linked []bool    // by rank
	began  time.Time // the phase
	held   time.Time // all were
	sent   time.Time // all was
	timer  *time.Timer
}

// seat is a rank that moves.
type seat struct {
	rank  int
	from  *host
	place uint64 // of the source
	goal  string // the host's name
	to    *host  // nil: its helper is not there yet
	spawn *spawn // its helper is started by the MPI library of the others
	next  rank   // the newcomer

	started                              bool
	here, near, held, sent, landed, left bool
	card                                 []byte
	addresses                            []string
	said                                 string // why the newcomer can't
	why                                  string // the newcomer has ended
	stats                                *control.MoveStats
}

// parting is a source that has left. When its output has been passed on, that
// of its successor is.
type parting struct {
	rank     int
	place    uint64
	from, to *host
	next     uint64 // place of the successor
}

func (m *move) word(full bool) *control.Move {
	w := &control.Move{ID: m.ID, Ranks: m.Ranks}
	if full {
		w.Chunk, w.Rounds, w.Files, w.Sequential = m.q.how.Chunk, m.q.how.Rounds, m.q.how.Files, m.q.how.Sequential
	}
	return w
}

// all reports whether something holds for all ranks that move.
func (m *move) all(cond func(*seat) bool) bool {
	return !slices.ContainsFunc(m.seats, func(x *seat) bool { return !cond(x) })
}

// seat returns a rank's, nil if it does not move.
func (m *move) seat(rank int) *seat {
	for _, x := range m.seats {
		if x.rank == rank {
			return x
		}
	}
	return nil
}

// tellRank says something to a rank.
func (s *Supervisor) tellRank(rank int, m *control.Message) {
	r := &s.a.ranks[rank]
	if r.on != nil && r.on.up && r.State != "ended" {
		m.Rank, m.Place = rank, r.place
		r.on.box.send(m)
	}
}

// enter begins a phase, which may take so long.
func (s *Supervisor) enter(state string, limit time.Duration) {
	m := s.move
	m.State, m.Time, m.began = state, time.Now(), time.Now()
	step.At("migrate." + state)
	s.limit(limit)
	m.q.note()
	s.changed()
}

// limit fails the move if the phase is not over by then.
func (s *Supervisor) limit(d time.Duration) {
	m := s.move
	s.stopTimer(m)
	var t *time.Timer
	t = s.after(d, func() {
		if s.move == m && m.timer == t {
			s.unmoved(fmt.Sprintf("%s within %s", m.lacks(), timeText(d)))
		}
	})
	m.timer = t
}

// stopTimer ends the limit of the phase.
func (s *Supervisor) stopTimer(m *move) {
	if m.timer != nil {
		s.forget(m.timer)
	}
}

// stepMoves does what can be done now. It is called after every event.
func (s *Supervisor) stepMoves() {
	for s.stepMove() {
	}
}

func (s *Supervisor) stepMove() bool {
	for _, q := range s.queue {
		if q.gone() {
			s.drop(q, "called off")
			return true
		}
	}
	m := s.move
	if m == nil {
		return s.nextMove()
	}
	a := s.a
	if !m.set {
		ended := func(r rank) bool { return r.done || r.State == "ended" }
		switch {
		case m.q.gone():
			return s.unmoved("called off")
		case a.failure != nil || a.killed:
			return s.unmoved("the run is being ended")
		case slices.ContainsFunc(a.ranks, ended):
			return s.unmoved("the program is about to end")
		}
	}
	for _, x := range m.seats {
		switch {
		case x.left || x.to == nil:
		case x.why != "":
			return s.unmoved(x.why)
		case !x.to.up && !x.to.joining:
			return s.unmoved(x.to.err.Error())
		}
	}
	switch m.State {
	case control.MovePrepares:
		if m.all(func(x *seat) bool { return x.to != nil && x.to.up }) {
			s.arrive()
			return true
		}
	case control.MoveArrives:
		if m.all(func(x *seat) bool { return x.here }) {
			m.SpawnNS = int64(time.Since(m.began))
			s.enter(control.MoveAhead, s.limits.ahead)
			for _, x := range m.seats {
				w := m.word(true)
				w.Addresses = x.addresses
				w.StartLimit = max(s.startLimit(m)-time.Duration(m.SpawnNS), time.Second)
				s.tellRank(x.rank, &control.Message{Kind: control.Ahead, Move: w})
			}
			return true
		}
	case control.MoveAhead:
		if m.all(func(x *seat) bool { return x.near }) {
			m.AheadNS = int64(time.Since(m.began))
			s.enter(control.MoveGathers, s.limits.hold)
			m.told = true
			fresh := make([][]byte, s.n)
			for _, x := range m.seats {
				fresh[x.rank] = x.card
			}
			for r := range a.ranks {
				s.tellRank(r, &control.Message{Kind: control.Gather, Move: m.word(false), Cards: fresh})
			}
			return true
		}
	case control.MoveGathers:
		return s.gathered()
	case control.MoveLeaves:
		if m.all(func(x *seat) bool { return x.left }) {
			s.link()
			return true
		}
	case control.MoveLinks:
		if !slices.Contains(m.linked, false) {
			s.moved()
			return true
		}
	}
	return false
}

// startLimit is how long newcomers may take to come to Restore.
func (s *Supervisor) startLimit(m *move) time.Duration {
	return cmp.Or(m.q.how.StartLimit, s.limits.arrive)
}

// arrive starts the newcomers.
func (s *Supervisor) arrive() {
	m, a := s.move, s.a
	s.enter(control.MoveArrives, s.startLimit(m))
	for _, x := range m.seats {
		start := s.startOf(x.to, []int{x.rank})
		s.customs(x.to).with(&m.q.how).apply(start)
		if x.spawn != nil {
			a.spawned = true
			start.Set = append(exported(s.starter.args, os.LookupEnv), start.Set...)
		}
		start.Keep = true
		start.Welcome.Move = m.word(true)
		start.Welcome.Meetings = a.meetings
		x.started = true
		x.next = rank{RankState: control.RankState{Rank: x.rank, Host: x.to.title(), State: Starting}, on: x.to, place: m.ID}
		x.to.box.send(&control.Message{Kind: control.Arrive, Start: start})
	}
}

// gathered looks whether all is sent; then the move is decided.
func (s *Supervisor) gathered() bool {
	m := s.move
	if m.held.IsZero() && m.all(func(x *seat) bool { return x.held || x.sent }) {
		m.held = time.Now()
		m.NegotiationNS = int64(m.held.Sub(m.began))
		s.limit(s.limits.send)
		m.q.note()
		s.changed()
	}
	if m.sent.IsZero() && m.all(func(x *seat) bool { return x.sent }) {
		m.sent = time.Now()
		m.TransferNS = int64(m.sent.Sub(m.held))
		s.limit(s.limits.leave) // it has it all
	}
	if m.doomed || !m.all(func(x *seat) bool { return x.sent && x.landed }) {
		return false
	}
	m.set = true
	s.enter(control.MoveLeaves, s.limits.leave)
	for _, x := range m.seats {
		s.tellRank(x.rank, &control.Message{Kind: control.Switch, OK: true, Move: m.word(false)})
	}
	return true
}

// hasLeft puts the newcomer in the place of the source.
func (s *Supervisor) hasLeft(x *seat) {
	a := s.a
	x.left = true
	a.parting = append(a.parting, parting{x.rank, x.place, x.from, x.to, s.move.ID})
	a.spawning = slices.DeleteFunc(a.spawning, func(by *spawn) bool { return by.rank == x.rank }) // what it started has come
	r := &a.ranks[x.rank]
	r.on, r.place, r.ready = x.to, s.move.ID, true
	r.Host, r.Pid = x.next.Host, x.next.Pid
	if x.next.State == "ended" || !x.to.up {
		r.State, r.bad = "ended", true
		a.left--
	}
}

// link lets newcomers and others connect.
func (s *Supervisor) link() {
	m, a := s.move, s.a
	s.enter(control.MoveLinks, s.limits.link)
	fresh := make([][]byte, s.n)
	if a.card == nil {
		a.card = make([][]byte, s.n)
	}
	a.card = slices.Clone(a.card)
	for _, x := range m.seats {
		fresh[x.rank], a.card[x.rank] = x.card, x.card
	}
	for r := range a.ranks {
		cards := fresh
		if m.seat(r) != nil {
			cards = a.card
		}
		s.tellRank(r, &control.Message{Kind: control.Switch, OK: true, Cards: cards, Epoch: a.meetings, Move: m.word(false)})
	}
}

// saidOfMove takes in what a rank says of the move under way.
func (s *Supervisor) saidOfMove(r *rank, said *control.Message) {
	m := s.move
	if m == nil || said.Move == nil || said.Move.ID != m.ID {
		return
	}
	x := m.seat(r.Rank)
	switch said.Kind {
	case control.Unmoved:
		why := fmt.Sprintf("rank %d on %s: %s", r.Rank, r.Host, plain(said))
		s.unmovedSoon(why)
	case control.Linked:
		if m.State == control.MoveLinks {
			m.linked[r.Rank] = true
		}
	case control.Near:
		if x != nil && m.State == control.MoveAhead {
			x.near = true
		}
	case control.Held:
		if x != nil && m.State == control.MoveGathers {
			x.held = true
		}
	case control.Sent:
		if x != nil && m.State == control.MoveGathers {
			x.sent, x.stats = true, said.Move.Stats
		}
	case control.Left:
		if x != nil && m.State == control.MoveLeaves {
			s.hasLeft(x)
		}
	}
}

// fromOther takes in what comes from a process that is not one of the ranks:
// a newcomer, or one that has left.
func (s *Supervisor) fromOther(h *host, said *control.Message) {
	switch said.Kind {
	case control.Exited:
		s.parted(h, said)
	case control.Spawned:
		s.spawned(said)
	}
	m := s.move
	if m == nil || said.Place != m.ID {
		return
	}
	x := m.seat(said.Rank)
	if x == nil || x.to != h || x.left {
		return
	}
	switch said.Kind {
	case control.Running:
		x.next.Pid, x.next.State = said.Pid, Running
	case control.Here:
		x.here, x.card = true, said.Data
		if said.Move != nil {
			x.addresses = said.Move.Addresses
		}
	case control.Landed:
		x.landed = true
	case control.Unmoved:
		x.said = fmt.Sprintf("the new process of rank %d on %s: %s", x.rank, h.title(), plain(said))
		s.unmovedSoon(x.said)
	case control.Exited:
		x.next.State = "ended"
		if x.said != "" && !m.set { // so it was to be expected
			return
		}
		how := fmt.Sprintf("ended with status %d", said.Code)
		switch {
		case said.Error != "":
			how = "could not be started: " + said.Error
		case said.Signal != 0:
			how = fmt.Sprintf("was killed by signal %d (%s)", said.Signal, signalName(said.Signal))
		}
		if said.Why != "" {
			how += fmt.Sprintf(" (it said: %s)", said.Why)
		}
		x.why = fmt.Sprintf("the new process of rank %d on %s %s", x.rank, h.title(), how)
	}
}

// plain is what a rank says of a failure, in one line and without its own number.
func plain(said *control.Message) string {
	return strings.ReplaceAll(strings.TrimPrefix(said.Error, fmt.Sprintf("rank %d: ", said.Rank)), "\n", "; ")
}

// parted lets the output of a newcomer be passed on, if this was the end of
// its predecessor.
func (s *Supervisor) parted(h *host, said *control.Message) {
	s.a.parting = slices.DeleteFunc(s.a.parting, func(p parting) bool {
		if p.rank != said.Rank || p.place != said.Place || p.from != h {
			return false
		}
		ends := said.Ends
		if len(ends) != 2 {
			at := s.sink.position(p.rank)
			ends = at[:]
		}
		p.follow(ends)
		return true
	})
}

func (p parting) follow(ends []int64) {
	if p.to.up {
		p.to.box.send(&control.Message{Kind: control.Follow, Rank: p.rank, Place: p.next, Ends: ends})
	}
}

// partedWith is parted for all that were on a host that is lost.
func (s *Supervisor) partedWith(h *host) {
	s.a.parting = slices.DeleteFunc(s.a.parting, func(p parting) bool {
		if p.from == h {
			at := s.sink.position(p.rank)
			p.follow(at[:])
		}
		return p.from == h || p.to == h
	})
}

// unmoved ends the move without success: before it is decided all goes on as
// it was, and after that a rank is lost. It returns true.
func (s *Supervisor) unmoved(why string) bool {
	m := s.move
	if m.set {
		rank := m.seats[0].rank
		s.fail(rank, &failure{why: fmt.Sprintf("the move of %s to %s was decided and failed: %s", ranksText(m.Ranks), m.To, why), status: 1})
		if s.move == m { // the attempt had failed already
			s.returns(m, why)
		}
		return true
	}
	for r := range s.a.ranks {
		if m.told || m.seat(r) != nil && m.State == control.MoveAhead {
			s.tellRank(r, &control.Message{Kind: control.Switch, Move: m.word(false)})
		}
	}
	for _, x := range m.seats {
		if x.started && x.next.State != "ended" && x.to.up {
			x.to.box.send(&control.Message{Kind: control.Kill, Rank: x.rank, Place: m.ID})
		}
	}
	s.endMove(m, control.NotMoved, why)
	return true
}

// unmovedSoon is unmoved for something that a process says, which may be the
// consequence of the end of another.
func (s *Supervisor) unmovedSoon(why string) {
	m := s.move
	if m.set {
		s.unmoved(why)
		return
	}
	m.doomed = true
	s.after(causeTime, func() {
		if s.move == m {
			s.unmoved(why)
		}
	})
}

// returns notes that the attempt has failed while a move was under way.
func (s *Supervisor) returns(m *move, why string) {
	if s.starter != nil && slices.ContainsFunc(m.seats, func(x *seat) bool { return x.spawn != nil }) {
		s.starter.apart = true // that may be why
	}
	m.State, m.Why, m.Time = control.MoveReturns, why, time.Now()
	s.move = nil
	s.stopTimer(m)
	s.back = append(s.back, m)
	m.q.note()
	s.afterMove(m)
}

// broughtBack tells of the moves that failed with their attempt, or with the
// supervisor before this one, when the run goes on.
func (s *Supervisor) broughtBack(from string) {
	back := func(m *control.MoveState) {
		m.State, m.Why, m.Time = control.MoveBack, m.Why+"; the run goes on from "+from, time.Now()
	}
	for _, m := range s.lost {
		back(m)
	}
	for _, m := range s.back {
		back(m.MoveState)
	}
	s.save()
	for _, m := range s.lost {
		s.say("%s", MoveText(m))
	}
	for _, m := range s.back {
		s.say("%s", MoveText(m.MoveState))
		m.q.answer()
		s.again(m.q)
	}
	s.back, s.lost = nil, nil
}

// moved ends the move.
func (s *Supervisor) moved() {
	step.At("migrate.done")
	m, a := s.move, s.a
	now := time.Now()
	m.RestartNS, m.PauseNS = int64(now.Sub(m.sent)), int64(now.Sub(m.held))
	a.moved = now
	for _, x := range m.seats {
		m.Stats = addStats(m.Stats, x.stats)
		if x.rank == 0 { // what its source was asked for may be lost with it
			for _, w := range s.waiters {
				w.asked = w.asked && w.kind != control.Checkpoint
			}
		}
	}
	s.resettle(m)
	for _, x := range m.seats {
		s.hosted[x.to.title()] = s.customs(x.to).with(&m.q.how)
	}
	s.endMove(m, control.Moved, "")
}

// endMove is the end of a move.
func (s *Supervisor) endMove(m *move, state, why string) {
	m.State, m.Why, m.Time = state, why, time.Now()
	s.move = nil
	s.stopTimer(m)
	if w := s.watches[m.q.host]; w != nil && state == control.Moved {
		*w = leaveWatch{}
	}
	s.save()
	s.say("%s", MoveText(m.MoveState))
	m.q.answer()
	s.afterMove(m)
	if a := s.a; state == control.NotMoved && a != nil && a.failure == nil && a.left > 0 && !a.killed && !s.stopping {
		s.again(m.q)
	}
}

// afterMove does what waited for the end of a move.
func (s *Supervisor) afterMove(m *move) {
	for _, h := range m.added {
		if h.slots == 0 {
			h.extra = true
		}
	}
	s.letGoOfEmpty()
	if s.starter != nil {
		s.starter.recall(m)
	}
	s.askWaiting()
	if why := s.stopLater; why != "" {
		s.stopLater = ""
		s.stop(why)
	}
}
