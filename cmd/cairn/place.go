package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise"
)

// keyFlag declares --key of commands that look at places on tiers.
func keyFlag(f *pflag.FlagSet, c *call) {
	f.StringVar(&c.key, "key", "", "`FILE` with the key of a place on a tier, if it is encrypted")
}

// groupsAt finds the checkpoints at a place on a tier, and lets commands see
// them as if they were in a checkpoint directory.
func (c *call) groupsAt(arg string) (checkpoints []group, all bool, err error) {
	p, err := supervise.OpenPlace(c.ctx, arg, c.key)
	if err != nil {
		return nil, false, err
	}
	if p.End != nil && p.Empty() {
		return nil, false, fmt.Errorf("%s has no checkpoint there; %s", finishedAt(p), bringBack(p))
	}
	checkpoints, err = c.viewed(p)
	return checkpoints, !p.Chosen, err
}

// viewed lets commands see the checkpoints at a place.
func (c *call) viewed(p *supervise.Place) ([]group, error) {
	fsys, dir, err := p.FS(c.ctx, c.fsys)
	if err != nil {
		return nil, err
	}
	c.fsys = fsys
	return c.checkpoints(dir)
}

// onTiers finds a checkpoint of a run that its hosts do not have, or not all of
// it, on its tiers outside of the hosts; index 0: the newest.
func (c *call) onTiers(index uint64) (g group, ok bool) {
	if c.hosts == nil {
		return group{}, false
	}
	p, errs := c.hosts.OnTiers(c.ctx, index)
	for _, err := range errs {
		c.notef("%v", err)
	}
	if p == nil {
		return group{}, false
	}
	list, err := c.viewed(p)
	if err != nil {
		c.notef("%v", err)
		return group{}, false
	}
	return list[0], true
}

// placeDocument is what list --json prints of a place on a tier.
type placeDocument struct {
	Place       string                       `json:"place"`
	Run         string                       `json:"run"`
	Checkpoints []supervise.PlacedCheckpoint `json:"checkpoints"` // newest first
	Finished    *finishedRun                 `json:"finished,omitempty"`
}

// finishedRun says how a run has finished.
type finishedRun struct {
	Status int       `json:"status"`
	Time   time.Time `json:"time"`
}

// listPlace shows the checkpoints at a place on a tier.
func (c *call) listPlace(ctx context.Context, arg string) error {
	p, err := supervise.OpenPlace(ctx, arg, c.key)
	if err != nil {
		return err
	}
	doc := placeDocument{Place: p.Name, Run: p.Run}
	if doc.Checkpoints, err = p.Checkpoints(ctx); err != nil {
		return err
	}
	if p.End != nil {
		doc.Finished = &finishedRun{p.End.Status, p.End.Time}
	}
	if c.json {
		return c.document(doc)
	}
	if len(doc.Checkpoints) > 0 {
		c.listPlaced(&doc)
	}
	if p.End != nil {
		c.printf("%s; %s\n", finishedAt(p), bringBack(p))
		return nil
	}
	c.printf("\n%s of run %s; to resume from the newest: cairn run -n %d --from %s PROGRAM\n", control.Count(len(doc.Checkpoints), "checkpoint"), doc.Run, doc.Checkpoints[0].Ranks, p.Name)
	return nil
}

// finishedAt says that the run at a place has finished.
func finishedAt(p *supervise.Place) string {
	return fmt.Sprintf("run %s has finished with status %d, at %s", p.Run, p.End.Status, clock(p.End.Time))
}

// bringBack says how to get what a run that has finished has left.
func bringBack(p *supervise.Place) string {
	return fmt.Sprintf("for its files and its output: cairn run -n %d --from %s PROGRAM", p.Ranks, p.Name)
}

// noPlace refuses a place on a tier, for commands that need a directory.
func (c *call) noPlace(command, remedy string) error {
	if len(c.args) == 0 || !supervise.IsPlace(c.args[0]) {
		return nil
	}
	return usagef("%s: %s is a place on a tier: %s", command, c.args[0], remedy)
}

// listPlaced shows a table of checkpoints at a place.
func (c *call) listPlaced(doc *placeDocument) {
	t := c.table("", "CHECKPOINT", "RANKS", "TIME", "AGE", "SIZE", "PINNED")
	for _, x := range doc.Checkpoints {
		t.row(strconv.FormatUint(x.Index, 10), strconv.Itoa(x.Ranks), clock(x.Time), age(c.now, x.Time), control.BytesText(x.Bytes), strings.Join(x.Pins, ", "))
	}
	t.flush()
}

// verifyPlace checks everything at a place on a tier.
func (c *call) verifyPlace(ctx context.Context, arg string) error {
	p, err := supervise.OpenPlace(ctx, arg, c.key)
	if err != nil {
		return err
	}
	found, err := p.Verify(ctx)
	if err != nil {
		return err
	}
	return c.verifiedTier(found)
}
