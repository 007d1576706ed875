package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	"github.com/cairnrun/cairn/internal/supervise"
)

func runCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [flags] PROGRAM [ARGS]",
		Short: "run a program, on one or many hosts, and bring it back after failures",
		Long: `PROGRAM is a program, or the source of one in Go: a folder, files or an import
path. Source is built first so that it goes on where it was, without changes to
it (see 'cairn help build'); the run's folder has the name of what go build
would make, sim.cairn for ./cmd/sim. Without --every and --every-points it saves
as often as loses least for what a set costs (Daly's estimate): the first time
after about 13 s, which is also how much work a kill before that takes away.

Starts the ranks of PROGRAM, watches them, and starts them again from the
newest set when one of them crashes, is killed or stalls, or when a host is
lost. Flags stand before PROGRAM; what follows it belongs to the program ('--'
in between is dropped). A program that does not use Cairn is run too, and
restarted from its beginning; its ranks find CAIRN_RANK and CAIRN_SIZE in their
environment.

Everything about the run is in one folder, PROGRAM.cairn unless --run says
otherwise (named without the program's extension: sim.cairn for ./sim.bin): log,
output of the ranks, sets (unless the program or --dir puts them elsewhere). The
same command goes on where the run was stopped. Nothing of a run is discarded
unless it has finished, failed before its first point, or --fresh is given: then
a new one begins, and it says so. If the ranks have finished and cairn was killed
while it put their output together, or there was no room for that, the same command
completes it without starting them again. The folder may be moved or copied,
together with the program or its source. 'cairn status', 'checkpoint', 'stop' and
'migrate' work on that folder.

Ctrl-C, SIGTERM and 'cairn stop' let the ranks save and stop; a second Ctrl-C
kills them, and the last set remains. After a failure there is a pause, of 0.1 s
at first, doubling to 30 s until there is progress: a new set; and after a
failure by the program's own doing (an exit status, a crash) one from well
beyond the place of that failure, so that a program that always fails at one
place is given up after --retries. When ranks end with an exit status before
their first point, twice in a row, they are not started again. When stdout is a
pipe that nobody reads any more, the run goes on.

Ranks can be moved to other hosts while the run goes on ('cairn help migrate').
SIGUSR2 moves all of them off the hosts that RUN/leave lists; --leave-when names
a command that every host runs by /bin/sh, at every --leave-poll: when it exits
with 0, all ranks leave that host, as soon as others have room for them. It is
killed when it takes longer.

Ranks write stdout into files. When ranks are set back to a checkpoint, these
are cut back too, so that at the end they are what an uninterrupted run would
have written; lines that were shown already are not shown again, and a later
start shows those that were not, whatever ended the one before. With -o FILE
rank 0's stdout goes to FILE as it is written, and that of the others follows
when the run has finished; with %r in its name there is one file per rank.
With --json no output of the ranks is shown, only kept (in RUN/output, and by
-o): stdout has nothing but the run's state, when it has ended.

Other hosts are reached by ssh (or --rsh), need the same file system, and no
open ports for this; ranks of several hosts reach each other by TCP. With
--launcher mpirun or srun the ranks are started by these and can use the
cluster's own MPI. Open MPI starts no more ranks than there are cores unless it
is told to: --launcher-args=--oversubscribe.`,
		Example: `  cairn run ./sim                                     # one process
  cairn run --every 10m ./cmd/sim -grid 4096          # of a Go program's source, as it is
  cairn run -n 4 --every 10m ./sim -grid 4096         # four ranks, a checkpoint every ten minutes
  cairn run --hosts a:4,b:4 ./sim                     # eight ranks on two hosts
  cairn run -n 64 --launcher srun ./sim               # started by srun, with the cluster's MPI
  cairn run -n 4 -o result.txt ./sim                  # stdout of all ranks in one file
  cairn run --hosts a:4,b:4 --leave-when ./hot ./sim  # ranks leave hosts that get hot`,
		Annotations: map[string]string{exitCodes: `  0   finished
  74  stopped, but the state could not be saved (the disk is full, or --grace was
      over), and the work since the last set is lost; or finished, but the ranks' output could not be
      put together. The same command goes on from there
  75  stopped, or interrupted: the same command goes on, or starts from the
      beginning if no set was saved
  2   the command line is wrong, or there is no such program
  3   it could not be started: in use, another command's folder, an error of the
      system
  n   the run failed: the status of the rank that failed first in the last start
      (128 + the signal's number if it was killed by one; 1 if a host was lost
      or nothing moved)
`},
		Args: takesProgram,
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows PROGRAM is the program's
	r := runFlags{flags: f}
	o := &r.o
	f.IntVarP(&o.Ranks, "ranks", "n", 0, "start `N` ranks (default 1, or one per slot)")
	f.StringVar(&r.hosts, "hosts", "", "run on these hosts: `LIST` is a:4,b:4, names with numbers of slots")
	f.StringVar(&r.rsh, "rsh", "", "reach hosts by `COMMAND`, in which {host} is replaced (default ssh)")
	f.StringVar(&r.remote, "remote-cairn", "", "`PATH` of cairn on the other hosts (default: the same as here)")
	f.StringVar(&o.Launcher, "launcher", "fork", "`NAME` of who starts ranks: fork, mpirun or srun")
	f.StringVar(&r.launcherArgs, "launcher-args", "", "`ARGS` for mpirun or srun, with blanks between")
	f.StringVar(&r.transport, "transport", "", "`LIST` of transports for ranks, of shm, tcp, mpi, tcp-reopen (default: they choose)")
	f.DurationVar(&o.Every, "every", 0, "take a checkpoint every `DURATION`, such as 10m (default: see above)")
	f.Uint64Var(&o.EveryPoints, "every-points", 0, "take a checkpoint every `N` points")
	f.StringVar(&o.Run, "run", "", "the run's `FOLDER` (default ./PROGRAM.cairn, without PROGRAM's extension)")
	f.StringVar(&o.Dir, "dir", "", "`FOLDER` for sets of a program that names none (default RUN/ckpt)")
	f.StringVarP(&o.Out, "output", "o", "", "write the ranks' stdout to `FILE`; %r in its name is the rank")
	f.StringVar(&o.RankOutput, "rank-output", "", "put the ranks' output files into `FOLDER` and show nothing")
	f.IntVar(&r.retries, "retries", 10, "give up after `N` failures in a row without progress")
	f.DurationVar(&o.Stall, "stall", 0, "no point and no message for `DURATION` is a failure (default: never)")
	f.IntVar(&r.quarantine, "distrust", 3, "put a set aside when `N` starts from it failed without a new set (0: never)")
	f.DurationVar(&o.Grace, "grace", time.Minute, "`DURATION` for ranks to save and stop in")
	f.BoolVar(&o.Fresh, "fresh", false, "discard the run that is in the folder, with its sets")
	f.BoolVar(&o.Group, "group", false, "let the group of the run's directory read it, and what is made in it")
	f.BoolVar(&o.AnyOwner, "any-owner", false, "use a directory that another user owns, or that all users may write to")
	f.StringVar(&o.EvacuateWhen, "leave-when", "", "run `COMMAND` on every host now and then; when it exits with 0, ranks leave that host")
	f.DurationVar(&o.EvacuatePoll, "leave-poll", 30*time.Second, "`DURATION` between two runs of --leave-when")
	f.BoolVar(&r.plain, "no-prefix", false, "show output without the rank in front")
	r.make.declareFew(f)
	f.StringVar(&r.goArgs, "go-flags", "", "more `FLAGS` of go build, with blanks between, for a PROGRAM that is source")
	c.completeValues(cmd, "launcher", "fork", "mpirun", "srun")
	c.completeValues(cmd, "transport", transports...)
	c.completeDirs(cmd, "run", "dir", "rank-output")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error {
		r.counted = f.Changed("ranks")
		r.sourceFlags = f.Changed("tags") || f.Changed("take") || f.Changed("go-flags") || f.Changed("cpuprofile")
		var err error
		if r.makeOptions, err = r.make.options(f); err != nil {
			return err
		}
		r.makeOptions.Flags = append(r.makeOptions.Flags, strings.Fields(r.goArgs)...)
		return r.run(ctx, c)
	})
	return cmd
}

// runFlags are the flags of run that are not options as they stand.
type runFlags struct {
	flags                                       *pflag.FlagSet
	o                                           supervise.Options
	hosts, rsh, remote, launcherArgs, transport string
	retries, quarantine                         int
	plain                                       bool
	counted                                     bool // -n was given

	make        makeFlags
	goArgs      string
	sourceFlags bool // one of these was given
	makeOptions golang.MakeOptions
}

func (r *runFlags) run(ctx context.Context, c *call) error {
	o := &r.o
	if err := r.complete(c.args); err != nil {
		return err
	}
	if err := r.checkRunDir(); err != nil {
		return err
	}
	made, err := r.build(ctx, c)
	if err != nil {
		return err
	}
	gone, err := r.input(c, made)
	if err != nil {
		return err
	}
	defer gone()
	show := newScreen(c, r.plain)
	o.Event = show.event
	if o.RankOutput == "" && !c.json {
		o.Line = show.line
	}
	s, err := supervise.New(*o)
	if err != nil {
		if errors.Is(err, supervise.ErrOptions) {
			return usagef("run: %v", strings.TrimPrefix(err.Error(), supervise.ErrOptions.Error()+": "))
		}
		return err
	}
	if made != nil {
		if err := r.place(ctx, made, s.Dir()); err != nil {
			return err
		}
	}
	// Output that nobody reads is no reason to end. (A signal that is ignored
	// would stay ignored in helpers; one that is caught does not.)
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)
	defer watchEvacuate(s)()
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
		// The launchers of batch systems may send the same signal twice.
		for soon := time.Now().Add(time.Second); ; {
			select {
			case <-again:
				if time.Now().After(soon) {
					cancel()
					return
				}
			case <-ended:
				return
			}
		}
	}()
	res, err := s.Run(kill)
	show.close(ctx)
	if err != nil {
		var at *fs.PathError
		if out, _ := filepath.Abs(o.Out); o.Out != "" && errors.As(err, &at) && filepath.Dir(at.Path) == filepath.Dir(out) {
			return elsewhere(err, otherName)
		}
		return elsewhere(err, otherRun)
	}
	if c.json {
		st, err := supervise.Read(context.Background(), s.Dir())
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

// lateFlag says that what follows the program begins with a flag of run.
func (r *runFlags) lateFlag(args []string) string {
	if len(args) == 0 || !strings.HasPrefix(args[0], "-") {
		return ""
	}
	name, _, _ := strings.Cut(strings.TrimLeft(args[0], "-"), "=")
	if r.flags.Lookup(name) == nil && (len(name) != 1 || r.flags.ShorthandLookup(name) == nil) {
		return ""
	}
	return fmt.Sprintf("the program was given %s; if that is meant for cairn run, it stands before the program: cairn run %s … PROGRAM", args[0], args[0])
}

// checkRunDir refuses a folder of --run that is used for something else.
func (r *runFlags) checkRunDir() error {
	dir := r.o.Run
	if dir == "" {
		return nil
	}
	st, err := os.Stat(dir)
	if errors.Is(err, syscall.ENOTDIR) || err == nil && !st.IsDir() {
		return usagef("run: --run %s: a file is there; name a folder, which need not be there yet", dir)
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
		return usagef("run: --run %s: this folder holds other files (%s) and no run; name a folder that is empty or not there yet, such as %s",
			dir, other, filepath.Join(dir, "run.cairn"))
	}
	return nil
}

// runNames are what a run's folder may hold before there is a run.json.
var runNames = []string{"bin", "ckpt", "control.sock", "hosts", "leave", "lock", "log", "output", "run-copy.json.tmp", "run.json.tmp", "shown"}

// complete makes options of flags and arguments.
func (r *runFlags) complete(args []string) error {
	o := &r.o
	o.Command = args
	if len(args) > 1 && args[1] == "--" {
		o.Command = append([]string{args[0]}, args[2:]...)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("the path of cairn itself is not known: %w", err)
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
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"every", o.Every}, {"stall", o.Stall}, {"grace", o.Grace}, {"leave-poll", o.EvacuatePoll}} {
		if d.value < 0 {
			return usagef("run: --%s %v is below zero", d.name, d.value)
		}
	}
	if r.counted && o.Ranks < 1 {
		return usagef("run: -n %d; a run has at least one rank", o.Ranks)
	}
	if o.Grace == 0 {
		o.Grace = time.Nanosecond
	}
	// Zero means zero here, and the default there.
	o.Retries, o.Quarantine = r.retries, r.quarantine
	if r.retries <= 0 {
		o.Retries = -1
	}
	if r.quarantine <= 0 {
		o.Quarantine = -1
	}
	return nil
}

// transports are those that a run may be told to use.
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
