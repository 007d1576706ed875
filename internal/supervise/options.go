//go:build linux

package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise/output"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier/local"
	"github.com/cairnrun/cairn/internal/tier/policy"
	"github.com/cairnrun/cairn/internal/vfs"
)

// take makes the run directory belong to this run. The caller does this after
// the last helper of the earlier run has ended, and before the first attempt.
// take first records what it discards, so that the next start completes it
// after a crash.
func (s *Supervisor) take() error {
	if len(s.rec.Clear) > 0 {
		if err := s.record(); err != nil {
			return err
		}
		step.At("start.clearing")
		for _, dir := range s.rec.Clear {
			if err := errors.Join(store.Clear(s.dir.FS, dir), store.Open(s.dir.FS, dir, 0).RemoveEnd()); err != nil {
				return err
			}
		}
		if err := s.dir.DiscardOutput(s.rec.Output); err != nil {
			return err
		}
		step.At("start.cleared")
		s.rec.Clear = nil
	}
	if s.local == nil && s.rec.RequestedDir != s.dir.File("ckpt") { // from now on its disappearance can be noticed
		if err := rundir.MakeCheckpointDir(s.dir.FS, s.rec.RequestedDir); err != nil {
			return err
		}
		s.rec.Used = s.rec.Used || s.rec.CheckpointDir == s.rec.RequestedDir
	}
	s.owned = true
	s.history.begin()
	err := s.record()
	step.At("start.recorded")
	s.removeReplaced()
	return err
}

// New checks the options, locks the run directory and reads its record. The
// caller must call Run next.
func New(o Options) (*Supervisor, error) {
	s := &Supervisor{o: o, calls: make(chan func(), 64), over: make(chan struct{}), state: rundir.Starting, commits: commits{pending: make(map[uint64]*partialCheckpoint)},
		migrations: migrations{limits: usualLimits, watches: make(map[string]*evacuationWatch)}, overrides: make(map[string]hostOverrides)}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	dir, err := rundir.Open(s.o.Run, s.cwd, s.o.access())
	if errors.Is(err, rundir.ErrBusy) && s.repeatsJob() {
		return nil, fmt.Errorf("%w: %w", ErrStillRuns, err)
	}
	if err != nil {
		return nil, err
	}
	s.dir = dir
	dir.ChangedArgs, dir.AnyCommand = o.ChangedArgs, o.Proxy != nil
	if s.intent, err = dir.Claim(s.o.Command, s.n, s.o.Dir, s.o.Local, s.o.RankOutput, o.Fresh, s.scheduler.Job); err != nil {
		dir.Close()
		return nil, err
	}
	if err := s.checkHosts(); err != nil {
		dir.Close()
		return nil, err
	}
	s.rec = s.intent.Record
	s.history.open(dir.File(events.FileName), s.intent.New)
	if err := s.findRun(); err != nil {
		dir.Close()
		return nil, err
	}
	s.rec.Job = s.scheduler.Job
	if s.last = s.rec.Last; s.last != nil {
		s.addSaveTime(time.Duration(s.last.TookNS))
	}
	if s.rec.Local != "" {
		s.local = newLocalRun(s.rec)
		s.openTiers()
		s.rec.Shell, s.rec.RemoteHelper = s.o.RemoteShell, s.o.RemoteHelper
	} else if c, ok := s.newest(); ok && len(s.rec.Clear) == 0 && (s.last == nil || s.last.Index < c.Index) {
		s.foundCheckpoint(c) // a helper published it after its supervisor was gone
	}
	for i := range s.rec.Moves {
		m := s.rec.Moves[i]
		if !m.Over() {
			rundir.LostMove(&m)
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
	if s.intent.Kept {
		s.o.Fresh = false
	}
	if !s.intent.Finish && !s.intent.Over {
		s.rec.State, s.rec.Status, s.rec.Why, s.rec.BeforeFirstPoint, s.rec.Unsaved = rundir.Starting, 0, "", false, nil
	}
	if s.rec.Began.IsZero() {
		s.rec.Began = time.Now()
	}
	s.recordSettings(nil)
	s.recordHosts()
	return s, nil
}

// repeatsJob reports whether the run in the directory belongs to an earlier
// start of the scheduler's job.
func (s *Supervisor) repeatsJob() bool {
	rec, err := rundir.ReadRecord(s.o.Run)
	return err == nil && rec != nil && s.scheduler.Job.Repeats(rec.Job)
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
	program, err := o.Command[0], error(nil)
	if o.Proxy == nil {
		program, err = exec.LookPath(o.Command[0])
	}
	if err != nil {
		if st, e := os.Stat(o.Command[0]); e == nil && st.IsDir() {
			return optionError("%s is a directory without Go files; name a program, or the directory of a Go program's source", o.Command[0])
		}
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("%w: %w; make it executable (chmod +x), or name what runs it, as in 'cairn run python3 sim.py'", ErrOptions, err)
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
		o.Run = defaultRun(o.Command)
	}
	if o.Run, err = filepath.Abs(o.Run); err != nil {
		return err
	}
	if err := s.parseFrom(); err != nil {
		return err
	}
	if err := s.parseTiers(); err != nil {
		return err
	}
	if o.Local != "" {
		if o.Dir != "" {
			return optionError("--dir and --local are both given: name a directory that all hosts share, or one on each host")
		}
		if o.Local, err = filepath.Abs(o.Local); err != nil {
			return err
		}
		home := policy.Tier{Kind: policy.Local, Place: o.Local}
		o.Dir = local.CheckpointDir(home.RunDir(local.Name(o.Run)))
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
		// If this file cannot be written, nothing of an earlier run is removed.
		if st, err := os.Stat(filepath.Dir(o.Out)); err != nil {
			return optionError("-o %s: %v", o.Out, err)
		} else if !st.IsDir() {
			return optionError("-o %s: %s is not a directory", o.Out, filepath.Dir(o.Out))
		}
		if st, err := os.Stat(o.Out); err == nil && st.IsDir() {
			return optionError("-o %s: it is a directory; name a file", o.Out)
		}
	}
	o.Retries = cmp.Or(o.Retries, defaultRetries)
	o.Quarantine = cmp.Or(o.Quarantine, defaultQuarantine)
	if o.RemoteHelper == nil {
		o.RemoteHelper = o.Helper
	}
	if o.EvacuatePoll <= 0 {
		o.EvacuatePoll = defaultEvacuatePoll
	}
	return s.findGrace()
}

// prepareHosts settles hosts, slots and the number of ranks.
func (s *Supervisor) prepareHosts() error {
	o := &s.o
	s.n = o.Ranks
	if s.n < 0 || s.n > maxRanks {
		return optionError("%d ranks; 1 to %d are possible", s.n, maxRanks)
	}
	if o.Launcher != "" && o.Launcher != "fork" {
		kind := kindOf(o.Launcher)
		if kind == "" {
			return optionError("--launcher: there is no launcher %q; there are fork, mpirun, mpiexec and srun, and commands whose names begin so, such as mpirun.mpich", o.Launcher)
		}
		if len(o.Hosts) > 0 {
			return optionError("--launcher %s gets its hosts by --launcher-args, not by --hosts", o.Launcher)
		}
		s.n = max(s.n, 1)
		s.launcher = &launcher{name: o.Launcher, kind: kind, args: o.LauncherArgs}
		return nil
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
			return optionError("--hosts: %q is no host", h.Name)
		}
		if slices.ContainsFunc(s.hosts, func(x *host) bool { return x.name == h.Name }) {
			return optionError("--hosts: host %s is named twice; give it more slots (%s:%d)", h.Name, h.Name, max(2, 2*h.Slots))
		}
		slots := cmp.Or(h.Slots, max(1, (s.n+len(o.Hosts)-1)/len(o.Hosts)))
		sum += slots
		local := h.Name == "localhost" || h.Name == "127.0.0.1" || h.Name == own
		s.hosts = append(s.hosts, &host{s: s, name: h.Name, slots: slots, local: local})
	}
	s.n = cmp.Or(s.n, sum)
	if s.n > sum {
		return optionError("%d ranks, but the hosts have room for %d; give hosts more slots (%s:%d)", s.n, sum, s.hosts[0].name, s.n)
	}
	return nil
}

// defaultRun returns the name of the run directory of a command: that of its
// program, or of the Python script that it runs.
func defaultRun(command []string) string {
	program := command[0]
	if strings.HasPrefix(filepath.Base(program), "python") {
		script := slices.IndexFunc(command[1:], func(arg string) bool { return !strings.HasPrefix(arg, "-") || arg == "-c" || arg == "-m" })
		if script >= 0 && strings.HasSuffix(command[1+script], ".py") {
			program = command[1+script]
		}
	}
	return strings.TrimSuffix(filepath.Base(program), filepath.Ext(program)) + ".cairn"
}

// awaitOthers waits for helpers of an earlier supervisor.
func (s *Supervisor) awaitOthers(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- s.dir.AwaitHelpers(ctx, func(host, holder string) {
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

// access returns who else may use the run's directories.
func (o *Options) access() vfs.Access { return vfs.AccessFromEnv().With(o.Group, o.AnyOwner) }

// sink returns where output goes.
func (o *Options) sink() output.Options {
	return output.Options{Run: o.Run, RankOutput: o.RankOutput, Mirror: o.Local != "", Out: o.Out, Delay: o.Delay, Line: o.Line, Part: o.Part}
}
