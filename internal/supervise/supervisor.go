//go:build linux

package supervise

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/vfs"
)

// Supervisor supervises one run. Only the goroutine of Run uses its fields;
// others post functions to it.
type Supervisor struct {
	o        Options
	n        int
	cwd      string
	dir      *runDir
	rec      *record
	calls    chan func()
	over     chan struct{} // closed when Run has ended
	serving  sync.WaitGroup
	sink     *sink
	hosts    []*host
	launcher *launcher // mpirun or srun; nil: fork

	state               string
	a                   *attempt // the current one
	began               bool     // ranks were started in this or an earlier attempt
	killed              bool     // ctx has ended: ranks are killed
	stopping            bool
	why                 string // of the last failure, or of the stop
	failures            int    // in a row without progress
	suspect             uint64 // the checkpoint that the last attempts restored,
	suspectFailures     int    // and how many of them failed without a new checkpoint
	reached             uint64 // the newest checkpoint that was committed or restored
	progress            progress
	last                *CheckpointState
	failuresBeforePoint int                           // failures in a row before the first point
	pending             map[uint64]*partialCheckpoint // saved by some ranks
	unreported          *partialCheckpoint            // committed, and not reported yet
	saveFailures        control.SaveFailures          // since the last commit
	intent              *intent                       // what to do with the earlier run in the directory
	requests            []*commandRequest
	tick                *time.Timer

	instrumentation    instrumentation // of the program
	saidUninstrumented bool

	limits        moveLimits
	moveQueue     []*moveRequest              // moves that wait
	move          *move                       // the current one
	failedMoves   []*move                     // they failed together with their attempt
	moves         []*control.MoveState        // all that status shows
	stopAfterMove string                      // why to stop when the move is over
	lostMoves     []*control.MoveState        // not over when the earlier supervisor was lost
	watches       map[string]*evacuationWatch // by the host's title
	overrides     map[string]hostOverrides    // likewise
	owned         bool                        // the run directory belongs to this run
	unanswered    []*moveRequest              // to answer when the run has ended
}

// access returns who else may use the run's directories.
func (o *Options) access() vfs.Access { return vfs.AccessFromEnv().With(o.Group, o.AnyOwner) }

// New checks the options, locks the run directory and reads its record. The
// caller must call Run next.
func New(o Options) (*Supervisor, error) {
	s := &Supervisor{o: o, calls: make(chan func(), 64), over: make(chan struct{}), state: Starting, pending: make(map[uint64]*partialCheckpoint), limits: usualLimits,
		watches: make(map[string]*evacuationWatch), overrides: make(map[string]hostOverrides)}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	dir, err := openRunDir(s.o.Run, s.cwd, s.o.access())
	if err != nil {
		return nil, err
	}
	s.dir = dir
	if s.intent, err = dir.claim(s.o.Command, s.n, s.o.Dir, s.o.RankOutput, o.Fresh); err != nil {
		dir.close()
		return nil, err
	}
	s.rec = s.intent.rec
	s.last = s.rec.Last
	if index, at, ok := newestCheckpoint(s.rec.CheckpointDir, s.n); ok && len(s.rec.Clear) == 0 && (s.last == nil || s.last.Index < index) {
		s.last = &CheckpointState{Index: index, Time: at} // a helper has published it after its supervisor was gone
	}
	for i := range s.rec.Moves {
		m := s.rec.Moves[i]
		if !m.Over() {
			lostMove(&m)
			s.lostMoves = append(s.lostMoves, &m)
		}
		s.moves = append(s.moves, &m)
	}
	if s.o.Quarantine < 0 {
		s.rec.Quarantined = nil
	}
	s.instrumentation = instrumentationOf(s.o.Command[0])
	host, _ := os.Hostname()
	s.rec.Pid, s.rec.Host = os.Getpid(), host
	if !s.intent.finish {
		s.rec.State, s.rec.Status, s.rec.Why, s.rec.BeforeFirstPoint, s.rec.Unsaved = Starting, 0, "", false, nil
	}
	s.recordHosts()
	return s, nil
}

func optionError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrOptions, fmt.Sprintf(format, args...))
}

// prepare completes the options.
func (s *Supervisor) prepare() (err error) {
	o := &s.o
	if len(o.Command) == 0 || len(o.Helper) == 0 {
		return optionError("Command and Helper are needed")
	}
	program, err := exec.LookPath(o.Command[0])
	if err != nil {
		if st, e := os.Stat(o.Command[0]); e == nil && st.IsDir() {
			return optionError("%s is a directory without Go files; name a program, or the directory of a Go program's source", o.Command[0])
		}
		return fmt.Errorf("%w: %w; give the path of a program, or of the source of one in Go", ErrOptions, err)
	}
	if program, err = filepath.Abs(program); err != nil {
		return err
	}
	o.Command = append([]string{program}, o.Command[1:]...)
	if s.cwd, err = os.Getwd(); err != nil {
		return err
	}
	if err := s.prepareHosts(); err != nil {
		return err
	}
	if o.Run == "" {
		o.Run = strings.TrimSuffix(filepath.Base(program), filepath.Ext(program)) + ".cairn"
	}
	if o.Run, err = filepath.Abs(o.Run); err != nil {
		return err
	}
	for _, p := range []struct {
		path *string
		def  string
	}{{&o.Dir, "ckpt"}, {&o.RankOutput, "output"}} {
		if *p.path == "" {
			*p.path = filepath.Join(o.Run, p.def)
		} else if *p.path, err = filepath.Abs(*p.path); err != nil {
			return err
		}
	}
	if o.Out != "" {
		if o.Out, err = filepath.Abs(o.Out); err != nil {
			return err
		}
	}
	if o.Retries == 0 {
		o.Retries = defaultRetries
	}
	if o.Quarantine == 0 {
		o.Quarantine = defaultQuarantine
	}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	if o.RemoteHelper == nil {
		o.RemoteHelper = o.Helper
	}
	if o.EvacuatePoll <= 0 {
		o.EvacuatePoll = defaultEvacuatePoll
	}
	return nil
}

// prepareHosts settles hosts, slots and the number of ranks.
func (s *Supervisor) prepareHosts() error {
	o := &s.o
	s.n = o.Ranks
	if s.n < 0 || s.n > maxRanks {
		return optionError("%d ranks; 1 to %d are possible", s.n, maxRanks)
	}
	switch o.Launcher {
	case "", "fork":
	case "mpirun", "srun":
		if len(o.Hosts) > 0 {
			return optionError("with the launcher %s, hosts are given to it by --launcher-args, not by --hosts", o.Launcher)
		}
		s.n = max(s.n, 1)
		s.launcher = &launcher{name: o.Launcher, args: o.LauncherArgs}
		return nil
	default:
		return optionError("unknown launcher %q; fork, mpirun and srun are known", o.Launcher)
	}
	if len(o.LauncherArgs) > 0 {
		return optionError("--launcher-args needs --launcher mpirun or srun")
	}
	if len(o.Hosts) == 0 {
		s.n = max(s.n, 1)
		s.hosts = []*host{{s: s, name: "localhost", slots: s.n, local: true}}
		return nil
	}
	own, _ := os.Hostname()
	sum := 0
	for _, h := range o.Hosts {
		if h.Name == "" || h.Slots < 0 || strings.HasPrefix(h.Name, "-") {
			return optionError("%q is no host", h.Name)
		}
		if slices.ContainsFunc(s.hosts, func(x *host) bool { return x.name == h.Name }) {
			return optionError("host %s is named twice; give it more slots (%s:%d)", h.Name, h.Name, max(2, 2*h.Slots))
		}
		slots := h.Slots
		if slots == 0 {
			slots = max(1, (s.n+len(o.Hosts)-1)/len(o.Hosts))
		}
		sum += slots
		local := h.Name == "localhost" || h.Name == "127.0.0.1" || h.Name == own
		s.hosts = append(s.hosts, &host{s: s, name: h.Name, slots: slots, local: local})
	}
	if s.n == 0 {
		s.n = sum
	}
	if s.n > sum {
		return optionError("%d ranks, but the hosts have room for %d; give hosts more slots (%s:%d)", s.n, sum, s.hosts[0].name, s.n)
	}
	return nil
}

// Dir returns the run directory.
func (s *Supervisor) Dir() string { return s.dir.path }

// Stop makes the ranks save and stop. Any goroutine may call it, at any time.
func (s *Supervisor) Stop(why string) {
	s.post(func() { s.stop(why) })
}

// post hands f to the goroutine of Run.
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
	// The last answers go out when the directory is free for the next run.
	defer s.serving.Wait()
	defer close(s.over)
	defer func() { s.answerAll(res, err) }()
	defer func() {
		if res.State == Finished && err == nil {
			s.recordFinished()
		}
		s.owned = false // the directory may be another's from here on
		s.dir.close()
	}()
	socket, err := s.listenForRequests()
	if err != nil {
		return Result{}, err
	}
	defer socket.Close()
	if err := s.awaitOthers(ctx); err != nil {
		if ctx.Err() == nil && !s.stopping {
			return Result{}, err
		}
		res := Result{State: Stopped, Status: StoppedStatus, Why: "interrupted before it was started"}
		if s.intent.made || s.intent.finish { // the directory is still that of the run before
			s.state, s.why = res.after(s.state), res.Why
			s.say("stopped: %s", res.Why)
			return res, nil
		}
		return s.end(res)
	}
	if s.intent.say != "" {
		s.say("%s", s.intent.say)
	}
	if s.intent.finish {
		return s.completeEarlier()
	}
	if err := s.take(); err != nil {
		return Result{}, err
	}
	if s.sink, err = newSink(&s.o, s.n); err != nil {
		return Result{}, err
	}
	defer s.sink.close()
	defer s.dismiss()
	s.tick = time.AfterFunc(pingEvery, func() { s.post(s.look) })
	defer s.tick.Stop()
	for {
		a := s.attempt(ctx)
		s.a = nil
		if res, done := s.judge(a); done {
			if res.State == Finished {
				return s.finish(res.Status, a.allSaid())
			}
			return s.end(res)
		}
		if s.rest(ctx) {
			return s.end(Result{State: Stopped, Status: StoppedStatus, Why: s.why})
		}
	}
}

// awaitOthers waits for helpers of an earlier supervisor.
func (s *Supervisor) awaitOthers(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- s.dir.awaitHelpers(ctx, func(host, holder string) {
			s.post(func() {
				s.say("waiting for the ranks of the last start on %s to save and stop (%s)", host, holder)
			})
		})
	}()
	for {
		select {
		case err := <-done:
			return err
		case f := <-s.calls:
			f()
			s.stepMoves()
			if s.stopping {
				return errors.New("stopped")
			}
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

// rest is the pause after a failure; it reports whether the run was stopped.
func (s *Supervisor) rest(ctx context.Context) bool {
	if s.failures == 0 {
		return s.stopping || s.killed
	}
	d := pause(s.failures)
	from := "from the beginning"
	if index, _, ok := newestCheckpoint(s.rec.CheckpointDir, s.n); ok {
		from = fmt.Sprintf("from checkpoint %d", index)
		if older, ok := s.newestUsable(s.rec.Quarantined); ok && older != index {
			from = fmt.Sprintf("from an older checkpoint, %d,", older)
		}
	}
	s.happens(pauseEvent)
	s.say("restarting %s in %.1f s (%s of %d)", from, d.Seconds(), ordinal(s.failures), s.o.Retries)
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
		return Result{State: Finished, Status: a.status}, true
	case a.stopped || s.stopping || s.killed:
		why := s.why
		if why == "" {
			why = "the program was told to stop"
		}
		res := Result{State: Stopped, Status: StoppedStatus, Why: why}
		if a.unsaved != "" {
			res.Status = UnsavedStatus
			u := Unsaved{Since: time.Now(), Count: 1}
			if s.rec.Unsaved != nil {
				u = *s.rec.Unsaved
			}
			u.Why, u.Lost = a.unsaved, true
			s.rec.Unsaved = &u
		}
		return res, true
	}
	if a.unfit != "" && f.own { // neither the checkpoint is at fault, nor would it be otherwise next time
		f.why, f.fatal, a.outside = a.unfit, true, true
	}
	s.why = f.why
	s.unheard(a)
	s.failures++
	s.progress.fell(a)
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
		return Result{State: Failed, Status: f.status, Why: f.why, BeforeFirstPoint: f.beforeFirstPoint}, true
	}
	return Result{}, false
}

// end records how the run ended.
func (s *Supervisor) end(res Result) (Result, error) {
	s.state, s.why = res.after(s.state), res.Why
	s.rec.Status, s.rec.Why, s.rec.BeforeFirstPoint = res.Status, res.Why, res.BeforeFirstPoint
	if res.State != Finished { // a helper may have published a checkpoint that nobody heard of
		if index, at, ok := newestCheckpoint(s.rec.CheckpointDir, s.n); ok && (s.last == nil || s.last.Index != index) {
			s.last = &CheckpointState{Index: index, Time: at}
		}
	}
	switch res.State {
	case Finished:
		if res.Status != 0 {
			s.say("finished with status %d", res.Status)
		} else {
			s.say("finished")
		}
	case Stopped:
		if u := s.rec.Unsaved; u != nil && u.Lost {
			from := "the beginning"
			if s.last != nil {
				from = fmt.Sprintf("checkpoint %d", s.last.Index)
			}
			s.say("stopped: %s; but the state could NOT be saved, and the work since %s is lost: %s; the same command starts from there", res.Why, from, u.Why)
		} else if s.last == nil && !s.hasCheckpoints() {
			s.say("stopped: %s; no checkpoint was saved: the same command starts from the beginning", res.Why)
		} else {
			s.say("stopped%s: %s; the same command resumes", s.lastIndex(" with checkpoint %d"), res.Why)
		}
	default:
		s.say("failed%s: %s", s.lastIndex("; the last checkpoint is %d"), res.Why)
	}
	s.unanswered = s.settleMoves("the run has ended (" + res.State + ")")
	if res.State == Finished { // it is recorded as finishing until nothing is left to do
		return res, nil
	}
	s.rec.State = res.State
	err := s.record()
	step.At(res.State + ".recorded") // stopped, failed
	return res, err
}

func (s *Supervisor) lastIndex(format string) string {
	if s.last == nil {
		return ""
	}
	return fmt.Sprintf(format, s.last.Index)
}

// save writes run.json during the run. It reports a failure, and the run
// continues.
func (s *Supervisor) save() {
	if !s.owned {
		return
	}
	if err := s.record(); err != nil {
		s.say("run.json could not be written: %v", err)
	}
}

// record writes run.json.
func (s *Supervisor) record() error {
	s.rec.Last = s.last
	s.rec.Moves = s.snapMoves()
	return s.dir.write(s.rec)
}

// say reports an event to the log and the user.
func (s *Supervisor) say(format string, args ...any) {
	now := time.Now()
	text := fmt.Sprintf(format, args...)
	s.dir.note(now, text)
	if s.o.Event != nil {
		s.o.Event(Event{now, text, s.snapshot()})
	}
}

// changed reports that only the state is new.
func (s *Supervisor) changed() {
	if s.o.Event != nil {
		s.o.Event(Event{Time: time.Now(), State: s.snapshot()})
	}
}

// snapshot returns the state that status shows.
func (s *Supervisor) snapshot() State {
	st := State{Run: s.dir.path, State: s.state, Command: s.rec.Command, Dir: s.rec.CheckpointDir, Pid: os.Getpid(), Attempt: s.rec.Attempt,
		Unsaved: s.rec.Unsaved, Failures: s.failures, Why: s.why, Quarantined: append([]uint64{}, s.rec.Quarantined...), Ranks: []control.RankState{}}
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
	st.Moves = s.snapMoves()
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
