package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/supervise"
	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

func init() { runCommands = append(runCommands, attachCommand, logsCommand) }

// followEvery is the time between two looks at output files.
const followEvery = 200 * time.Millisecond

func attachCommand(c *call) *cobra.Command {
	return &cobra.Command{
		Use:   "attach [RUN]",
		Short: "show the output and the events of a run, as 'cairn run' does",
		Long: `Shows what a run prints and what happens to it, from now on, as 'cairn run' itself
does: the program's output on stdout, events on stderr, and on a terminal a status
line. The run may have been started with --detach, or in another terminal. Ctrl-C
ends this command, and the run continues. When the run ends, or if it is already
over, this command ends with the run's exit status. RUN is the run directory that
'cairn run' made; if left out, the only *.cairn directory here.`,
		Example: `  cairn run --detach ./sim && cairn attach
  cairn attach sim.cairn`,
		Args:              takes(0, 1),
		ValidArgsFunction: completeRuns,
		Annotations: map[string]string{exitCodes: `  2  the command line is wrong, or the run failed with this status
  3  there is no such run, or an error of the system
  n  the run's exit status: 0 finished, 74 or 75 stopped (see 'cairn help run');
     after Ctrl-C 0, and the run continues
`},
		RunE: c.does(attach),
	}
}

func logsCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "logs [flags] [RUN]",
		Short: "print the output of a run's program",
		Long: `Prints what the program of a run has written to stdout, from the beginning, each
line once, whether the run is running or not; with several ranks, rank after rank.
RUN is the run directory that 'cairn run' made; if left out, the only *.cairn
directory here.`,
		Example: `  cairn logs                 # all that the program has printed
  cairn logs -f              # and what it prints from now on, until the run ends
  cairn logs --events        # what has happened to the run`,
		Args:              takes(0, 1),
		ValidArgsFunction: completeRuns,
	}
	var l logs
	f := cmd.Flags()
	f.BoolVarP(&l.follow, "follow", "f", false, "continue with what is printed, until the run ends")
	f.IntVar(&l.rank, "rank", -1, "only the output of rank `N` (default: all ranks)")
	f.Lookup("rank").DefValue = "0" // not shown, unlike -1, which says nothing to users
	f.BoolVar(&l.stderr, "stderr", false, "what the program has written to stderr")
	f.BoolVar(&l.events, "events", false, "what has happened to the run, in place of the program's output")
	cmd.RunE = c.does(l.print)
	return cmd
}

// logs are the flags of the command logs.
type logs struct {
	follow, stderr, events bool
	rank                   int
}

func (l *logs) print(ctx context.Context, c *call) error {
	run, st, err := c.theState(ctx)
	if err != nil {
		return err
	}
	if c.json {
		return usagef("logs: output is text; %s has the events as JSON", filepath.Join(run, events.FileName))
	}
	if l.rank >= len(st.Ranks) || l.rank < -1 {
		return usagef("logs: --rank %d: the run has the ranks 0 to %d", l.rank, len(st.Ranks)-1)
	}
	if l.events {
		return l.printEvents(ctx, c, run)
	}
	var files []*outputFile
	for r := range st.Ranks {
		if l.rank < 0 || r == l.rank {
			files = append(files, newOutputFile(st.Output, r, l.stream()))
		}
	}
	prefix := l.rank < 0 && len(files) > 1
	over := func() bool { return !l.follow }
	for {
		last := over()
		for _, f := range files {
			f.lines(last, func(line []byte) {
				if prefix {
					c.printf("[%d] ", f.rank)
				}
				c.stdout.Write(line)
			})
		}
		if last || c.stdout.err != nil {
			return nil
		}
		if over, err = awaitMore(ctx, run); err != nil {
			return err
		}
	}
}

func (l *logs) stream() int {
	if l.stderr {
		return control.Stderr
	}
	return control.Stdout
}

// printEvents prints the texts of the run's history.
func (l *logs) printEvents(ctx context.Context, c *call, run string) error {
	reader := events.NewReader(filepath.Join(run, events.FileName))
	over := func() bool { return !l.follow }
	for {
		last := over()
		list, _, err := reader.Next()
		if err != nil {
			return err
		}
		for _, e := range list {
			c.printf("%s  %s\n", e.Time.Local().Format("2006-01-02 15:04:05.000"), printable(e.Text))
		}
		if last || c.stdout.err != nil {
			return nil
		}
		if over, err = awaitMore(ctx, run); err != nil {
			return err
		}
	}
}

// awaitMore waits before the next look at a run. The function that it returns
// says whether the run was over at that time, so that this look is the last
// one.
func awaitMore(ctx context.Context, run string) (over func() bool, err error) {
	select {
	case <-ctx.Done():
		return func() bool { return true }, nil
	case <-time.After(followEvery):
	}
	st, err := client.Read(ctx, run)
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	return func() bool { return ctx.Err() != nil || !supervised(st) }, nil
}

// supervised reports whether a supervisor has the run.
func supervised(st *control.RunState) bool {
	v := topView{state: st}
	return v.live() || st != nil && st.State == rundir.Silent
}

// attach shows a run until it ends.
func attach(ctx context.Context, c *call) error {
	if c.json {
		return usagef("attach: output is text; 'cairn status --json' has the state as JSON")
	}
	run, st, err := c.theState(ctx)
	if err != nil {
		return err
	}
	if !supervised(st) {
		return attachEnded(c, run, st)
	}
	show := newScreen(c, false, false)
	reader := events.NewReader(filepath.Join(run, events.FileName))
	if _, _, err := reader.Next(); err != nil { // only what comes from now on
		return err
	}
	show.event(supervise.Event{Run: *st})
	var files []*outputFile
	for r := range st.Ranks {
		for _, stream := range []int{control.Stdout, control.Stderr} {
			f := newOutputFile(st.Output, r, stream)
			f.skip()
			files = append(files, f)
		}
	}
	show.remark(fmt.Sprintf("attached to %s, which is %s; Ctrl-C ends this command, and the run continues", run, st.State))
	var end *events.Event
	for over := false; ; {
		list, _, err := reader.Next()
		if err != nil {
			show.close(ctx)
			return err
		}
		for _, f := range files {
			f.lines(over, func(line []byte) {
				show.line(f.rank, f.stream, bytes.TrimSuffix(line, []byte("\n")), func(bool) {})
			})
		}
		for _, e := range list {
			show.event(supervise.Event{Event: e, Run: *st})
			if e.Kind == events.End {
				end = &e
			}
		}
		if over {
			break
		}
		select {
		case <-ctx.Done():
			show.remark("detached; the run continues")
			show.close(ctx)
			return nil
		case <-time.After(followEvery):
		}
		now, err := client.Read(ctx, run)
		if err != nil && ctx.Err() == nil {
			show.close(ctx)
			return err
		}
		if now != nil {
			st = now
			show.event(supervise.Event{Run: *st})
			over = !supervised(st)
		}
	}
	show.close(ctx)
	switch {
	case end != nil && end.Status == 0:
		return nil
	case end != nil:
		return statusError{status: end.Status}
	}
	return errors.New("the supervisor of the run was killed; the same 'cairn run' command resumes it")
}

// attachEnded ends with the status of a run that is over.
func attachEnded(c *call, run string, st *control.RunState) error {
	list, _, err := events.NewReader(filepath.Join(run, events.FileName)).Next()
	if err != nil {
		return err
	}
	if len(list) == 0 || list[len(list)-1].Kind != events.End || st.State == rundir.Interrupted {
		return fmt.Errorf("%s is %s, and there is nothing to attach to; the same 'cairn run' command resumes it, and 'cairn logs' prints its output", run, st.State)
	}
	end := list[len(list)-1]
	if !c.quiet {
		c.notef("%s: it is over: %s; 'cairn logs %s' prints its output", run, printable(end.Text), run)
	}
	if end.Status == 0 {
		return nil
	}
	return statusError{status: end.Status}
}

// outputFile is a rank's output that is read while it grows. A rank that goes
// back to a checkpoint cuts it, and prints again what was shown before; only
// what is beyond that is shown.
type outputFile struct {
	name         string
	rank, stream int
	offset       int64
}

func newOutputFile(dir string, rank, stream int) *outputFile {
	return &outputFile{name: rundir.OutputFile(dir, rank, stream), rank: rank, stream: stream}
}

// skip goes to the end of the last whole line.
func (f *outputFile) skip() { f.lines(false, func([]byte) {}) }

// lines calls show for each new line, with its newline. With all, the last line
// need not be complete.
func (f *outputFile) lines(all bool, show func([]byte)) {
	file, err := os.Open(f.name)
	if err != nil {
		return // the rank has printed nothing yet
	}
	defer file.Close()
	buf := make([]byte, 256<<10)
	for {
		n, err := file.ReadAt(buf, f.offset)
		data := buf[:n]
		for {
			i := bytes.IndexByte(data, '\n')
			if i < 0 {
				break
			}
			show(data[:i+1])
			f.offset += int64(i + 1)
			data = data[i+1:]
		}
		if len(data) == len(buf) || len(data) > 0 && all && err == io.EOF { // too long for a line, or the last one
			show(append(bytes.Clone(data), '\n'))
			f.offset += int64(len(data))
		}
		if err != nil {
			return
		}
	}
}
