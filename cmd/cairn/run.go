package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cairnrun/cairn/internal/compiler/golang"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/engine"
	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/supervise"
	"github.com/cairnrun/cairn/internal/supervise/client"
)

func runCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [flags] PROGRAM [ARGS]",
		Short: "run a program on one or many hosts, and restart it after failures",
		Long: `PROGRAM is an executable file in any language, or the Go source of a program: a
directory, files or an import path. Cairn first builds the source, with
checkpointing and without changes to it (see 'cairn help build').

'cairn run' starts the ranks of PROGRAM and watches them. The ranks are the
processes of the run; there is one unless -n or --hosts asks for more. When a rank
crashes, is killed or stalls, or a host is lost, 'cairn run' restarts all ranks
from the newest checkpoint. Flags stand before PROGRAM; what follows PROGRAM
belongs to the program (a '--' between them is dropped). A program that does not
use Cairn runs, too, and restarts from its beginning. Its ranks find CAIRN_RANK
and CAIRN_SIZE in their environment.

Without --every and --every-points, Cairn measures what a checkpoint costs, and
chooses the interval at which the least time is lost (Young's and Daly's optimum).
The first checkpoint comes after about 13 s, or later if the state is large.

A line 'checkpoint 3 committed: …' tells the size of the program's variables, the
bytes that were added to the disk, for how long the program was paused, after what
time the checkpoint was durable, counted from the beginning of the pause, and the
reason for it ("time": the interval had passed). On a terminal, a status line has
the same, and -v shows all lines.

Every flag, but for those that discard or change a run, can also be set by an
environment variable (CAIRN_KEEP for --keep, CAIRN_EVERY_POINTS for
--every-points), or in a file cairn.toml beside the program (keep = 3). The flag
comes first, then the environment, the file, and what the program itself says;
'cairn status -v' shows which it was (docs/settings.md).

The run directory holds the log, the ranks' output and the checkpoints (unless
--dir or the program puts them elsewhere). Its name is PROGRAM.cairn without the
program's extension: sim.cairn for ./sim.bin or ./cmd/sim. --run names another. The
same command resumes a run that was stopped. Cairn discards a run only if it has
finished, if it failed before its first point, or with --fresh, and reports that.
If cairn was killed after the ranks had finished, or the disk was full then, the
same command completes the output and does not start the ranks again. The run
directory may be moved or copied, together with the program or its source.

Ctrl-C, SIGTERM and 'cairn stop' make the ranks save and stop. They have as much
time as --grace says, or as Slurm, systemd or Kubernetes gives, if one of these
has started cairn (docs/schedulers.md). If the last checkpoints took longer than
that, Cairn begins no other one, and the run resumes from the last one. A second
Ctrl-C kills the ranks; the last checkpoint remains.

After a failure Cairn waits before it restarts the ranks: 0.1 s at first, then
twice as long each time, up to 30 s, until there is progress. Progress is a new
checkpoint. If the program itself failed (by an exit status or a crash), the new
checkpoint must be from well beyond the place of that failure. So Cairn gives up a
program that always fails at one place, after --retries restarts. If ranks end
with an exit status before their first point, twice in a row, Cairn does not
restart them. If nobody reads stdout any more, the run continues.

Ranks can move to other hosts while the run continues ('cairn help migrate').
SIGUSR2 evacuates the hosts that RUN/evacuate lists. --evacuate-when names a
command that every host runs with /bin/sh, every --evacuate-poll. When it exits
with 0, all ranks leave that host, as soon as other hosts have room for them.
Cairn kills a command that takes longer than --evacuate-poll.

Ranks write stdout into files. When ranks return to a checkpoint, Cairn cuts these
files back, too. So at the end they hold what an uninterrupted run would have
written. Cairn shows each line once: a later start shows only lines that no
earlier one has shown. On a terminal Cairn shows output at once. What is in a pipe
or a redirected file cannot be taken back: it gets what was printed before the
last checkpoint, and the rest when the run has finished or failed. With --live it
gets all at once, and after a restart some lines twice if the program prints them
in another order. With -o FILE, Cairn writes rank 0's stdout to FILE while the run
continues, and appends that of the other ranks when the run has finished.
With %r in the name of FILE there is one file per rank. With --json, no output of
the ranks is shown (it is in RUN/output, and in -o FILE): stdout has only the
run's state, at the end.

Cairn reaches other hosts by ssh (or --rsh), and needs no other open port for
this. The hosts share a file system, or you name a directory with --local DIR:
then each host keeps the checkpoints of its ranks in DIR, and only this host needs
the run directory. If ranks restart on other hosts, Cairn copies their files
there, by TCP (docs/tiers.md). Ranks on different hosts connect by TCP.

--tiers says on which storage tiers (places) checkpoints are kept, as a list of
items: local=DIR, a directory on each host; partner=N, copies on N other hosts;
rs=N+K, shards (pieces) on N+K hosts, of which any K may be lost; shared=DIR, a
directory that all hosts see; s3=s3://BUCKET/PREFIX, an object store. Options
follow an item after a colon: every=N, every N-th checkpoint; keep=N, the newest
N; rate=SIZE, bytes per second; key=FILE, encrypt with the key in FILE. Hosts copy
checkpoints to the tiers in the background. If a host is lost with its disk, the
run resumes from the newest checkpoint on a tier (docs/tiers.md).

If the run directory is lost, too, the same command finds the run on a shared
directory or an object store, and resumes it. On other hosts, or with another run
directory, --from names this place. The run then keeps its checkpoints there, as
with --tiers; without --local, this host also has them in RUN/local. Only one
'cairn run' can have the run: one that still runs elsewhere stops. With PLACE@12
the run goes back to checkpoint 12, and newer ones do not count any more.
If --from names the run directory or checkpoint directory of another run, Cairn
copies its newest checkpoint to RUN/from, and resumes the copy: it is a run of its
own, and the other one may continue.

With --detach, 'cairn run' leaves the terminal as soon as the ranks run; 'cairn
attach' shows the run, and 'cairn logs' its output. If the terminal is lost, the
run continues in the background; with --hangup stop, it saves and stops.

Every event of the run (a start, a checkpoint, a failure, …) is a JSON document in
RUN/events.jsonl. --events writes them elsewhere, too, and --on-event runs a
command for each: to send a mail, or to start something else. The run never waits
for them (docs/events.md).

With --launcher mpirun or srun, these programs start the ranks, and ranks can use
the cluster's MPI library. Open MPI refuses to start more ranks than there are
cores, unless you add --launcher-args=--oversubscribe. If the system has MPICH
beside Open MPI, name its command: --launcher mpirun.mpich, or a path. When srun
cannot reach a node any more, the next start leaves it out, if the other nodes
have room.`,
		Example: `  cairn run ./sim                                        # one process
  cairn run --every 10m ./cmd/sim -grid 4096             # a Go program's source, as it is
  cairn run -n 4 --every 10m ./sim -grid 4096            # four ranks, a checkpoint every ten minutes
  cairn run --hosts a:4,b:4 ./sim                        # eight ranks on two hosts
  cairn run --hosts a:4,b:4 --local /scratch/$USER ./sim # checkpoints on the hosts' own disks
  cairn run --hosts a:4,b:4 --tiers local=/tmp/me,shared=/gpfs/me ./sim
  cairn run --from s3://bucket/sim ./sim                 # only the object store is left
  cairn run -n 64 --launcher srun ./sim                  # started by srun, with the cluster's MPI
  cairn run -n 4 -o result.txt ./sim                     # stdout of all ranks in one file
  cairn run --keep 5 --compression zstd ./sim            # five checkpoints, compressed
  cairn run --detach ./sim                               # in the background; 'cairn attach' shows it
  cairn run --http localhost:8077 ./sim                  # and watch it in a browser
  cairn run --on-event 'test $CAIRN_EVENT != failure || mail -s sim me' ./sim
  cairn run --hosts a:4,b:4 --evacuate-when ./hot ./sim  # ranks leave hosts that get hot`,
		Annotations: map[string]string{exitCodes: `  0   finished
  74  stopped, but the state could not be saved (the disk is full, or the time was
      too short), and the work since the last checkpoint is lost; or finished, but
      the ranks' output could not be completed. The same command continues from
      there
  75  stopped or interrupted, or mpirun or srun could not start the ranks again;
      the same command resumes the run, or starts from the beginning if there is
      no checkpoint
  2   the command line is wrong, or there is no such program
  3   the run could not start: it is in use, the directory belongs to another
      command, or an error of the system
  n   the run failed: the status of the rank that failed first in the last start
      (128 + the signal's number if a signal killed it; 1 if a host was lost or
      the ranks stalled)
`},
		Args: takesProgram,
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows PROGRAM is the program's
	r := runFlags{flags: f}
	o := &r.o
	f.IntVarP(&o.Ranks, "ranks", "n", 0, "start `N` ranks (default 1, or one per slot)")
	f.StringVar(&r.hosts, "hosts", "", "run on these hosts: `LIST` is a:4,b:4, names with their slots")
	f.StringVar(&r.rsh, "rsh", "", "reach hosts by `COMMAND`, in which {host} stands for the host (default ssh)")
	f.StringVar(&r.remote, "remote-cairn", "", "`PATH` of cairn on the other hosts (default: as here)")
	f.StringVar(&o.Launcher, "launcher", "fork", "start ranks by `NAME`: fork, mpirun, mpiexec, srun, or a command such as mpirun.mpich")
	f.StringVar(&r.launcherArgs, "launcher-args", "", "`ARGS` for mpirun or srun, separated by spaces")
	f.StringVar(&r.transport, "transport", "", "use only these transports between ranks: `LIST` of shm, tcp, mpi, tcp-reopen (default: each pair chooses)")
	declareLibrary(f)
	f.StringVar(&o.Run, "run", "", "the run `DIRECTORY` (default ./PROGRAM.cairn, without PROGRAM's extension)")
	f.StringVar(&o.Dir, "dir", "", "checkpoint `DIRECTORY` of a program that names none (default RUN/ckpt)")
	f.StringVar(&o.Local, "local", "", "keep checkpoints in `DIRECTORY` on each host, which hosts do not share, in place of --dir; several hosts keep copies for each other")
	f.StringVar(&o.Tiers, "tiers", "", "keep checkpoints on storage tiers: `POLICY` is local=DIR,shared=DIR:every=4, or @FILE")
	f.StringVar(&o.From, "from", "", "resume the run at `PLACE`, in a new run directory: s3://BUCKET/PREFIX, or a run's directory on a shared tier; PLACE@12: from checkpoint 12; or a copy of the run of a run directory or checkpoint directory")
	f.StringVarP(&o.Out, "output", "o", "", "write the ranks' stdout to `FILE`; %r in its name is the rank")
	f.StringVar(&o.RankOutput, "rank-output", "", "put the ranks' output files into `DIRECTORY` and show nothing")
	f.IntVar(&r.retries, "retries", 10, "give up after `N` failures in a row without progress")
	f.DurationVar(&o.Stall, "stall", 0, "treat a rank as failed if it has no point and no message for `DURATION` (default: never)")
	f.IntVar(&r.quarantine, "quarantine", 3, "put a checkpoint aside when `N` starts from it failed before the next checkpoint (0: never)")
	f.DurationVar(&o.Grace, "grace", 0, "give ranks `DURATION` to save and stop (default: what Slurm, systemd or Kubernetes give; else 1m0s)")
	f.BoolVar(&o.Fresh, "fresh", false, "discard the run in the directory, with its checkpoints")
	f.BoolVar(&r.changedSource, "changed-source", false, "resume with changed source, if nothing has changed that the checkpoint may hold")
	f.BoolVar(&o.ChangedArgs, "changed-args", false, "resume a compiled program with changed arguments; flags of package flag get the new values")
	f.BoolVar(&o.Group, "group", false, "let the group of the run directory read the directory and its files")
	f.BoolVar(&r.outside, "outside-files", false, "let a restart from a checkpoint of another place change files outside the working directory")
	f.BoolVar(&o.AnyOwner, "any-owner", false, "use a directory that another user owns, or that all users may write to")
	f.StringVar(&o.EvacuateWhen, "evacuate-when", "", "run `COMMAND` on every host at intervals; when it exits with 0, ranks leave that host")
	f.DurationVar(&o.EvacuatePoll, "evacuate-poll", 30*time.Second, "`DURATION` between two runs of --evacuate-when")
	f.BoolVar(&r.plain, "no-prefix", false, "show output without the rank in front")
	f.BoolVarP(&r.verbose, "verbose", "v", false, "show a line for each checkpoint on a terminal, too")
	f.BoolVar(&r.live, "live", false, "show output at once, if stdout is not a terminal, too; a restart may repeat lines")
	f.BoolVar(&r.detach, "detach", false, "continue in the background as soon as the ranks run; 'cairn attach' shows the run")
	f.StringVar(&r.hangup, "hangup", "continue", "what to do when the terminal is gone (a lost ssh): `WHAT` is continue, or stop: save and stop")
	f.StringVar(&r.http, "http", "", "show the run on a page at `ADDRESS`, such as localhost:8077; without a host, for this machine only")
	r.events.declare(f)
	r.make.declareFew(f)
	f.StringVar(&r.goArgs, "go-flags", "", "more `FLAGS` of go build, separated by spaces, if PROGRAM is source")
	c.completeValues(cmd, "launcher", "fork", "mpirun", "srun")
	c.completeValues(cmd, "transport", transports...)
	c.completeValues(cmd, "hangup", "continue", "stop")
	c.completeDirs(cmd, "run", "dir", "local", "rank-output")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error {
		given, err := settle(f, c.args[0])
		if err != nil {
			return err
		}
		o.Settings = given.list
		r.background = isDetached()
		if !r.detach || r.background { // else the process in the background says it
			c.sayFile(o.Settings)
			c.sayVariables(f, os.Environ())
		}
		r.counted = f.Changed("ranks")
		r.sourceFlags = f.Changed("tags") || f.Changed("take") || f.Changed("go-flags") || f.Changed("cpuprofile")
		if r.makeOptions, err = r.make.options(f); err != nil {
			return given.name(err)
		}
		r.makeOptions.Flags = append(r.makeOptions.Flags, strings.Fields(r.goArgs)...)
		return given.name(r.run(ctx, c))
	})
	return cmd
}

// runFlags are the flags of run that are not options of the supervisor.
type runFlags struct {
	flags                                       *pflag.FlagSet
	o                                           supervise.Options
	hosts, rsh, remote, launcherArgs, transport string
	retries, quarantine                         int
	plain, live, verbose, detach, outside       bool
	background                                  bool // this is the process that --detach started
	http, hangup                                string
	counted                                     bool // -n was given

	events      eventFlags
	make        makeFlags
	goArgs      string
	sourceFlags bool // one of these was given
	makeOptions golang.MakeOptions

	changedSource bool // resume although the source has changed
}

func (r *runFlags) run(ctx context.Context, c *call) error {
	o := &r.o
	if r.flags.Changed("from") && o.From == "" { // a variable that is not set, say
		return usagef("run: --from is empty: name the place of a run, or leave --from out to begin a new run")
	}
	if err := r.complete(c.args); err != nil {
		return err
	}
	if err := r.checkRunDir(); err != nil {
		return err
	}
	if r.detach && !r.background {
		return detach(ctx, c)
	}
	if r.events.to == "-" && c.json {
		return usagef("run: --json and --events - both want stdout; name a file for the events")
	}
	var page net.Listener
	if r.http != "" {
		var err error
		if page, err = listenHTTP("run", r.http); err != nil {
			return err
		}
		defer page.Close()
	}
	nohup := ignoreHangup(r.hangup == "stop")
	made, err := r.build(ctx, c)
	if err != nil {
		return err
	}
	gone, err := r.input(c, made)
	if err != nil {
		return err
	}
	defer gone()
	if o.ChangedArgs {
		os.Setenv(control.EnvChangedArgs, "1") // for the ranks
	}
	if r.outside {
		os.Setenv(engine.EnvOutside, "1") // for the ranks
	} else {
		os.Unsetenv(engine.EnvOutside) // CAIRN_OUTSIDE_FILES=0, or nothing
	}
	show := newScreen(c, r.plain, r.verbose)
	var first []*events.Event
	pass := func(e *events.Event) { first = append(first, e) }
	left := false // the other command, by detach
	o.Event = func(e supervise.Event) {
		show.event(e)
		if e.Kind != "" {
			pass(&e.Event)
		}
		if r.background && e.Kind == events.Start && !left {
			left = true
			show.main.note(func() {
				if err := goBackground(c, e.Run.Run); err != nil {
					show.note(fmt.Sprintf("the run cannot continue in the background: %v", err))
				}
			})
		}
	}
	if o.RankOutput == "" && !c.json && r.events.to != "-" && (!r.background || c.stdout.regular()) {
		o.Line = show.line
		if show.stdout {
			o.Part = show.incomplete
		}
	}
	o.Delay = !r.live && (o.Out != "" || !isTerminal(c.stdout.w))
	s, err := newSupervisor(ctx, c, *o)
	if err != nil {
		if errors.Is(err, supervise.ErrOptions) {
			return usagef("run: %v", strings.TrimPrefix(err.Error(), supervise.ErrOptions.Error()+": "))
		}
		return err
	}
	show.has(s.Ranks())
	pass, passed, err := r.events.start(c, s.Dir(), show.remark)
	if err != nil {
		return err
	}
	for _, e := range first {
		pass(e)
	}
	if made != nil {
		if err := r.place(ctx, c, made, s.Dir()); err != nil {
			return err
		}
	}
	if page != nil {
		defer serveWeb(page, s.Dir(), func(text string) { fmt.Fprintf(c.stderr, "cairn: %s\n", text) })()
	}
	// Output that nobody reads is no reason to end. (A signal that is
	// ignored would stay ignored in helpers; one that is caught does not.)
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)
	defer watchEvacuate(s)()
	if !nohup {
		defer onHangup(r.hangup == "stop", s)()
	}
	kill, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-ctx.Done():
		case <-ended:
			return
		}
		again := make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(again)
		s.Stop("interrupted")
		// Launchers may send the same signal twice. Batch systems send SIGTERM
		// again and again, and SIGKILL when the time is over.
		for soon := time.Now().Add(time.Second); ; {
			select {
			case sig := <-again:
				if sig == os.Interrupt && time.Now().After(soon) {
					cancel()
					return
				}
			case <-ended:
				return
			}
		}
	}()
	res, err := s.Run(kill)
	passed()
	show.close(ctx)
	if err != nil {
		var at *fs.PathError
		if out, _ := filepath.Abs(o.Out); o.Out != "" && errors.As(err, &at) && filepath.Dir(at.Path) == filepath.Dir(out) {
			return elsewhere(err, otherName)
		}
		return elsewhere(err, otherRun)
	}
	if c.json {
		st, err := client.Read(context.Background(), s.Dir())
		if err == nil {
			err = c.document(st)
		}
		if err != nil {
			return err
		}
	}
	if res.Status == 0 {
		return nil
	}
	e := statusError{status: res.Status}
	if c.quiet {
		e.text = strings.TrimSuffix(fmt.Sprintf("%s: %s", res.State, res.Why), ": ")
	}
	if late := r.lateFlag(o.Command[1:]); late != "" && res.BeforeFirstPoint {
		e.text = strings.TrimPrefix(e.text+"; "+late, "; ")
	}
	return e
}

// busyEvery is the time between two checks whether a run directory is free.
const busyEvery = time.Second

// newSupervisor makes the supervisor. If an earlier start of the scheduler's
// job still runs, it waits for its end.
func newSupervisor(ctx context.Context, c *call, o supervise.Options) (*supervise.Supervisor, error) {
	for told := false; ; {
		s, err := supervise.New(o)
		if !errors.Is(err, supervise.ErrStillRuns) {
			return s, err
		}
		if !told && !c.quiet {
			told = true
			fmt.Fprintf(c.stderr, "cairn: waiting: %s\n", describe(err))
		}
		select {
		case <-ctx.Done():
			return nil, statusError{status: supervise.StoppedStatus, text: fmt.Sprintf("interrupted: %v", err)}
		case <-time.After(busyEvery):
		}
	}
}

// lateFlag returns a hint if the program's first argument is a flag of run.
func (r *runFlags) lateFlag(args []string) string {
	if len(args) == 0 || !strings.HasPrefix(args[0], "-") {
		return ""
	}
	name, _, _ := strings.Cut(strings.TrimLeft(args[0], "-"), "=")
	if r.flags.Lookup(name) == nil && (len(name) != 1 || r.flags.ShorthandLookup(name) == nil) {
		return ""
	}
	return fmt.Sprintf("%s was passed to the program; to pass it to cairn run, write it before the program: cairn run %s … PROGRAM", args[0], args[0])
}

// checkRunDir refuses a --run directory that is used for something else.
func (r *runFlags) checkRunDir() error {
	dir := r.o.Run
	if dir == "" {
		return nil
	}
	st, err := os.Stat(dir)
	if errors.Is(err, syscall.ENOTDIR) || err == nil && !st.IsDir() {
		return usagef("run: --run %s: this is a file; name a directory (it need not exist)", dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil { // it is not there, or what is wrong shows when it is written
		return nil
	}
	other := ""
	for _, e := range entries {
		switch name := e.Name(); {
		case name == "run.json" || name == "run-copy.json":
			return nil
		case !slices.Contains(runNames, name) && !strings.HasPrefix(name, "."):
			other = name
		}
	}
	if other != "" {
		return usagef("run: --run %s: this directory holds other files (%s) and no run; name one that is empty or does not exist, such as %s",
			dir, other, filepath.Join(dir, "run.cairn"))
	}
	return nil
}

// runNames are the files that a run directory may hold without a run.json.
var runNames = []string{"bin", "ckpt", "control.sock", "detached.log", "evacuate", "events.jsonl", "hosts", "lock", "log", "output", "output-offsets", "requeue.lock", "run-copy.json.tmp", "run.json.tmp"}

// complete turns flags and arguments into options.
func (r *runFlags) complete(args []string) error {
	o := &r.o
	o.Command = args
	if len(args) > 1 && args[1] == "--" {
		o.Command = append([]string{args[0]}, args[2:]...)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find the path of the cairn command itself: %w", err)
	}
	o.Helper = []string{self, hostName}
	if r.remote != "" {
		o.RemoteHelper = []string{r.remote, hostName}
	}
	o.RemoteShell = strings.Fields(r.rsh)
	o.LauncherArgs = strings.Fields(r.launcherArgs)
	if o.Transports, err = parseTransports(r.transport); err != nil {
		return err
	}
	if o.Hosts, err = parseHosts(r.hosts); err != nil {
		return err
	}
	if name, ok := strings.CutPrefix(o.Tiers, "@"); ok {
		text, err := os.ReadFile(name)
		if err != nil {
			return usagef("run: --tiers: %v", err)
		}
		o.Tiers = string(text)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"stall", o.Stall}, {"grace", o.Grace}, {"evacuate-poll", o.EvacuatePoll}} {
		if d.value < 0 {
			return usagef("run: --%s %v is negative", d.name, d.value)
		}
	}
	for name, value := range map[string]int{"retries": r.retries, "quarantine": r.quarantine} {
		if value < 0 {
			return usagef("run: --%s %d is negative", name, value)
		}
	}
	if r.hangup != "continue" && r.hangup != "stop" {
		return usagef("run: --hangup %s: write continue or stop", r.hangup)
	}
	if r.detach && r.events.to == "-" {
		return usagef("run: --detach leaves this terminal, so nothing can be written to stdout; name a file for the events")
	}
	if r.counted && o.Ranks < 1 {
		return usagef("run: -n %d: a run has at least one rank", o.Ranks)
	}
	// A zero flag means zero; a zero option means the default.
	if r.flags.Changed("grace") {
		o.Grace = cmp.Or(o.Grace, time.Nanosecond)
	}
	o.Retries, o.Quarantine = r.retries, r.quarantine
	if r.retries <= 0 {
		o.Retries = -1
	}
	if r.quarantine <= 0 {
		o.Quarantine = -1
	}
	return nil
}

// transports are the values of --transport.
var transports = []string{"shm", "tcp", "mpi", "tcp-reopen"}

// parseTransports reads a list like shm,tcp.
func parseTransports(list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	var out []string
	for item := range strings.SplitSeq(list, ",") {
		name := strings.TrimSpace(item)
		if !slices.Contains(transports, name) {
			return nil, usagef("run: --transport: there is no transport %q%s; there are %s", name, suggest(name, transports, ""), strings.Join(transports, ", "))
		}
		out = append(out, name)
	}
	return out, nil
}

// parseHosts reads a list like a:4,b:4,c. A name may be an IPv6 address in
// brackets.
func parseHosts(list string) ([]supervise.Host, error) {
	if list == "" {
		return nil, nil
	}
	var out []supervise.Host
	for item := range strings.SplitSeq(list, ",") {
		h := supervise.Host{Name: strings.TrimSpace(item)}
		if i := strings.LastIndexByte(h.Name, ':'); i >= 0 && !strings.HasSuffix(h.Name, "]") {
			n, err := strconv.Atoi(h.Name[i+1:])
			if err != nil || n < 1 {
				return nil, usagef("run: --hosts: %q has no number of slots after the colon; write a:4,b:4", item)
			}
			h.Name, h.Slots = h.Name[:i], n
		}
		h.Name = strings.Trim(h.Name, "[]")
		if h.Name == "" {
			return nil, usagef("run: --hosts: %q names no host; write a:4,b:4", item)
		}
		out = append(out, h)
	}
	return out, nil
}
