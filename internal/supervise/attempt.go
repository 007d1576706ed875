//go:build linux

package supervise

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// attempt is one start of all ranks.
type attempt struct {
	launch           string
	ranks            []rank
	alive            int  // ranks that have not ended
	drained          bool // all ranks have ended, with their writers and outputs
	over             bool // the run had finished before, and its end was brought here
	phase            phase
	kept             bool // ranks resume, so output files keep their content
	failure          *failure
	started          time.Time
	base             time.Duration // computing time of the state that it resumed from
	since            time.Time     // when it resumed
	at               time.Duration // computing time of its newest checkpoint, or base
	failed           time.Time
	stopped          bool   // a rank stopped on request
	unsaved          string // why the rank could not save before that
	newCheckpoint    bool
	unreportedCommit bool   // it committed a checkpoint, but no rank reported the commit
	fresh            bool   // the ranks started from the beginning
	outside          bool   // a rank or a host was lost, and the program did not cause it
	unfit            string // why the program refuses to resume from its checkpoint
	damaged          string // a rank's file could not be loaded: another copy or an older checkpoint is tried
	status           int    // the largest exit status of ranks that finished
	restored         *uint64
	asked            bool // rank 0 was told to stop
	exchanges        map[uint64]*exchange
	endpoints        [][]byte // endpoints of the last complete exchange
	epoch            uint64   // number of that exchange
	secret           []byte
	moves            uint64 // number of moves that were begun
	successions      []succession
	total            uint64    // sum of the points and messages of all ranks
	moved            time.Time // time when a rank last made progress
	timers           map[*time.Timer]bool
	spawning         []*spawn // spawns without a rank's answer
	refused          bool     // mpirun refused a spawn; another spawn might make mpirun end
	spawned          bool     // ranks run under helpers that mpirun spawned
}

// rank is a rank, and the process that it runs in.
type rank struct {
	control.RankState
	on     *host
	byMove uint64 // the move that started its process; 0: none
	ready  bool   // it has restored, or reached a point

	loopFrom int64     // iterations that its loop had made at the first report of it
	loopAt   time.Time // time of that report
	freshAt  time.Time // when its program began; zero: it was restored, or has told of a loop

	pointAt     time.Time // time when its last point was seen
	toldNoPoint bool      // the user was told that it reaches no point
	blocked     string    // why it cannot take a checkpoint, as it says
	done        bool      // it said Finished or Stopped
	bad         bool      // it failed
}

// failure is why an attempt failed.
type failure struct {
	why              string
	status           int
	fatal            bool // another attempt is of no use
	own              bool // the program caused it
	greeted          bool // the program had said Hello
	beforeFirstPoint bool // a rank ended with a status before its first point
}

// exchange collects the ranks' endpoints.
type exchange struct {
	endpoints [][]byte
	have      int
}

func newAttempt() *attempt {
	return &attempt{launch: randomName(), exchanges: make(map[uint64]*exchange), moved: time.Now(), timers: make(map[*time.Timer]bool)}
}

// attempt starts all ranks. It returns when all have ended, with their writers
// and outputs.
func (s *Supervisor) attempt(ctx context.Context) *attempt {
	s.rec.Attempt++
	a := newAttempt()
	s.a = a
	s.pending = make(map[uint64]*partialCheckpoint)
	s.startDelayed()
	s.happens(startEvent)
	clear(s.pending) // parts of a checkpoint that was never committed
	if s.rec.Why = ""; !s.stopping {
		s.why = ""
	}
	defer func() {
		s.reportCheckpoint()
		if s.move != nil {
			s.endMove(s.move, control.NotMoved, "the ranks have ended")
		}
		for t := range a.timers {
			t.Stop()
		}
		for _, w := range s.requests {
			if w.isCheckpoint() && !w.done {
				w.reply(&control.Answer{Error: "the ranks ended before the checkpoint was committed"})
			}
		}
	}()
	gathered := s.gatherHelpers(ctx)
	if gathered && s.finished() {
		s.bringEnd(ctx)
		return a
	}
	if !gathered || s.local != nil && !s.prepareLocal(ctx) {
		if s.launcher != nil {
			s.dismiss()
		}
		return a
	}
	s.showEarlier(ctx)
	s.begin()
	// Helpers report Drained when ranks, writers and outputs are done.
	s.until(ctx, func() bool {
		return a.alive == 0 && !slices.ContainsFunc(s.hosts, func(h *host) bool { return h.state == hostUp && h.busy })
	}, nil)
	a.drained = true
	if a.failure != nil {
		s.sayUninstrumented(true)
	}
	if s.local != nil {
		s.endTiers(ctx)
		s.endLocal(ctx)
	}
	if s.launcher != nil {
		if a.spawned && a.outside { // spawning may be the cause
			s.launcher.apart = true
		}
		if s.local == nil || !a.whole() { // else they discard what is on their hosts
			s.dismiss()
		}
	}
	return a
}

// begin places the ranks and starts them.
func (s *Supervisor) begin() {
	a := s.a
	up, assigned := s.assign()
	if s.local != nil {
		a.kept = s.local.restores > 0
	} else {
		a.kept = s.hasCheckpoints() || s.last != nil
		s.forgetRemoved()
		s.endQuarantine()
	}
	s.sink.Hasten(s.stopping || s.killed)
	a.reaches(launched)
	s.began, a.started = true, time.Now()
	step.At("start.launched")
	a.since = a.started
	s.rec.State = rundir.Running
	s.save()
	step.At("start.begin")
	a.secret = randomBytes(32)
	a.ranks = make([]rank, s.n)
	for _, h := range s.hosts {
		h.starts = 0
	}
	for i, h := range up {
		for _, r := range assigned[i] {
			a.ranks[r] = rank{RankState: control.RankState{Rank: r, Host: h.title(), State: rundir.Starting}, on: h}
		}
		a.alive += len(assigned[i])
	}
	s.changed() // before the first line of output comes
	for i, h := range up {
		if len(assigned[i]) > 0 {
			h.queue.Send(&control.Launch{Start: *s.startOf(h, assigned[i])})
		}
	}
	if s.local != nil {
		s.beginTiers()
	}
	s.happens(beginEvent)
	what := "started"
	if s.rec.Attempt > 1 {
		what = "started again"
		if !a.kept {
			what = "started again from the beginning"
		}
	}
	lost := time.Duration(0)
	if !a.kept {
		lost = s.lost(0)
	}
	s.report(events.Event{Kind: events.Start, Ranks: s.n, Hosts: a.hostNames(), LostNS: int64(lost)}, "%s: %s", what, s.where())
	s.sayUninstrumented(false)
	if s.o.Stall > 0 {
		s.watchStall(a)
	}
	if s.stopping {
		s.askStop()
	}
}

// startOf returns the order to a host's helper to start ranks.
func (s *Supervisor) startOf(h *host, ranks []int) *control.Start {
	a := s.a
	h.starts++
	h.busy, h.served = true, true
	m := &control.Start{Launch: a.launch, Number: h.starts, Ranks: ranks, Command: s.o.Command, Dir: s.cwd, Output: s.o.RankOutput, Input: s.o.Input, KeepOutput: a.kept, Grace: s.o.Grace,
		Welcome: control.Welcome{Size: s.n, Host: h.shared, Launch: a.launch, Attempt: s.rec.Attempt, Secret: a.secret, Transports: s.o.Transports, Dir: s.o.Dir,
			Settings: s.librarySettings(), Avoid: s.rec.Quarantined, Output: true}}
	if s.last != nil {
		m.Welcome.Expect = s.last.Index
	}
	if s.local != nil {
		s.local.start(s, m)
	}
	s.startsProxy(m)
	m.Welcome.Group, m.Welcome.AnyOwner = s.o.access().Group, s.o.access().AnyOwner
	m.Welcome.Fresh = s.o.Fresh && s.rec.Attempt == 1
	m.Welcome.FormerDirs, m.Welcome.WorkDir = s.rec.FormerDirs, s.cwd
	if s.launcher == nil {
		m.Env = environment(h.local)
	} else {
		m.Welcome.Secret = nil // the helper fills it in
	}
	for _, r := range ranks {
		m.OutputOffsets = append(m.OutputOffsets, s.sink.Start(r, a.launch))
	}
	s.overridesOf(h).apply(m)
	return m
}

// where describes how many ranks are on which hosts, and for which job.
func (s *Supervisor) where() string {
	ranks, job := control.Count(s.n, "rank"), ""
	if s.rec.Job.Name != "" {
		job = fmt.Sprintf(" (%v)", s.rec.Job)
	}
	if s.launcher != nil {
		return ranks + " by " + s.launcher.name + job
	}
	var hosts []string
	for _, h := range s.hosts {
		k := 0
		for i := range s.a.ranks {
			if s.a.ranks[i].on == h {
				k++
			}
		}
		if k > 0 {
			hosts = append(hosts, fmt.Sprintf("%s:%d", h.name, k))
		}
	}
	return ranks + " on " + strings.Join(hosts, ", ") + job
}

// environment returns the variables that ranks inherit. For another host, it
// omits those that describe this one.
func environment(local bool) []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case control.EnvControl, control.EnvWriter, control.EnvRank, control.EnvSize, helper.EnvSecret, helper.EnvSupervisor:
			return true // variables of a run that this supervisor itself is part of
		case control.EnvTiers:
			return true // a program that a rank starts has a run of its own
		case "HOSTNAME", "DISPLAY", "TMPDIR":
			return !local
		}
		return !local && (strings.HasPrefix(name, "SSH_") || strings.HasPrefix(name, "XDG_"))
	})
}

// whole reports whether all ranks ran and ended well. If the program was asked
// to stop, only ranks that said Finished have ended well.
func (a *attempt) whole() bool {
	return a.begun() && a.alive == 0 && !a.stopped && !slices.ContainsFunc(a.ranks, func(r rank) bool { return r.bad || a.asked && !r.done })
}

// allSaid reports whether all ranks said Finished, so that none needs its
// checkpoints any more.
func (a *attempt) allSaid() bool {
	return !slices.ContainsFunc(a.ranks, func(r rank) bool { return !r.done })
}

// after calls f after d, unless the attempt is over by then.
func (s *Supervisor) after(d time.Duration, f func()) *time.Timer {
	a := s.a
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		s.post(func() {
			if s.a == a {
				delete(a.timers, t)
				f()
			}
		})
	})
	a.timers[t] = true
	return t
}

// forget stops a timer of after.
func (s *Supervisor) forget(t *time.Timer) {
	t.Stop()
	if s.a != nil {
		delete(s.a.timers, t)
	}
}

// fromRank handles a message from a rank, or from its helper about it.
func (s *Supervisor) fromRank(h *host, from *control.FromRank) {
	a := s.a
	if a == nil || from.Launch != a.launch || from.Rank < 0 || from.Rank >= len(a.ranks) {
		return
	}
	r := &a.ranks[from.Rank]
	if r.on != h || r.byMove != from.ByMove {
		s.fromOther(h, from)
		return
	}
	switch m := from.Carried.Message.(type) {
	case *control.Running:
		r.Pid, r.State = m.Pid, rundir.Running
		s.changed()
	case *control.Exited:
		s.exited(r, m)
	case *control.Hello:
		s.hello(r, m)
	case *control.Endpoint:
		s.exchangeEndpoint(r, m)
	case *control.Progress:
		if text := r.noPoint(m, time.Now()); text != "" {
			s.say("%s", text)
		}
		r.blocked = m.Blocked
		r.noteLoop(m.Loop, time.Now())
		if m.Devices != nil {
			r.Devices = m.Devices
		}
		// A destination that has taken over reports its first point later.
		r.Points, r.Messages = max(r.Points, m.Points), max(r.Messages, m.Messages)
		var total uint64
		for i := range a.ranks {
			total += a.ranks[i].Points + a.ranks[i].Messages
		}
		if total != a.total {
			a.total, a.moved = total, time.Now()
		}
		if r.Points > 0 {
			s.ready(r)
		}
		s.changed()
	case *control.Restored:
		a.moved = time.Now()
		if r.byMove == 0 { // the state of a destination does not come from a checkpoint
			if m.Settings != nil {
				s.recordSettings(m.Settings)
			}
			s.restored(r, m)
			s.restoredOutput(r.Rank, m)
			s.ready(r)
		}
	case *control.RolledBack:
		s.rolledBack(r, m)
	case *control.Saved:
		a.moved = time.Now()
		s.saved(m)
		s.printed(r.Rank, m.Index, m.Stdout)
	case *control.SaveFailed:
		s.unsaved(r, m)
	case *control.Committed:
		s.committed(m.Index)
	case *control.Damaged:
		s.damagedCopy(r, m)
	case *control.Refused:
		a.unfit = fmt.Sprintf("rank %d on %s: %s", r.Rank, r.Host, m.Error)
	case *control.Finished:
		r.done = true
	case *control.Stopped:
		r.done, a.stopped = true, true
		s.programEnds("the program was told to stop")
		if m.Error != "" && a.unsaved == "" {
			a.unsaved = fmt.Sprintf("rank %d: %s", r.Rank, m.Error)
		}
	case *control.Spawned:
		s.spawned(r.Rank, m)
	default:
		s.saidOfMove(r, m)
	}
}

// ready records that a rank has restored, or reached a point.
func (s *Supervisor) ready(r *rank) {
	r.ready = true
	if len(s.failedMoves)+len(s.lostMoves) == 0 || s.a.failure != nil { // it is still the attempt that failed
		return
	}
	from := "its beginning"
	if s.a.restored != nil {
		from = fmt.Sprintf("checkpoint %d", *s.a.restored)
	}
	s.movesRolledBack(from)
}

// quietFor is how long a rank may reach no point before the user is told.
const quietFor = time.Minute

// noPoint takes what a rank reports. It returns a text for the user, once, if
// the rank has reached no point for quietFor. The time does not count while
// Cairn pauses the rank, or while its run time says why it is not saved.
func (r *rank) noPoint(m *control.Progress, now time.Time) string {
	switch {
	case m.Points > r.Points, m.Paused, m.Blocked != "":
		r.pointAt = now
		return ""
	case r.toldNoPoint || r.State != rundir.Running || now.Sub(r.pointAt) < quietFor:
		return ""
	}
	r.toldNoPoint = true
	lost := "nothing is saved yet, and a restart begins anew"
	if r.Points > 0 {
		lost = "if it fails now, this work is lost, since checkpoints are taken at points only"
	}
	return fmt.Sprintf("rank %d has reached no point for %v: %s; for a Go program 'cairn explain' shows where its points are, and a comment //cairn:point before a loop puts one there", r.Rank, quietFor, lost)
}

func (s *Supervisor) hello(r *rank, m *control.Hello) {
	r.Cairn, r.pointAt = true, time.Now()
	s.a.moved = time.Now()
	if !s.helloOfTiers(r, m) {
		return
	}
	if m.PerHost && s.local == nil && slices.ContainsFunc(s.a.ranks, func(x rank) bool { return x.Host != r.Host }) {
		s.fail(r.Rank, &failure{status: 1, fatal: true, why: fmt.Sprintf("the program keeps its checkpoints in a directory of each host, %s (Options.Local): name it with 'cairn run --local %s'", m.Dir, m.Dir)})
		s.kill("")
		return
	}
	if m.Dir != "" && m.Dir != s.rec.CheckpointDir && s.local == nil {
		if s.last != nil && rundir.RealPath(m.Dir) != rundir.RealPath(s.rec.CheckpointDir) {
			s.fail(r.Rank, &failure{status: 1, fatal: true, why: fmt.Sprintf("the program keeps its checkpoints in %s now, but those of this run are in %s: let it use that directory, or start over with --fresh", m.Dir, s.rec.CheckpointDir)})
			s.kill("")
			return
		}
		s.rec.CheckpointDir, s.rec.Used = m.Dir, false
		s.save()
	}
	s.changed()
	if s.stopping {
		s.askStop()
	}
	s.askWaiting()
}

// exchangeEndpoint stores the endpoint of a rank. When it has those of all
// ranks, it sends them to all.
func (s *Supervisor) exchangeEndpoint(r *rank, m *control.Endpoint) {
	s.a.moved = time.Now()
	x := s.a.exchanges[m.Epoch]
	if x == nil {
		x = &exchange{endpoints: make([][]byte, s.n)}
		s.a.exchanges[m.Epoch] = x
	}
	if x.endpoints[r.Rank] == nil {
		x.have++
	}
	if m.Data == nil {
		m.Data = []byte{}
	}
	x.endpoints[r.Rank] = m.Data
	if x.have < s.n {
		return
	}
	delete(s.a.exchanges, m.Epoch)
	if m.Epoch > s.a.epoch {
		s.a.endpoints, s.a.epoch = x.endpoints, m.Epoch
	}
	s.tellRanks(&control.Endpoints{Epoch: m.Epoch, Endpoints: x.endpoints})
}

// restored records which checkpoint a rank resumes from. If the run has a
// checkpoint, a rank that starts from the beginning is a failure.
func (s *Supervisor) restored(r *rank, m *control.Restored) {
	a := s.a
	if s.local != nil {
		s.rec.Used, s.rec.CheckpointsID = true, s.rec.ID
	} else if id, err := store.Open(s.dir.FS, s.rec.CheckpointDir, 0).ID(); err == nil && (!s.rec.Used || id != s.rec.CheckpointsID) {
		s.rec.Used, s.rec.CheckpointsID = true, id // the directory exists
		s.save()
	}
	if m.Fresh {
		a.fresh = true
		r.freshAt = time.Now()
		if a.kept {
			s.fail(r.Rank, &failure{status: 1, fatal: true, why: fmt.Sprintf("rank %d has found no checkpoint in %s, where the run has one; the run does not start from the beginning, unless you discard it with --fresh", r.Rank, s.rec.CheckpointDir)})
			s.kill("")
		}
		return
	}
	s.progress.began(a, m.Index)
	if a.restored == nil {
		index := m.Index
		a.restored = &index
		s.report(events.Event{Kind: events.Restore, Index: index, LostNS: int64(s.lost(a.base))}, "restored checkpoint %d", index)
		s.advanced(index)
	}
}

// rolledBack records that a rank has returned to a checkpoint in its running
// process. All ranks do so together, and rank 0 speaks for them.
func (s *Supervisor) rolledBack(r *rank, m *control.RolledBack) {
	s.a.moved = time.Now()
	r.Points, r.Messages = 0, 0 // it counts from the checkpoint on
	r.forgetLoop()
	if r.Rank != 0 {
		return
	}
	s.reportCheckpoint()
	var text string
	switch {
	case m.Why != "":
		text = fmt.Sprintf("rank %d lost its device (%s)", m.Rank, m.Why)
	default:
		text = fmt.Sprintf("rank %d called Rollback", m.Rank)
	}
	to := "the beginning"
	if m.Index > 0 {
		to = fmt.Sprintf("checkpoint %d", m.Index)
	}
	if s.n > 1 {
		text += "; all ranks rolled back to " + to
	} else {
		text += "; rolled back to " + to
	}
	state := &control.RollbackState{Time: s.a.moved, Count: 1, Text: text}
	if before := s.rec.RolledBack; before != nil {
		state.Count += before.Count
	}
	s.rec.RolledBack = state
	s.save()
	s.report(events.Event{Kind: events.Rollback, Index: m.Index, Rank: &m.Rank}, "%s", text)
}

func (s *Supervisor) exited(r *rank, m *control.Exited) {
	a := s.a
	if r.State == "ended" {
		return
	}
	r.State = "ended"
	a.alive--
	s.programEnded(r)
	f := &failure{status: m.Code}
	switch {
	case m.Error != "":
		f.why, f.fatal = m.Error, m.Code == 126 || m.Code == 127
	case m.Signal != 0:
		f.why, f.status = fmt.Sprintf("rank %d on %s was killed by signal %d (%s)", r.Rank, r.Host, m.Signal, signalName(m.Signal)), 128+m.Signal
	case m.Code != 0 && r.done && !a.stopped: // it has finished, and the status is its result
		a.status = max(a.status, m.Code)
		f = nil
	case m.Code != 0:
		f.why = fmt.Sprintf("rank %d on %s ended with status %d", r.Rank, r.Host, m.Code)
		f.beforeFirstPoint = s.beforeFirstPoint()
	default:
		f = nil
	}
	r.bad = f != nil
	if f != nil && m.Error == "" {
		f.own, f.greeted = byItself(m.Code, m.Signal), r.Cairn
	}
	// The report of a rank that was killed from outside may come after the
	// others were killed because of it. A launcher kills ranks itself, so their
	// helper does not report Killed.
	if f != nil && !f.own && !m.Killed && !(a.killed() && s.launcher != nil) {
		s.reportCause(f.why)
		a.outside = true
	}
	expected := r.done && a.stopped || s.stopping || a.killed()
	if f != nil && !expected {
		s.fail(r.Rank, f)
	}
	s.changed()
}

// beforeFirstPoint reports whether no rank has reached a point, and there is no
// checkpoint. A program that does not use Cairn reports no points: it counts as
// before its first point for youngTime.
func (s *Supervisor) beforeFirstPoint() bool {
	a := s.a
	if a.kept || a.restored != nil || a.newCheckpoint || a.moves > 0 || slices.ContainsFunc(a.ranks, func(r rank) bool { return r.Points > 0 }) {
		return false
	}
	if _, whole := s.newest(); whole {
		return false
	}
	return a.greeted() || time.Since(a.started) < youngTime
}

// fail ends the attempt: it tells the other ranks, and kills them after
// lostMoment.
func (s *Supervisor) fail(gone int, f *failure) {
	a := s.a
	if a == nil || a.failure != nil {
		return
	}
	a.failure, a.failed = f, time.Now()
	s.sink.Hasten(true)
	e := events.Event{Kind: events.Failure, Status: f.status}
	if gone >= 0 && gone < len(a.ranks) {
		e.Rank, e.Host = &gone, a.ranks[gone].Host
	}
	s.report(e, "%s", f.why)
	if s.move != nil {
		s.moveRestarts(s.move, f.why)
	}
	s.tellRanks(&control.Lost{Rank: gone, Why: f.why})
	s.after(lostMoment, func() { s.kill("") })
}

// kill kills all ranks at once.
func (s *Supervisor) kill(why string) {
	if why != "" && s.why == "" {
		s.why = why
	}
	if s.a != nil && s.a.begun() {
		s.a.reaches(killed)
		s.sink.Hasten(true)
		s.tellAll(&control.Kill{})
	}
}

// tellRanks sends a message to all ranks, tellAll to the helpers that have
// some.
func (s *Supervisor) tellRanks(m control.Message) {
	s.tellAll(&control.ToRank{Process: control.Process{Rank: control.AllRanks}, Carried: control.Carried{Message: m}})
}

func (s *Supervisor) tellAll(m control.Message) {
	for _, h := range s.hosts {
		if h.state == hostUp && h.busy {
			h.queue.Send(m)
		}
	}
}

func signalName(n int) string {
	name := unix.SignalName(syscall.Signal(n))
	if name == "" {
		return syscall.Signal(n).String()
	}
	return name
}

func isAre(n int) string {
	if n == 1 {
		return " is"
	}
	return " are"
}
