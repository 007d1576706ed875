package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/supervise"
)

func statusCommand(c *call) *cobra.Command {
	return &cobra.Command{
		Use:   "status [RUN]",
		Short: "show how far a run is",
		Long: `Shows the state of a run, its ranks, its newest set, the last moves of ranks
and those under way, whether it is running or not. RUN is the folder that 'cairn
run' made, PROGRAM.cairn unless --run said otherwise; left out, it is the only
*.cairn folder here.

States: starting, running, waiting (for the next start after a failure),
stopping, finishing (the ranks have finished, and their output is put together;
if that failed, or was interrupted, the same 'cairn run' command completes it);
and of a run that is not running: stopped, finished, failed, or
interrupted, when its supervisor was killed; silent, when it lives and does not
answer. All but finished and silent are gone on with by the same 'cairn run'
command, from the newest set, or from the beginning if there is none.

A line "not saved" tells that checkpoints fail, since when and why: the work
since the last set would be lost.

POINTS counts the points of a rank since the run began; of programs that 'cairn
build' made only those at which it was looked whether a set is due, not all that
were passed. MESSAGES are those since the last start.`,
		Example: `  cairn status                                  # the run in this folder
  cairn status --json sim.cairn | jq .last.set  # its newest set`,
		Args:              takes(0, 1),
		ValidArgsFunction: completeRuns,
		RunE:              c.does(status),
	}
}

// theRun returns the run that the arguments name, or the only one here.
func (c *call) theRun() (string, error) {
	if len(c.args) > 0 {
		return c.args[0], nil
	}
	found, err := filepath.Glob("*.cairn")
	if err != nil {
		return "", err
	}
	var runs []string
	for _, f := range found {
		if st, err := os.Stat(f); err == nil && st.IsDir() {
			runs = append(runs, f)
		}
	}
	switch len(runs) {
	case 0:
		return "", usagef("no run's folder (*.cairn) here; name one")
	case 1:
		return runs[0], nil
	}
	return "", usagef("several runs are here; name one of %s", strings.Join(runs, ", "))
}

func status(ctx context.Context, c *call) error {
	run, err := c.theRun()
	if err != nil {
		return err
	}
	st, err := supervise.Read(ctx, run)
	if err != nil {
		return err
	}
	if c.json {
		return c.document(st)
	}
	c.printf("run       %s\n", printable(st.Run))
	c.printf("command   %s\n", printable(strings.Join(st.Command, " ")))
	state := st.State
	if st.Why != "" && st.State != supervise.Running {
		state += ": " + st.Why
	}
	c.printf("state     %s\n", printable(state))
	c.printf("start     %d", st.Attempt)
	if st.Restored != nil {
		c.printf(", from set %d", *st.Restored)
	}
	if st.Failures > 0 {
		c.printf(", %s in a row without progress", count(st.Failures, "failure"))
	}
	c.printf("\n")
	if st.Last != nil {
		c.printf("last set  %s\n", checkpointText(st.Last, c.now))
	} else {
		c.printf("last set  none\n")
	}
	if u := st.Unsaved; u != nil {
		lost := ""
		if u.Lost {
			lost = ", and the work since the last set is lost"
		}
		c.printf("not saved %s in a row since %s (%s)%s: %s\n", count(u.Count, "set"), u.Since.Format(time.DateTime), age(c.now, u.Since), lost, printable(u.Why))
	}
	if len(st.Quarantined) > 0 {
		var list []string
		for _, s := range st.Quarantined {
			list = append(list, strconv.FormatUint(s, 10))
		}
		c.printf("put aside %s\n", strings.Join(list, ", "))
	}
	c.printf("sets in   %s\n", printable(st.Dir))
	for _, text := range moveTexts(st.Moves, c.now) {
		c.printf("move      %s\n", printable(text))
	}
	if st.Pid == 0 {
		return nil
	}
	c.printf("\n")
	t := c.table("", "RANK", "HOST", "PID", "STATE", "POINTS", "MESSAGES")
	for _, r := range st.Ranks {
		points, messages := strconv.FormatUint(r.Points, 10), strconv.FormatUint(r.Messages, 10)
		if !r.Cairn {
			points, messages = "-", "-"
		}
		t.row(strconv.Itoa(r.Rank), r.Host, strconv.Itoa(r.Pid), r.State, points, messages)
	}
	t.flush()
	return nil
}

// lastMoves is how many moves are shown that are over; --json has more.
const lastMoves = 3

// moveTexts tells of the last moves that are over, and of those that are not.
func moveTexts(moves []supervise.MoveState, now time.Time) (out []string) {
	for i := range moves {
		if moves[i].Over() {
			out = append(out, fmt.Sprintf("%s, %s", supervise.MoveText(&moves[i]), age(now, moves[i].Time)))
		}
	}
	out = out[max(0, len(out)-lastMoves):]
	for i := range moves {
		if !moves[i].Over() {
			out = append(out, supervise.MoveText(&moves[i]))
		}
	}
	return out
}

// checkpointText is a committed set in one line.
func checkpointText(s *supervise.CheckpointState, now time.Time) string {
	return strings.Join(checkpointParts(s, now), ", ")
}

// checkpointParts is what there is to say of a committed set, the most important
// first.
func checkpointParts(s *supervise.CheckpointState, now time.Time) []string {
	parts := []string{strconv.FormatUint(s.Index, 10), age(now, s.Time)}
	if s.State > 0 {
		parts = append(parts, size(s.State), size(s.Written)+" written", "held "+millis(float64(s.PauseNS)/1e6))
	}
	return parts
}
