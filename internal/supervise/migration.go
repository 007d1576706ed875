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
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// A move of ranks to another host, step by step (control/doc.go has the
// messages):
//
//	preparing   the helpers of the destinations start     ┐
//	starting    the destinations start                    │ after a failure all
//	precopy     sources send while the program computes   │ ranks continue: not moved
//	final copy  all ranks pause, sources send the rest    ┘
//	switching   it is decided: sources hand over          ┐ after a failure the
//	linking     destinations and others connect           ┘ attempt has failed
//	moved
//
// A source is the process of its rank until it has said HandedOver; then the
// destination is. There is one move at a time; others wait in
// Supervisor.moveQueue.

// migrations are the moves of a run.
type migrations struct {
	limits        moveLimits
	moveQueue     []*moveRequest              // moves that wait
	move          *move                       // the current move
	failedMoves   []*move                     // moves that failed together with their attempt
	lostMoves     []*control.MoveState        // moves that were not over when the earlier supervisor was lost
	moves         []*control.MoveState        // all moves that status shows
	unanswered    []*moveRequest              // requests to answer when the run has ended
	stopAfterMove string                      // why to stop when the move is over
	watches       map[string]*evacuationWatch // by the host's title
}

// moveLimits are the time limits of the phases of a move.
type moveLimits struct{ join, spawn, come, start, precopy, pause, send, handOver, link, again time.Duration }

var usualLimits = moveLimits{
	join:     joinTime,
	spawn:    joinTime / 2,
	come:     joinTime / 6,              // for a spawned helper to connect
	start:    control.DefaultStartLimit, // until destinations call Restore
	precopy:  6 * time.Hour,             // the first round may be long on a slow link
	pause:    6 * time.Hour,             // until every rank reaches a point
	send:     time.Hour,                 // the final copy; ranks notice a broken link themselves
	handOver: joinTime,
	link:     joinTime,
	again:    30 * time.Second, // until the next try, if no command waits
}

// causeTime is how long a failure that a process reports waits for the news
// that another process has ended: then that is the cause.
const causeTime = 200 * time.Millisecond

// move is the move in progress.
type move struct {
	*control.MoveState
	q       *moveRequest
	moving  []*movingRank
	added   []*host   // hosts that were added for this move
	pausing bool      // all ranks were told to pause
	doomed  bool      // a process reported a failure
	decided bool      // the destinations take over
	linked  []bool    // ranks that are linked
	own     ownStep   // with a directory per host: the journals of its ranks
	began   time.Time // when the phase began
	paused  time.Time // when all ranks were paused
	sent    time.Time // when all state was sent
	timer   *time.Timer
}

// movingRank is a rank that moves.
type movingRank struct {
	rank   int
	from   *host
	byMove uint64 // ByMove of the source
	goal   string // the host's name
	to     *host  // nil: its helper has not connected yet
	spawn  *spawn // not nil: the MPI library of the others starts its helper
	next   rank   // the destination

	source      sourceStep
	destination destinationStep
	endpoint    []byte
	addresses   []string
	said        string // the destination's reason why it cannot take over
	why         string // how the destination ended
	stats       *control.MoveStats
}

// sourceStep is how far the source of a moving rank is. It only grows.
type sourceStep int

const (
	computing sourceStep = iota
	precopied
	paused
	sent
	handedOver // the destination is the process of the rank
)

// destinationStep is how far the destination of a moving rank is. It only
// grows.
type destinationStep int

const (
	absent destinationStep = iota
	started
	listening
	received
)

// copied reports whether the destination has received all state.
func (x *movingRank) copied() bool { return x.source >= sent && x.destination == received }

// succession is a source that has handed over. When its output has been passed
// on, its host's helper passes on the output of the destination.
type succession struct {
	rank     int
	byMove   uint64
	from, to *host
	next     uint64 // the move that started the destination
}

// described returns the move in the form that ranks get.
func (m *move) described() control.Move {
	w := m.q.how.Move
	w.ID, w.Ranks = m.ID, m.Ranks
	return w
}

// all reports whether something holds for all ranks that move.
func (m *move) all(cond func(*movingRank) bool) bool {
	return !slices.ContainsFunc(m.moving, func(x *movingRank) bool { return !cond(x) })
}

// rank returns the moving rank of that number; nil if it does not move.
func (m *move) rank(rank int) *movingRank {
	for _, x := range m.moving {
		if x.rank == rank {
			return x
		}
	}
	return nil
}

// tellRank sends a message to a rank.
func (s *Supervisor) tellRank(rank int, m control.Message) {
	r := &s.a.ranks[rank]
	if r.on != nil && r.on.state == hostUp && r.State != "ended" {
		r.on.queue.Send(&control.ToRank{Process: control.Process{Rank: rank, ByMove: r.byMove}, Carried: control.Carried{Message: m}})
	}
}

// enter begins a phase with a time limit.
func (s *Supervisor) enter(state string, limit time.Duration) {
	m := s.move
	m.State, m.Time, m.began = state, time.Now(), time.Now()
	step.At("migrate." + state)
	s.limit(limit)
	m.q.note()
	s.changed()
}

// limit fails the move if the phase takes longer than d.
func (s *Supervisor) limit(d time.Duration) {
	m := s.move
	s.stopTimer(m)
	var t *time.Timer
	t = s.after(d, func() {
		if s.move == m && m.timer == t {
			s.moveFailed(fmt.Sprintf("%s within %s", m.lacks(), control.TimeText(d)))
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

// stepMoves advances the moves as far as possible. The supervisor calls it
// after every event.
func (s *Supervisor) stepMoves() {
	for s.stepMove() {
	}
}

func (s *Supervisor) stepMove() bool {
	for _, q := range s.moveQueue {
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
	if !m.decided {
		ended := func(r rank) bool { return r.done || r.State == "ended" }
		switch {
		case m.q.gone():
			return s.moveFailed("called off")
		case a.failure != nil || a.killed():
			return s.moveFailed("the run is being ended")
		case slices.ContainsFunc(a.ranks, ended):
			return s.moveFailed("the program is about to end")
		}
	}
	for _, x := range m.moving {
		switch {
		case x.source == handedOver || x.to == nil:
		case x.why != "":
			return s.moveFailed(x.why)
		case x.to.state == hostDown:
			return s.moveFailed(x.to.err.Error())
		}
	}
	switch m.State {
	case control.MovePreparing:
		if m.all(func(x *movingRank) bool { return x.to != nil && x.to.state == hostUp && !s.dirBusy(x.to) }) {
			s.startDestinations()
			return true
		}
	case control.MoveStarting:
		if m.all(func(x *movingRank) bool { return x.destination >= listening }) {
			m.SpawnNS = int64(time.Since(m.began))
			s.enter(control.MovePrecopy, s.limits.precopy)
			for _, x := range m.moving {
				s.tellRank(x.rank, &control.Precopy{Move: m.described(), Addresses: x.addresses,
					StartLimit: max(s.startLimit(m)-time.Duration(m.SpawnNS), time.Second)})
			}
			return true
		}
	case control.MovePrecopy:
		if m.all(func(x *movingRank) bool { return x.source >= precopied }) {
			m.PrecopyNS = int64(time.Since(m.began))
			s.enter(control.MoveFinalCopy, s.limits.pause)
			m.pausing = true
			fresh := make([][]byte, s.n)
			for _, x := range m.moving {
				fresh[x.rank] = x.endpoint
			}
			for r := range a.ranks {
				s.tellRank(r, &control.Pause{Move: m.described(), Endpoints: fresh})
			}
			return true
		}
	case control.MoveFinalCopy:
		return s.finalCopy()
	case control.MoveSwitching:
		if !m.all(func(x *movingRank) bool { return x.source == handedOver }) {
			return false
		}
		if s.local != nil && m.own != ownThere {
			return s.bringOwn(m)
		}
		s.link()
		return true
	case control.MoveLinking:
		if !slices.Contains(m.linked, false) {
			s.moved()
			return true
		}
	}
	return false
}

// startLimit returns how long destinations may take to call Restore.
func (s *Supervisor) startLimit(m *move) time.Duration {
	return cmp.Or(m.q.how.StartLimit, s.limits.start)
}

// startDestinations starts the destinations.
func (s *Supervisor) startDestinations() {
	m, a := s.move, s.a
	s.enter(control.MoveStarting, s.startLimit(m))
	for _, x := range m.moving {
		start := s.startOf(x.to, []int{x.rank})
		s.overridesOf(x.to).with(&m.q.how).apply(start)
		if x.spawn != nil {
			a.spawned = true
			start.ExtraEnv = append(exported(s.launcher.args, os.LookupEnv), start.ExtraEnv...)
		}
		start.KeepOutput = true
		described := m.described()
		start.Welcome.Move = &described
		x.destination = started
		x.next = rank{RankState: control.RankState{Rank: x.rank, Host: x.to.title(), State: rundir.Starting}, on: x.to, byMove: m.ID}
		x.to.queue.Send(&control.StartDestination{Start: *start})
	}
}

// finalCopy decides the move when all state is received.
func (s *Supervisor) finalCopy() bool {
	m := s.move
	if m.paused.IsZero() && m.all(func(x *movingRank) bool { return x.source >= paused }) {
		m.paused = time.Now()
		m.NegotiationNS = int64(m.paused.Sub(m.began))
		s.limit(s.limits.send)
		m.q.note()
		s.changed()
	}
	if m.sent.IsZero() && m.all(func(x *movingRank) bool { return x.source >= sent }) {
		m.sent = time.Now()
		m.TransferNS = int64(m.sent.Sub(m.paused))
		s.limit(s.limits.handOver) // the destinations have all of the state
	}
	if m.doomed || !m.all((*movingRank).copied) {
		return false
	}
	m.decided = true
	s.enter(control.MoveSwitching, s.limits.handOver)
	for _, x := range m.moving {
		s.tellRank(x.rank, &control.Switch{Move: m.described(), OK: true})
	}
	return true
}

// handedOver makes the destination the process of its rank.
func (s *Supervisor) handedOver(x *movingRank) {
	a := s.a
	x.source = handedOver
	a.successions = append(a.successions, succession{x.rank, x.byMove, x.from, x.to, s.move.ID})
	a.spawning = slices.DeleteFunc(a.spawning, func(by *spawn) bool { return by.rank == x.rank }) // what it spawned has connected
	r := &a.ranks[x.rank]
	r.on, r.byMove, r.ready = x.to, s.move.ID, true
	r.Host, r.Pid = x.next.Host, x.next.Pid
	if x.next.State == "ended" || x.to.state != hostUp {
		r.State, r.bad = "ended", true
		a.alive--
	}
}

// link tells destinations and others to connect.
func (s *Supervisor) link() {
	m, a := s.move, s.a
	s.enter(control.MoveLinking, s.limits.link)
	fresh := make([][]byte, s.n)
	if a.endpoints == nil {
		a.endpoints = make([][]byte, s.n)
	}
	a.endpoints = slices.Clone(a.endpoints)
	for _, x := range m.moving {
		fresh[x.rank], a.endpoints[x.rank] = x.endpoint, x.endpoint
	}
	for r := range a.ranks {
		endpoints := fresh
		if m.rank(r) != nil {
			endpoints = a.endpoints
		}
		s.tellRank(r, &control.Switch{Move: m.described(), OK: true, Endpoints: endpoints, Epoch: a.epoch})
	}
}

// saidOfMove handles a rank's message about the current move.
func (s *Supervisor) saidOfMove(r *rank, said control.Message) {
	m := s.move
	if m == nil {
		return
	}
	x := m.rank(r.Rank)
	during := func(id uint64, state string) bool { return id == m.ID && m.State == state }
	switch said := said.(type) {
	case *control.MoveFailed:
		if said.Move == m.ID {
			s.moveFailedSoon(fmt.Sprintf("rank %d on %s: %s", r.Rank, r.Host, plain(r.Rank, said.Error)))
		}
	case *control.Linked:
		if during(said.Move, control.MoveLinking) {
			m.linked[r.Rank] = true
		}
	case *control.Precopied:
		if x != nil && during(said.Move, control.MovePrecopy) {
			x.source = max(x.source, precopied)
		}
	case *control.Paused:
		if x != nil && during(said.Move, control.MoveFinalCopy) {
			x.source = max(x.source, paused)
		}
	case *control.Sent:
		if x != nil && during(said.Move, control.MoveFinalCopy) {
			x.source, x.stats = max(x.source, sent), said.Stats
		}
	case *control.HandedOver:
		if x != nil && during(said.Move, control.MoveSwitching) {
			s.handedOver(x)
		}
	}
}

// fromOther handles a message from a process that is not a rank's current one:
// a destination before it takes over, or a source after it has handed over.
func (s *Supervisor) fromOther(h *host, from *control.FromRank) {
	switch said := from.Carried.Message.(type) {
	case *control.Exited:
		s.sourceEnded(h, from.Process, said)
	case *control.Spawned:
		s.spawned(from.Rank, said)
	}
	m := s.move
	if m == nil || from.ByMove != m.ID {
		return
	}
	x := m.rank(from.Rank)
	if x == nil || x.to != h || x.source == handedOver {
		return
	}
	switch said := from.Carried.Message.(type) {
	case *control.Running:
		x.next.Pid, x.next.State = said.Pid, rundir.Running
	case *control.Listening:
		x.destination, x.endpoint, x.addresses = max(x.destination, listening), said.Endpoint, said.Addresses
	case *control.Received:
		x.destination = received
	case *control.MoveFailed:
		x.said = fmt.Sprintf("the new process of rank %d on %s: %s", x.rank, h.title(), plain(x.rank, said.Error))
		s.moveFailedSoon(x.said)
	case *control.Exited:
		x.next.State = "ended"
		if x.said != "" && !m.decided { // so its end is expected
			return
		}
		how := fmt.Sprintf("ended with status %d", said.Code)
		switch {
		case said.Error != "":
			how = "could not be started: " + said.Error
		case said.Signal != 0:
			how = fmt.Sprintf("was killed by signal %d (%s)", said.Signal, signalName(said.Signal))
		}
		if said.Stderr != "" {
			how += fmt.Sprintf(" (it said: %s)", said.Stderr)
		}
		x.why = fmt.Sprintf("the new process of rank %d on %s %s", x.rank, h.title(), how)
	}
}

// plain returns a rank's error text in one line and without its number.
func plain(rank int, text string) string {
	return strings.ReplaceAll(strings.TrimPrefix(text, fmt.Sprintf("rank %d: ", rank)), "\n", "; ")
}

// sourceEnded makes a helper pass on the output of a destination, if this was
// the end of its source.
func (s *Supervisor) sourceEnded(h *host, source control.Process, said *control.Exited) {
	s.a.successions = slices.DeleteFunc(s.a.successions, func(p succession) bool {
		if p.rank != source.Rank || p.byMove != source.ByMove || p.from != h {
			return false
		}
		at := s.sink.Offsets(p.rank)
		if len(said.Offsets) == 2 {
			at = [2]int64(said.Offsets)
		}
		p.follow(at)
		return true
	})
}

func (p succession) follow(offsets [2]int64) {
	if p.to.state == hostUp {
		p.to.queue.Send(&control.FollowOutput{Process: control.Process{Rank: p.rank, ByMove: p.next}, Offsets: offsets})
	}
}

// hostOfSourceLost does what sourceEnded does, for all sources on a lost host.
func (s *Supervisor) hostOfSourceLost(h *host) {
	s.a.successions = slices.DeleteFunc(s.a.successions, func(p succession) bool {
		if p.from == h {
			p.follow(s.sink.Offsets(p.rank))
		}
		return p.from == h || p.to == h
	})
}

// moveFailed ends the move without success. Before the decision, all ranks
// continue as before; after it, a rank is lost. It returns true.
func (s *Supervisor) moveFailed(why string) bool {
	m := s.move
	if m.decided {
		rank := m.moving[0].rank
		s.fail(rank, &failure{why: fmt.Sprintf("the move of %s to %s was decided and failed: %s", control.RanksText(m.Ranks), m.To, why), status: 1})
		if s.move == m { // otherwise the attempt had failed already
			s.moveRestarts(m, why)
		}
		return true
	}
	for r := range s.a.ranks {
		if m.pausing || m.rank(r) != nil && m.State == control.MovePrecopy {
			s.tellRank(r, &control.Switch{Move: m.described()})
		}
	}
	for _, x := range m.moving {
		if x.destination != absent && x.next.State != "ended" && x.to.state == hostUp {
			x.to.queue.Send(&control.KillDestination{Process: control.Process{Rank: x.rank, ByMove: m.ID}})
		}
	}
	s.endMove(m, control.NotMoved, why)
	return true
}

// moveFailedSoon calls moveFailed for a failure that a process reports, unless
// the end of another process turns out to be the cause.
func (s *Supervisor) moveFailedSoon(why string) {
	m := s.move
	if m.decided {
		s.moveFailed(why)
		return
	}
	m.doomed = true
	s.after(causeTime, func() {
		if s.move == m {
			s.moveFailed(why)
		}
	})
}

// moveRestarts records that the attempt has failed during a move.
func (s *Supervisor) moveRestarts(m *move, why string) {
	if s.launcher != nil && slices.ContainsFunc(m.moving, func(x *movingRank) bool { return x.spawn != nil }) {
		s.launcher.apart = true // joining may be the cause
	}
	m.State, m.Why, m.Time = control.MoveRestarting, why, time.Now()
	s.move = nil
	s.stopTimer(m)
	s.failedMoves = append(s.failedMoves, m)
	m.q.note()
	s.afterMove(m)
}

// movesRolledBack reports, when the run continues, the moves that failed with
// their attempt, or with the supervisor before this one.
func (s *Supervisor) movesRolledBack(from string) {
	back := func(m *control.MoveState) {
		m.State, m.Why, m.Time = control.MoveRolledBack, m.Why+"; the run resumes from "+from, time.Now()
	}
	for _, m := range s.lostMoves {
		back(m)
	}
	for _, m := range s.failedMoves {
		back(m.MoveState)
	}
	s.save()
	for _, m := range s.lostMoves {
		s.reportMove(m)
	}
	for _, m := range s.failedMoves {
		s.reportMove(m.MoveState)
		m.q.answer()
		s.again(m.q)
	}
	s.failedMoves, s.lostMoves = nil, nil
}

// moved ends the move.
func (s *Supervisor) moved() {
	step.At("migrate.done")
	m, a := s.move, s.a
	now := time.Now()
	m.RestartNS, m.PauseNS = int64(now.Sub(m.sent)), int64(now.Sub(m.paused))
	a.moved = now
	for _, x := range m.moving {
		m.Stats = addStats(m.Stats, x.stats)
		if x.rank == 0 { // requests to its source may be lost
			for _, w := range s.requests {
				w.asked = w.asked && !w.isCheckpoint()
			}
		}
	}
	s.resettle(m)
	for _, x := range m.moving {
		s.overrides[x.to.title()] = s.overridesOf(x.to).with(&m.q.how)
	}
	s.endMove(m, control.Moved, "")
}

// endMove ends a move and records its result.
func (s *Supervisor) endMove(m *move, state, why string) {
	m.State, m.Why, m.Time = state, why, time.Now()
	s.move = nil
	s.stopTimer(m)
	if w := s.watches[m.q.host]; w != nil && state == control.Moved {
		*w = evacuationWatch{}
	}
	s.save()
	s.reportMove(m.MoveState)
	m.q.answer()
	s.afterMove(m)
	if a := s.a; state == control.NotMoved && a != nil && a.failure == nil && a.alive > 0 && !a.killed() && !s.stopping {
		s.again(m.q)
	}
}

// afterMove does what was deferred until the end of a move.
func (s *Supervisor) afterMove(m *move) {
	s.tidyHosts()
	for _, h := range m.added {
		if h.slots == 0 {
			h.extra = true
		}
	}
	s.releaseEmptyHosts()
	if s.launcher != nil {
		s.launcher.cancel(m)
	}
	s.askWaiting()
	if why := s.stopAfterMove; why != "" {
		s.stopAfterMove = ""
		s.stop(why)
	}
}
