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

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

func statusCommand(c *call) *cobra.Command {
	var verbose bool
	cmd := &cobra.Command{
		Use:   "status [flags] [RUN]",
		Short: "show the state of a run",
		Long: `Shows the state of a run, its ranks, its newest checkpoint, and its moves, whether
it is running or not. RUN is the run directory that 'cairn run' made; if left out,
the only *.cairn directory here.

States of a running run: starting; running; waiting (for the next restart after a
failure); stopping; finishing (the ranks have finished, and cairn puts their
output together). Other states: stopped; finished; failed; interrupted, if its
supervisor ('cairn run') was killed; silent, if its supervisor lives and does not
answer. The same 'cairn run' command resumes all but finished and silent runs,
from the newest checkpoint, or from the beginning if there is none; it completes a
run that was finishing.

A line "tier" for each storage tier besides the hosts' disks (--tiers) says which
checkpoint it has, which is on its way there, and why that fails. A line "scrub"
says how much of old checkpoints was read again and repaired; each line "damaged"
names something that could not be repaired.

With -v, a table of settings says where each value comes from: a flag of 'cairn
run', the environment, cairn.toml beside the program, the program itself, or the
default.

A line "rolled back" says how often running ranks returned to a checkpoint because
one had lost a device, and what happened last.

A line "not saved" says that checkpoints fail, since when and why: the work since
the last checkpoint would be lost.

POINTS counts the points of a rank since the run began; in programs that 'cairn
build' made, only those at which Cairn checked whether a checkpoint is due.
MESSAGES counts those since the last start.`,
		Example: `  cairn status                                    # the run in this directory
  cairn status -v                                 # with its settings, and where each comes from
  cairn status --json sim.cairn | jq .last.index  # its newest checkpoint`,
		Args:              takes(0, 1),
		ValidArgsFunction: completeRuns,
	}
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "show the settings of the run, and where each comes from")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error { return status(ctx, c, verbose) })
	return cmd
}

// theRun returns the run directory that the arguments name, or the only one
// here.
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
		return "", usagef("no run directory (*.cairn) here; name one")
	case 1:
		return runs[0], nil
	}
	return "", usagef("several run directories here; name one of %s", strings.Join(runs, ", "))
}

// theState returns the run that theRun finds, and its state.
func (c *call) theState(ctx context.Context) (run string, st *control.RunState, err error) {
	if run, err = c.theRun(); err == nil {
		st, err = client.Read(ctx, run)
	}
	return run, st, err
}

func status(ctx context.Context, c *call, verbose bool) error {
	_, st, err := c.theState(ctx)
	if err != nil {
		return err
	}
	if c.json {
		return c.document(st)
	}
	c.printf("run         %s\n", printable(st.Run))
	c.printf("command     %s\n", printable(strings.Join(st.Command, " ")))
	state := st.State
	if st.Why != "" && st.State != rundir.Running {
		state += ": " + st.Why
	}
	c.printf("state       %s\n", printable(state))
	if st.Job != "" {
		c.printf("job         %s\n", printable(st.Job))
	}
	if !st.Began.IsZero() {
		c.printf("began       %s, %s", st.Began.Local().Format(time.DateTime), age(c.now, st.Began))
		if st.LostNS > 0 {
			c.printf("; %s of work was lost after failures, and computed again", roughly(time.Duration(st.LostNS)))
		}
		c.printf("\n")
	}
	if !st.Ended.IsZero() {
		c.printf("ended       %s, %s, after %s\n", st.Ended.Local().Format(time.DateTime), age(c.now, st.Ended), roughly(st.Ended.Sub(st.Began)))
	}
	c.printf("start       %d", st.Attempt)
	if st.Restored != nil {
		c.printf(", from checkpoint %d", *st.Restored)
	}
	if st.Failures > 0 {
		c.printf(", %s in a row without progress", control.Count(st.Failures, "failure"))
	}
	c.printf("\n")
	if text := loopText(st, c.now); text != "" {
		c.printf("progress    %s\n", printable(text))
	}
	for _, d := range st.Devices() {
		c.printf("device      %s\n", printable(d.String()))
	}
	if st.Last != nil {
		c.printf("checkpoint  %s\n", checkpointText(st.Last, c.now))
	} else {
		c.printf("checkpoint  none\n")
	}
	if r := st.RolledBack; r != nil {
		c.printf("rolled back %s, %s: %s\n", control.Count(r.Count, "time"), age(c.now, r.Time), printable(r.Text))
	}
	if u := st.Unsaved; u != nil {
		lost := ""
		if u.Lost {
			lost = ", and the work since the last checkpoint is lost"
		}
		c.printf("not saved   %s in a row since %s (%s)%s: %s\n", control.Count(u.Count, "checkpoint"), u.Since.Format(time.DateTime), age(c.now, u.Since), lost, printable(u.Why))
	}
	if len(st.Quarantined) > 0 {
		var list []string
		for _, s := range st.Quarantined {
			list = append(list, strconv.FormatUint(s, 10))
		}
		c.printf("quarantined %s\n", strings.Join(list, ", "))
	}
	c.printf("stored in   %s\n", printable(st.Dir))
	for _, t := range st.Tiers {
		c.printf("tier        %s\n", printable(tierText(&t, c.now)))
	}
	if x := st.Scrub; x != nil {
		c.printf("scrub       %s read again, %s, last %s; %d repaired\n", control.Count(x.Files, "file"), control.BytesText(x.Bytes), age(c.now, x.Time), x.Repaired)
		for i := range x.Lost {
			c.printf("damaged     %s\n", printable(x.Lost[i].String()))
		}
	}
	for _, text := range moveTexts(st.Moves, c.now) {
		c.printf("move        %s\n", printable(text))
	}
	if verbose {
		c.printf("\n")
		t := c.table("", "SETTING", "VALUE", "FROM")
		for _, x := range st.Settings {
			t.row(x.Name, printable(x.Value), x.From)
		}
		t.flush()
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

// tierText describes what a tier has.
func tierText(t *control.TierState, now time.Time) string {
	text := t.Tier + ": no checkpoint"
	if t.Index > 0 {
		text = fmt.Sprintf("%s: checkpoint %d, %s", t.Tier, t.Index, age(now, t.Time))
	}
	if t.Uploading > 0 {
		text += fmt.Sprintf("; checkpoint %d is on its way", t.Uploading)
	}
	if f := t.Failing; f != nil {
		text += fmt.Sprintf("; it fails since %s (%s): %s", f.Since.Format(time.DateTime), control.Count(f.Count, "time"), f.Why)
	}
	return text
}

// lastMoves is how many ended moves are shown; --json has more.
const lastMoves = 3

// moveTexts describes the last moves that have ended, and those in progress.
func moveTexts(moves []control.MoveState, now time.Time) (out []string) {
	for i := range moves {
		if moves[i].Over() {
			out = append(out, fmt.Sprintf("%s, %s", control.MoveText(&moves[i]), age(now, moves[i].Time)))
		}
	}
	out = out[max(0, len(out)-lastMoves):]
	for i := range moves {
		if !moves[i].Over() {
			out = append(out, control.MoveText(&moves[i]))
		}
	}
	return out
}

// checkpointText returns a committed checkpoint as one line.
func checkpointText(s *control.CheckpointState, now time.Time) string {
	return strings.Join(checkpointParts(s, now), ", ")
}

// checkpointParts describes a committed checkpoint, the most important part
// first.
func checkpointParts(s *control.CheckpointState, now time.Time) []string {
	parts := []string{strconv.FormatUint(s.Index, 10), age(now, s.Time)}
	if s.State > 0 {
		parts = append(parts, control.BytesText(s.State), control.BytesText(s.Written)+" written", "paused "+millis(float64(s.PauseNS)/1e6))
	}
	return parts
}
