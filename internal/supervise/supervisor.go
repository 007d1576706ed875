//go:build linux

package supervise

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/supervise/output"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/supervise/scheduler"
	"github.com/cairnrun/cairn/internal/tier/placement"
	"github.com/cairnrun/cairn/internal/tier/policy"
)

// Supervisor supervises one run. Only the goroutine of Run uses its fields;
// others post functions to it.
type Supervisor struct {
	o          Options
	n          int
	cwd        string
	dir        *rundir.Dir
	rec        *rundir.Record
	calls      chan func()
	over       chan struct{} // closed when Run has ended
	serving    sync.WaitGroup
	sink       *output.Sink
	hosts      []*host
	launcher   *launcher // mpirun or srun; nil: fork
	local      *localRun // nil: hosts share a checkpoint directory
	policy     *policy.Policy
	tiers      []*storageTier     // with local: those besides the hosts' own disks
	usualTiers bool               // nobody has named them
	runEnd     *control.RunEnd    // what tiers are told when the ranks have finished
	keeping    bool               // … that is under way
	domains    *placement.Domains // hosts that fail together

	state    string
	a        *attempt       // the current attempt
	began    bool           // ranks were started in this or an earlier attempt
	killed   bool           // ctx has ended: ranks are killed
	owned    bool           // the run directory belongs to this run
	stale    bool           // run.json could not be written
	why      string         // reason of the last failure, or of the stop
	intent   *rundir.Intent // what to do with the earlier run in the directory
	from     origin         // of Options.From
	requests []*commandRequest
	tick     *time.Timer

	instrumentation    instrumentation // of the program
	saidUninstrumented bool

	scheduler *scheduler.Scheduler
	graceBy   string // whose time Options.Grace is; "": the user's, or the default
	asksGrace bool   // the scheduler tells the time when ranks are to stop
	asksEnd   bool   // it is being asked whether it ends the job

	proxied proxied // with Options.Proxy
	stopRequest
	commits
	setbacks
	migrations
	delayed   delayedOutput
	history   history
	overrides map[string]hostOverrides // by the host's title
}

// Dir returns the run directory.
func (s *Supervisor) Dir() string { return s.dir.Path }

// Ranks returns the number of ranks.
func (s *Supervisor) Ranks() int { return s.n }

// Stop makes the ranks save and stop. Any goroutine may call it, at any time.
func (s *Supervisor) Stop(why string) {
	s.post(func() { s.stop(why) })
}

// Note reports something about the run to its log and its user. Any goroutine
// may call it, at any time.
func (s *Supervisor) Note(text string) {
	s.post(func() { s.say("%s", text) })
}

// post makes the goroutine of Run call f.
func (s *Supervisor) post(f func()) {
	select {
	case s.calls <- f:
	case <-s.over:
	}
}

// Run starts the run and returns when it has finished, was stopped, or has
// failed too often. When ctx ends, it kills all ranks at once. The caller calls
// it once.
func (s *Supervisor) Run(ctx context.Context) (res Result, err error) {
	// The last answers are sent when the directory is free for the next run.
	defer s.serving.Wait()
	defer close(s.over)
	defer func() { s.answerAll(res, err) }()
	defer func() {
		if res.State == rundir.Finished && err == nil {
			s.recordFinished()
		}
		s.owned = false // from here on the directory may belong to another run
		s.history.close()
		s.dir.Close()
	}()
	socket, err := s.dir.Listen()
	if err != nil {
		return Result{}, err
	}
	go s.receive(socket)
	defer socket.Close()
	if err := s.awaitOthers(ctx); err != nil {
		if ctx.Err() == nil && !s.stopping {
			return Result{}, err
		}
		res := Result{State: rundir.Stopped, Status: StoppedStatus, Why: "interrupted before it was started"}
		if s.intent.New || s.intent.Finish || s.intent.Over { // until then the directory belongs to the earlier run
			s.state, s.why = res.after(s.state), res.Why
			s.report(events.Event{Kind: events.End, State: res.State, Status: res.Status}, "stopped: %s", res.Why)
			return res, nil
		}
		return s.end(res)
	}
	if s.intent.Note != "" {
		s.say("%s", s.intent.Note)
	}
	if s.intent.Over {
		return Result{State: rundir.Finished, Status: s.rec.Status}, nil
	}
	if s.intent.Finish {
		return s.completeEarlier(ctx)
	}
	if err := s.take(); err != nil {
		return Result{}, err
	}
	if s.sink, err = output.New(s.o.sink(), s.n); err != nil {
		return Result{}, err
	}
	defer s.sink.Close()
	defer s.dismiss()
	s.tick = time.AfterFunc(helper.PingEvery, func() { s.post(s.look) })
	defer s.tick.Stop()
	for {
		a := s.attempt(ctx)
		s.a = nil
		if a.over {
			return s.finishBrought(ctx)
		}
		if res, done := s.judge(a); done {
			if res.State == rundir.Finished {
				return s.finish(ctx, res.Status, a.allSaid())
			}
			return s.end(res)
		}
		if s.rest(ctx) {
			return s.end(Result{State: rundir.Stopped, Status: StoppedStatus, Why: s.why})
		}
	}
}

// until runs posted functions until cond holds or the deadline, if any, has
// passed.
func (s *Supervisor) until(ctx context.Context, cond func() bool, deadline <-chan time.Time) {
	done := ctx.Done()
	if s.killed {
		done = nil
	}
	for !cond() {
		select {
		case f := <-s.calls:
			f()
			s.stepMoves()
		case <-deadline:
			return
		case <-done:
			done = nil
			s.killed = true
			s.kill("interrupted")
		}
	}
}

// rest waits after a failure. It reports whether the run was stopped meanwhile.
func (s *Supervisor) rest(ctx context.Context) bool {
	if s.failures == 0 {
		return s.stopping || s.killed
	}
	d := pause(s.failures)
	from := "from the beginning"
	if c, ok := s.newest(); ok {
		from = fmt.Sprintf("from checkpoint %d", c.Index)
		if older, ok := s.newestUsable(s.rec.Quarantined); ok && older != c.Index {
			from = fmt.Sprintf("from an older checkpoint, %d,", older)
		}
	} else if s.local != nil && s.last != nil {
		from = "from the newest checkpoint that can be restored"
	}
	s.happens(pauseEvent)
	s.report(events.Event{Kind: events.Wait, DelayNS: int64(d)}, "restarting %s in %.1f s (%s of %d)", from, d.Seconds(), ordinal(s.failures), s.o.Retries)
	t := time.NewTimer(d)
	defer t.Stop()
	s.until(ctx, func() bool { return s.stopping || s.killed }, t.C)
	return s.stopping || s.killed
}

// judge decides what follows an attempt: the end of the run, or another
// attempt.
func (s *Supervisor) judge(a *attempt) (Result, bool) {
	f := a.failure
	switch {
	case f == nil && a.whole():
		return Result{State: rundir.Finished, Status: a.status}, true
	case a.stopped || s.stopping || s.killed:
		why := s.why
		why = cmp.Or(why, "the program was told to stop")
		res := Result{State: rundir.Stopped, Status: StoppedStatus, Why: why}
		if a.unsaved != "" {
			res.Status = UnsavedStatus
			u := control.Unsaved{Since: time.Now(), Count: 1}
			if s.rec.Unsaved != nil {
				u = *s.rec.Unsaved
			}
			u.Why, u.Lost = a.unsaved, true
			s.rec.Unsaved = &u
		}
		return res, true
	}
	if a.damaged != "" { // another copy or an older checkpoint is tried
		f.why, a.outside = a.damaged, true
	}
	if a.unfit != "" && f.own { // the checkpoint is not the cause, and another attempt would give the same result
		f.why, f.fatal, a.outside = a.unfit, true, true
	}
	s.why = f.why
	s.unheard(a)
	s.failures++
	s.progress.failed(a)
	if s.failuresBeforePoint++; !f.beforeFirstPoint {
		s.failuresBeforePoint = 0
	}
	if s.failuresBeforePoint == 2 && s.o.Retries > 0 {
		f.fatal = true
		f.why += " before its first point, twice: not tried again"
	}
	s.blame(a)
	if f.fatal || s.failures > max(0, s.o.Retries) {
		if !f.fatal && s.o.Retries > 0 {
			f.why += fmt.Sprintf(" (%d failures in a row without progress)", s.failures)
		}
		return Result{State: rundir.Failed, Status: f.status, Why: f.why, BeforeFirstPoint: f.beforeFirstPoint}, true
	}
	return Result{}, false
}

// sayRepeated warns of output that was shown and cannot be taken back.
func (s *Supervisor) sayRepeated() {
	if s.sink == nil {
		return
	}
	for _, rank := range s.sink.Repeated() {
		s.say("WARNING: rank %d did not print the same after a restart as before it, so stdout has some lines twice, or not at all; %s has each of them once, and so has a file that -o names",
			rank, rundir.OutputFile(s.o.RankOutput, rank, control.Stdout))
	}
}

// end records how the run ended.
func (s *Supervisor) end(res Result) (Result, error) {
	s.state, s.why = res.after(s.state), res.Why
	s.rec.Status, s.rec.Why, s.rec.BeforeFirstPoint = res.Status, res.Why, res.BeforeFirstPoint
	if res.State != rundir.Finished { // a helper may have published a checkpoint that no rank reported
		if c, ok := s.newest(); ok && (s.local == nil || s.last == nil || c.Index > s.last.Index) { // not all hosts may have answered
			s.foundCheckpoint(c)
		}
	}
	if res.State == rundir.Failed && s.sink != nil { // as the program alone would have shown it
		s.sink.CommitAll()
	}
	s.sayRepeated()
	end := events.Event{Kind: events.End, State: res.State, Status: res.Status}
	switch res.State {
	case rundir.Finished:
		if res.Status != 0 {
			s.report(end, "finished with status %d", res.Status)
		} else {
			s.report(end, "finished")
		}
	case rundir.Stopped:
		if u := s.rec.Unsaved; u != nil && u.Lost {
			from := "the beginning"
			if s.last != nil {
				from = fmt.Sprintf("checkpoint %d", s.last.Index)
			}
			s.report(end, "stopped: %s; but the state could NOT be saved, and the work since %s is lost: %s; the same command starts from there", res.Why, from, u.Why)
		} else if s.last == nil && !s.hasCheckpoints() {
			s.report(end, "stopped: %s; no checkpoint was saved: the same command starts from the beginning", res.Why)
		} else {
			why := ": " + res.Why
			if s.stopSaid && res.Why == s.stopWhy {
				why = ""
			}
			s.report(end, "stopped%s%s; the same command resumes", s.lastIndex(" with checkpoint %d"), why)
		}
	default:
		s.report(end, "failed%s: %s", s.lastIndex("; the last checkpoint is %d"), res.Why)
	}
	s.unanswered = s.settleMoves("the run has ended (" + res.State + ")")
	if res.State == rundir.Finished { // it is recorded as finishing until nothing is left to do
		return res, nil
	}
	s.rec.State = res.State
	s.rec.Quiet = s.local != nil && s.began && len(s.local.left) == 0 || s.rec.Quiet
	if s.rec.Quiet && s.rec.Started != nil {
		s.tellQuiet()
	}
	if err := s.record(); err != nil { // for the next start it is as if this one had been killed
		s.say("the end could not be recorded: %v; the same command continues", err)
	}
	step.At(res.State + ".recorded") // stopped, failed
	return res, nil
}

func (s *Supervisor) lastIndex(format string) string {
	if s.last == nil {
		return ""
	}
	return fmt.Sprintf(format, s.last.Index)
}

// save writes run.json during the run. It reports the first of several
// failures, and the run continues.
func (s *Supervisor) save() {
	if !s.owned {
		return
	}
	switch err := s.record(); {
	case err != nil && !s.stale:
		s.stale = true
		s.say("run.json could not be written: %v; the run continues, and writes it later", err)
	case err == nil && s.stale:
		s.stale = false
		s.say("run.json is written again")
	}
}

// record writes run.json.
func (s *Supervisor) record() error {
	s.rec.Last = s.last
	s.rec.Moves = s.snapMoves()
	return s.dir.Write(s.rec)
}

// snapshot returns the state that status shows.
func (s *Supervisor) snapshot() control.RunState {
	st := control.RunState{Run: s.dir.Path, Job: s.rec.Job.String(), State: s.state, Command: s.rec.Command, Dir: s.rec.CheckpointDir, Output: s.o.RankOutput, Pid: os.Getpid(), Began: s.rec.Began, Attempt: s.rec.Attempt, LostNS: s.rec.LostNS,
		Unsaved: s.rec.Unsaved, RolledBack: s.rec.RolledBack, Failures: s.failures, Why: s.why, Quarantined: append([]uint64{}, s.rec.Quarantined...), Ranks: []control.RankState{}}
	if s.last != nil {
		last := *s.last
		st.Last = &last
	}
	if s.a != nil {
		if s.a.restored != nil {
			index := *s.a.restored
			st.Restored = &index
		}
		for i := range s.a.ranks {
			st.Ranks = append(st.Ranks, s.a.ranks[i].RankState)
		}
	}
	st.Settings, st.ProgramEnded = s.rec.Settings, s.proxied.ended
	st.Moves, st.Tiers, st.Scrub = s.snapMoves(), s.tierStates(), s.rec.Scrub
	return st
}

// snapMoves returns copies of the moves.
func (s *Supervisor) snapMoves() (out []control.MoveState) {
	for _, m := range s.moves {
		out = append(out, *m)
	}
	return out
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, suffix)
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

func randomName() string { return hex.EncodeToString(randomBytes(8)) }
