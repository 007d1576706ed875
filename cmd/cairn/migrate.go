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

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/client"
)

// Exit codes of migrate: the run was restarted from a checkpoint; it is not
// known how the move ended.
const (
	exitBack    = 4
	exitUnknown = 5
)

// secondAfter is the shortest time between two signals that count as two:
// launchers may send one signal twice.
const secondAfter = time.Second

func migrateCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate [flags] [RUN]",
		Short: "move ranks of a running run to another host",
		Long: `Moves ranks (processes of the run) to another host while the run continues: their
memory, their open files and their place among the ranks. The other ranks stay
where they are. The program is paused for a moment, and nothing is computed twice.
RUN is the run directory; if left out, the only *.cairn directory here.

--rank names the ranks to move. --host moves all ranks off a host, and places no
more ranks there. The destination need not be a host of the run: Cairn reaches it
in the same way (ssh, or --rsh of 'cairn run'). Without --to, the destination is
the host of the run with the most free slots, or several hosts if one does not
have enough.

The destination may differ from the source: another architecture or byte order
(--program names the program's file there), or other devices (--env
CAIRN_DEVICES=host). These overrides hold for that host until this 'cairn run'
ends.

Most of the state is sent while the program continues, in up to --rounds rounds;
what has changed since is sent while it is paused. If anything fails before the
new processes take over, nothing moves and the run continues. If something is lost
later, the run restarts from its newest checkpoint, as after any failure. Ctrl-C
cancels the move and waits for the outcome, since it may be too late to cancel. A
second Ctrl-C ends the command at once.

'cairn status' shows moves, also those of a run that has ended. SIGUSR2 to 'cairn
run' evacuates the hosts that RUN/evacuate lists, one 'HOST' or 'HOST TARGET' per
line; 'cairn run --evacuate-when' lets each host decide.`,
		Example: `  cairn migrate --rank 3 --to hostB                           # one rank of the run in this directory
  cairn migrate --rank 3,4,5 --to hostB sim.cairn             # three, together
  cairn migrate --host hostA                                  # all ranks there, before it is shut down
  cairn migrate --host hostA --to hostC --copy-files          # to a host that does not see the same files
  cairn migrate --rank 3 --to arm1 --program /opt/arm64/sim   # to a host of another architecture
  cairn migrate --rank 0 --to hostB --env CAIRN_DEVICES=host  # to a host that has no GPU
  cairn migrate --json --rank 0 --to hostB | jq .pauseNS      # how long were ranks paused?`,
		Annotations: map[string]string{exitCodes: `  0  moved (also if it was too late to cancel), or no rank was on --host
  2  the command line is wrong
  3  not moved, or cancelled; the run continues as it was, unless it has ended
  4  not moved: a rank or a host was lost on the way, and the run restarted from
     its newest checkpoint
  5  not known: the supervisor was lost on the way, or Ctrl-C was given twice;
     'cairn status' shows it, and 'cairn run' resumes a run without a supervisor
`},
		Args:              takes(0, 1),
		ValidArgsFunction: completeRuns,
	}
	f := cmd.Flags()
	var m client.Migration
	var ranks, chunk string
	f.StringVar(&ranks, "rank", "", "move these ranks: `LIST` is 3, or 3,4,5, or 3-5")
	f.StringVar(&m.Host, "host", "", "move all ranks off `HOST`, and place no more there")
	f.StringVar(&m.To, "to", "", "move to `HOST` (default: the hosts of the run with the most free slots)")
	f.StringVar(&chunk, "chunk", "64M", "send at most `SIZE` bytes at a time")
	f.IntVar(&m.Rounds, "rounds", control.DefaultRounds, "send state in at most `N` rounds before the pause; 0: none")
	f.BoolVar(&m.Files, "copy-files", false, "copy the run's open files, too, if the hosts share no file system")
	f.DurationVar(&m.StartLimit, "start-limit", control.DefaultStartLimit, "give the new processes `DURATION` to reach Restore")
	f.StringVar(&m.Program, "program", "", "`PATH` of the program on the destination (default: as before)")
	f.Func("env", "set `NAME=VALUE` for ranks on the destination; may be repeated", func(v string) error {
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
			return usagef("migrate: name what to move, with --rank or --host")
		case len(m.Ranks) > 0 && m.Host != "":
			return usagef("migrate: --rank and --host cannot be used together")
		case m.Rounds < 0:
			return usagef("migrate: --rounds %d is negative", m.Rounds)
		case m.StartLimit <= 0:
			return usagef("migrate: --start-limit %v is not positive", m.StartLimit)
		case m.To == "" && (m.Program != "" || len(m.Env) > 0):
			return usagef("migrate: --program and --env hold for one host: name it with --to")
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

func migrate(ctx context.Context, c *call, m client.Migration) error {
	run, err := c.theRun()
	if err != nil {
		return err
	}
	wait, end := context.WithCancel(context.Background())
	defer end()
	var mu sync.Mutex // guards what is shown
	p := c.progress("", 0)
	said := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(said)
		go endAtSecond(wait, end)
		if !c.quiet {
			mu.Lock()
			defer mu.Unlock()
			p.end()
			fmt.Fprintln(c.stderr, "cairn: cancelling the move; Ctrl-C again ends this command at once")
		}
	})
	m.Cancel = ctx.Done()
	st, err := client.Migrate(wait, run, m, func(st *control.MoveState) {
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
		return statusError{exitUnknown, "ended without waiting; the move is cancelled unless it was decided: see 'cairn status'"}
	case err != nil:
		return err
	}
	if c.json {
		if err := c.document(st); err != nil {
			return err
		}
	}
	text := printable(control.MoveText(st))
	switch st.State {
	case control.Moved:
		if off {
			text += "; it was too late to cancel"
		}
		if !c.json {
			c.printf("%s\n", text)
		}
		return nil
	case control.MoveRolledBack:
		return statusError{exitBack, text}
	case control.MoveUnknown:
		return statusError{exitUnknown, text}
	}
	return statusError{exitFailed, text}
}

// endAtSecond calls end when a second signal comes.
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

// moveLine returns a move in progress as a line of at most width characters.
func moveLine(st *control.MoveState, width int) string {
	line := []rune(printable(control.MoveText(st)))
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
			return nil, usagef("migrate: --rank: %q is not a rank; write 3, or 3,4,5, or 3-5", item)
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
		return 0, usagef("%q is not a size; write 64M, 1G or a number of bytes", text)
	}
	return n * factor, nil
}
