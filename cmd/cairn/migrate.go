package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/supervise"
)

// Exit codes of migrate: the run was brought back from a set; it is not known
// how the move ended.
const (
	exitBack    = 4
	exitUnknown = 5
)

// secondAfter is how much later a signal comes that is not the first one,
// sent twice.
const secondAfter = time.Second

func migrateCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate [flags] [RUN]",
		Short: "move ranks of a running run to another host",
		Long: `Takes ranks to another host while the run goes on: their memory, their open
files and their place among the ranks. The others stay where they are. The
program is held for a moment only, and nothing is computed twice. RUN is the
folder that 'cairn run' made; left out, it is the only *.cairn folder here.

--rank names the ranks to move; --host moves all that are on a host, and no rank
will be placed there any more. The host that they go to need not be one of the
run's: it is reached in the same way (ssh, or --rsh of 'cairn run'). Without
--to it is the host of the run that has the most free slots, or several of them
where one has not enough.

The host may be unlike the one before: of another architecture or byte order
(--program names the program's file there), or with other devices (--env
CAIRN_DEVICES=host). What was said of a host holds as long as this 'cairn run'.

Most of the state is sent while the program goes on, in up to --rounds rounds,
and what has changed since then while it is held. If anything fails before the
new processes take over, nothing is moved and the run goes on as it was. If
something is lost later, the run is brought back from its newest set, as after
any failure. Ctrl-C calls the move off and waits for what becomes of it: it may
be too late for that. A second Ctrl-C leaves at once.

'cairn status' shows moves, also those of a run that has ended. SIGUSR2 to
'cairn run' moves all ranks off the hosts that RUN/leave lists, one 'HOST' or
'HOST TARGET' in each line; 'cairn run --leave-when' lets each host say itself
that it is to be left.`,
		Example: `  cairn migrate --rank 3 --to hostB                           # one rank of the run in this folder
  cairn migrate --rank 3,4,5 --to hostB sim.cairn             # three, together
  cairn migrate --host hostA                                  # all ranks there, before it is shut down
  cairn migrate --host hostA --to hostC --copy-files          # to a host that does not see the same files
  cairn migrate --rank 3 --to arm1 --program /opt/arm64/sim   # to a host of another architecture
  cairn migrate --rank 0 --to hostB --env CAIRN_DEVICES=host  # to a host that has no GPU
  cairn migrate --json --rank 0 --to hostB | jq .pauseNS      # for how long were ranks held?`,
		Annotations: map[string]string{exitCodes: `  0  moved (also if it was too late to call it off), or no rank was on --host
  2  the command line is wrong
  3  not moved, or called off; a run that was running goes on as it was, unless
     its end is the reason
  4  not moved: a rank or a host was lost on the way, and the run was brought
     back from its newest set
  5  not known: the supervisor was lost on the way, or Ctrl-C was given twice;
     'cairn status' tells, and 'cairn run' brings a run back whose supervisor is
     gone
`},
		Args:              takes(0, 1),
		ValidArgsFunction: completeRuns,
	}
	f := cmd.Flags()
	var m supervise.Migration
	var ranks, chunk string
	f.StringVar(&ranks, "rank", "", "move these ranks: `LIST` is 3, or 3,4,5, or 3-5")
	f.StringVar(&m.Host, "host", "", "move all ranks off this `HOST`, and place none there any more")
	f.StringVar(&m.To, "to", "", "`HOST` that they go to (default: those of the run with the most free slots)")
	f.StringVar(&chunk, "chunk", "64M", "send `SIZE` bytes at a time")
	f.IntVar(&m.Rounds, "rounds", supervise.DefaultRounds, "send state ahead, while the program goes on, in at most `N` rounds; 0: none")
	f.BoolVar(&m.Files, "copy-files", false, "copy the run's open files, too: the hosts don't share a file system")
	f.BoolVar(&m.Sequential, "sequential", false, "write, send and read one after the other, for comparison")
	f.DurationVar(&m.StartLimit, "start-limit", supervise.DefaultStartLimit, "`DURATION` for the new processes to come to Restore in")
	f.StringVar(&m.Program, "program", "", "`PATH` of the program on the host that they go to (default: the same as before)")
	f.Func("env", "set `NAME=VALUE` for ranks on that host; may be given more than once", func(v string) error {
		if strings.Index(v, "=") < 1 {
			return errors.New("write NAME=VALUE")
		}
		m.Env = append(m.Env, v)
		return nil
	})
	cmd.RunE = c.does(func(ctx context.Context, c *call) (err error) {
		if m.Ranks, err = parseRanks(ranks); err != nil {
			return err
		}
		switch {
		case len(m.Ranks) == 0 && m.Host == "":
			return usagef("migrate: say what is to be moved, with --rank or --host")
		case len(m.Ranks) > 0 && m.Host != "":
			return usagef("migrate: --rank and --host can't be used together")
		case m.Rounds < 0:
			return usagef("migrate: --rounds %d is below zero", m.Rounds)
		case m.StartLimit <= 0:
			return usagef("migrate: --start-limit %v is no time to start in", m.StartLimit)
		case m.To == "" && (m.Program != "" || len(m.Env) > 0):
			return usagef("migrate: --program and --env are for one host: name it with --to")
		}
		if m.Program != "" {
			if m.Program, err = filepath.Abs(m.Program); err != nil {
				return err
			}
		}
		if m.Chunk, err = parseSize(chunk); err != nil {
			return usagef("migrate: --chunk: %v", err)
		}
		return migrate(ctx, c, m)
	})
	return cmd
}

func migrate(ctx context.Context, c *call, m supervise.Migration) error {
	run, err := c.theRun()
	if err != nil {
		return err
	}
	wait, end := context.WithCancel(context.Background())
	defer end()
	var mu sync.Mutex // of what is shown
	p := c.progress("", 0)
	said := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(said)
		go endAtSecond(wait, end)
		if !c.quiet {
			mu.Lock()
			defer mu.Unlock()
			p.end()
			fmt.Fprintln(c.stderr, "cairn: the move is being called off; Ctrl-C again leaves at once")
		}
	})
	m.Cancel = ctx.Done()
	st, err := supervise.Migrate(wait, run, m, func(st *supervise.MoveState) {
		if p.c != nil {
			mu.Lock()
			defer mu.Unlock()
			p.show(moveLine(st, lineWidth(c.stderr)))
		}
	})
	off := !unwatch()
	if off {
		<-said
	}
	p.end()
	switch {
	case wait.Err() != nil && err != nil:
		return statusError{exitUnknown, "left; the move is called off unless it was decided: 'cairn status' tells"}
	case err != nil:
		return err
	}
	if c.json {
		if err := c.document(st); err != nil {
			return err
		}
	}
	text := printable(supervise.MoveText(st))
	switch st.State {
	case supervise.Moved:
		if off {
			text += "; it was too late to call that off"
		}
		if !c.json {
			c.printf("%s\n", text)
		}
		return nil
	case supervise.RolledBack:
		return statusError{exitBack, text}
	case supervise.MoveUnknown:
		return statusError{exitUnknown, text}
	}
	return statusError{exitFailed, text}
}

// endAtSecond calls leave when another signal comes.
func endAtSecond(ctx context.Context, end func()) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	for soon := time.Now().Add(secondAfter); ; {
		select {
		case <-again:
			if time.Now().After(soon) {
				end()
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// moveLine is a move that is under way in one line of at most width characters.
func moveLine(st *supervise.MoveState, width int) string {
	line := []rune(printable(supervise.MoveText(st)))
	if len(line) > width {
		line = line[:width]
	}
	return string(line)
}

// parseRanks reads a list like 3,5-7.
func parseRanks(list string) ([]int, error) {
	if list == "" {
		return nil, nil
	}
	var out []int
	for item := range strings.SplitSeq(list, ",") {
		first, last, several := strings.Cut(strings.TrimSpace(item), "-")
		from, err := strconv.Atoi(first)
		to := from
		if several && err == nil {
			to, err = strconv.Atoi(last)
		}
		if err != nil || from < 0 || to < from || to-from > math.MaxUint16 {
			return nil, usagef("migrate: --rank: %q is no rank; write 3, or 3,4,5, or 3-5", item)
		}
		for r := from; r <= to; r++ {
			out = append(out, r)
		}
	}
	return out, nil
}

// parseSize reads a number of bytes like 64M, 1G or 65536.
func parseSize(text string) (int64, error) {
	digits := strings.TrimRight(text, "KkMmGgIiBb")
	factor := int64(1)
	switch unit := strings.ToUpper(text[len(digits):]); strings.TrimSuffix(strings.TrimSuffix(unit, "B"), "I") {
	case "":
	case "K":
		factor = 1 << 10
	case "M":
		factor = 1 << 20
	case "G":
		factor = 1 << 30
	default:
		digits = ""
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || n > math.MaxInt64/factor {
		return 0, usagef("%q is no size; write 64M, 1G or a number of bytes", text)
	}
	return n * factor, nil
}
