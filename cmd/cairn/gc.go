package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise"
)

// keepDefault is also the default of Options.Keep.
const keepDefault = 2

func gcCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gc [--keep N] [--dry-run] [--tier TIER] DIR",
		Short: "remove older checkpoints and what crashes have left",
		Long: `Keeps the newest checkpoints of a directory and removes the others. It also
removes what crashes have left: unfinished checkpoints, half-written files, links
that no checkpoint needs. A checkpoint with damaged metadata is removed, and does
not count as one of the newest; but if all checkpoints are damaged, nothing is
removed. If a newer checkpoint needs blocks of an older one, it keeps them.

With several ranks, a checkpoint counts only if all ranks can load it. The newest
of these is the recovery line. Incomplete checkpoints that are older than it are
removed; newer ones stay.

The command locks the directory, so no run may be using it; --dry-run takes no
lock and removes nothing. Only metadata is checked: to be sure that the
checkpoints to keep are good, run 'cairn verify DIR' first.

With --tier shared or s3, it removes checkpoints from that tier of a run (cairn run
--tiers), and nothing else. The run may be running. Pinned checkpoints (cairn pin)
stay everywhere.`,
		Example: `  cairn gc --dry-run ckpt                # what would be removed
  cairn gc --keep 1 ckpt                 # keep only the newest checkpoint
  cairn gc --tier s3 --keep 1 sim.cairn  # … on the object store`,
		Args:              takes(1, 1),
		ValidArgsFunction: completeRuns,
	}
	f := cmd.Flags()
	keep := f.Int("keep", keepDefault, "keep the newest `N` checkpoints")
	dry := f.Bool("dry-run", false, "only show what would be removed")
	tier := f.String("tier", "", "remove checkpoints from a tier: `TIER` is shared or s3")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error {
		if err := c.noPlace("gc", "name the run directory, and the tier (cairn gc --tier s3 --keep 1 RUN); 'cairn list "+c.args[0]+"' shows what is there"); err != nil {
			return err
		}
		if *tier != "" && *tier != "local" {
			return c.gcTier(ctx, *tier, *keep, *dry)
		}
		return gc(ctx, c, *keep, *dry)
	})
	return cmd
}

// gcTier removes checkpoints from a tier of a run.
func (c *call) gcTier(ctx context.Context, tier string, keep int, dry bool) error {
	if keep < 1 {
		return usagef("gc: --keep %d would leave nothing to restart from; keep 1 or more", keep)
	}
	run, err := filepath.Abs(c.args[0])
	if err != nil {
		return err
	}
	out, err := supervise.CollectTier(ctx, run, tier, keep, dry)
	if err != nil {
		return err
	}
	if c.json {
		return c.document(out)
	}
	verb := "removed"
	if dry {
		verb = "would be removed"
	}
	c.printf("%s: %s %s, %d kept", out.Tier, control.Count(len(out.Removed), "checkpoint"), verb, len(out.Kept))
	if len(out.Pinned) > 0 {
		c.printf("; pinned: %s", checkpointNames(out.Pinned))
	}
	c.printf("\n")
	return nil
}

// gcDocument is what gc --json prints.
type gcDocument struct {
	Dir        string              `json:"dir"`
	DryRun     bool                `json:"dryRun"`
	Kept       []uint64            `json:"kept"`
	Incomplete []uint64            `json:"incomplete"` // newer than those kept, not removed: not all ranks have them
	Removed    []removedCheckpoint `json:"removed"`
	Unfinished []unfinished        `json:"unfinished"` // directories without a committed file, removed too
	Files      []string            `json:"files"`      // removed from kept checkpoints, which do not need them
	FreedBytes int64               `json:"freedBytes"`
}

type removedCheckpoint struct {
	Index uint64 `json:"index"`
	Path  string `json:"path"`
	Why   string `json:"why"` // "older", "incomplete", or what is damaged
}

func gc(ctx context.Context, c *call, keep int, dry bool) error {
	if keep < 1 {
		return usagef("gc: --keep %d would leave nothing to restart from; keep 1 or more, or remove the directory yourself", keep)
	}
	dir := c.args[0]
	if err := c.runDir(dir); err != nil {
		return err
	}
	dir, err := c.checkpointsIn(dir)
	if err != nil {
		return err
	}
	dirs, err := c.checkpointDirs(dir)
	if err != nil {
		return err
	}
	if len(dirs) == 0 {
		if _, err := c.fsys.Stat(filepath.Join(dir, "lock")); err != nil {
			return c.empty(dir)
		}
	}
	if !dry {
		unlock, err := c.lockRanks(dir, dirs)
		if err != nil {
			return err
		}
		defer unlock()
		if dirs, err = c.checkpointDirs(dir); err != nil {
			return err
		}
	}
	p, err := c.planGC(ctx, dir, dirs, keep)
	if err != nil {
		return err
	}
	p.doc.DryRun = dry
	if !dry {
		if err := p.remove(c); err != nil {
			return err
		}
	}
	if c.json {
		return c.document(p.doc)
	}
	c.gcText(&p.doc)
	return nil
}

// lockRanks locks the directory for rank 0 and for all ranks that have files.
func (c *call) lockRanks(dir string, dirs map[uint64]string) (unlock func(), err error) {
	ranks := []int{0}
	for _, path := range dirs {
		files, err := c.files(path)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if r, ok := ownerRank(filepath.Base(f.path)); ok {
				ranks = append(ranks, r)
			}
		}
	}
	slices.Sort(ranks)
	var locked []*store.Dir
	unlock = func() {
		for _, d := range locked {
			d.Close()
		}
	}
	for _, r := range slices.Compact(ranks) {
		d, err := store.Create(c.fsys, dir, r)
		if err != nil {
			unlock()
			return nil, err
		}
		locked = append(locked, d)
	}
	return unlock, nil
}

// ownerRank returns the rank that a file of a checkpoint belongs to: the rank's
// own file, a link to a base, or a half-written one.
func ownerRank(name string) (int, bool) {
	owner, _, ok := strings.Cut(name, ".")
	if !ok {
		return 0, false
	}
	return store.ParseRank(owner + ".h5")
}

// gcPlan is what gc will remove.
type gcPlan struct {
	doc   gcDocument
	ranks map[uint64][]int // the ranks that have files, of each checkpoint to remove
}

// planGC decides what to remove. A checkpoint counts as kept if every rank can
// load it; the newest of these is the recovery line. What some ranks have
// committed above it stays: with files on other machines it may be complete.
func (c *call) planGC(ctx context.Context, dir string, dirs map[uint64]string, keep int) (*gcPlan, error) {
	found, err := store.Members(c.fsys, dir)
	if err != nil {
		return nil, err
	}
	p := &gcPlan{
		doc:   gcDocument{Dir: dir, Kept: []uint64{}, Incomplete: []uint64{}, Removed: []removedCheckpoint{}, Unfinished: []unfinished{}, Files: []string{}},
		ranks: make(map[uint64][]int),
	}
	var gone, stays []dirFile
	sound, parts := 0, 0
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(dirs))) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		files, err := c.files(dirs[n])
		if err != nil {
			return nil, err
		}
		drop := func() {
			gone = append(gone, files...)
			for _, f := range files {
				if r, ok := ownerRank(filepath.Base(f.path)); ok && !slices.Contains(p.ranks[n], r) {
					p.ranks[n] = append(p.ranks[n], r)
				}
			}
		}
		if len(found[n]) == 0 {
			p.doc.Unfinished = append(p.doc.Unfinished, unfinished{n, dirs[n]})
			drop()
			continue
		}
		parts++
		j := c.judge(member{dir, n, found[n]})
		why := ""
		switch status := j.status(); {
		case status == "unreadable":
			return nil, fmt.Errorf("cannot check checkpoint %d, so nothing was removed: %w", n, j.err)
		case status == "damaged":
			why = j.reason()
		case status == "incomplete" && sound == 0:
			p.doc.Incomplete = append(p.doc.Incomplete, n)
		case status == "incomplete":
			why = "incomplete"
		case sound >= keep:
			why = "older"
		default:
			sound++
			p.doc.Kept = append(p.doc.Kept, n)
		}
		if why != "" {
			p.doc.Removed = append(p.doc.Removed, removedCheckpoint{n, dirs[n], why})
			drop()
			continue
		}
		unneeded, err := c.unneededBy(j, files)
		if err != nil {
			return nil, err
		}
		p.doc.Files = append(p.doc.Files, unneeded...)
		for _, f := range files {
			if slices.Contains(unneeded, f.path) {
				gone = append(gone, f)
			} else {
				stays = append(stays, f)
			}
		}
	}
	switch {
	case parts > 0 && sound+len(p.doc.Incomplete) == 0:
		return nil, fmt.Errorf("%s: all of %s are damaged, so nothing was removed; see 'cairn verify %s', and move the directory away to start over", dir, control.Count(parts, "checkpoint"), dir)
	case parts > 0 && sound == 0:
		return nil, fmt.Errorf("%s: none of %s is complete, so nothing was removed: a rank's file is missing, after a crash or because it is on another machine; see 'cairn list %s'", dir, control.Count(parts, "checkpoint"), dir)
	}
	p.doc.FreedBytes = distinct(gone, stays)
	return p, nil
}

// unneededBy returns the files of a checkpoint that no rank needs.
func (c *call) unneededBy(j *judged, files []dirFile) ([]string, error) {
	var out []string
	for i := range j.parts {
		list, err := c.unneeded(j.parts[i].target, &j.parts[i].header)
		if err != nil {
			return nil, err
		}
		for _, f := range list {
			out = append(out, f.path)
		}
	}
	for _, f := range files { // of ranks that did not finish
		if r, ok := ownerRank(filepath.Base(f.path)); ok && !slices.Contains(j.ranks, r) {
			out = append(out, f.path)
		}
	}
	slices.Sort(out)
	return out, nil
}

// remove does what was planned. The directory is locked.
func (p *gcPlan) remove(c *call) error {
	for _, path := range p.doc.Files {
		if err := c.fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	gone := make([]uint64, 0, len(p.doc.Removed)+len(p.doc.Unfinished))
	for _, r := range p.doc.Removed {
		gone = append(gone, r.Index)
	}
	for _, u := range p.doc.Unfinished {
		gone = append(gone, u.Index)
	}
	var err error
	for _, n := range gone {
		for _, r := range append(p.ranks[n], 0) { // 0: removes an empty directory, too
			err = errors.Join(err, store.ForHelper(c.fsys, p.doc.Dir, r, nil).Remove(n))
		}
	}
	if err != nil {
		return fmt.Errorf("%s: cannot remove everything; the checkpoints to keep are intact: %w", p.doc.Dir, err)
	}
	return nil
}

func (c *call) gcText(doc *gcDocument) {
	did, freed := "removed", "freed"
	if doc.DryRun {
		did, freed = "would remove", "would be freed"
	}
	for _, r := range doc.Removed {
		why := "damaged: " + printable(r.Why)
		switch r.Why {
		case "older":
			why = "older than those kept"
		case "incomplete":
			why = "not all ranks have it"
		}
		c.printf("%s checkpoint %d (%s)\n", did, r.Index, why)
	}
	for _, u := range doc.Unfinished {
		c.printf("%s checkpoint %d (unfinished)\n", did, u.Index)
	}
	for _, path := range doc.Files {
		c.printf("%s %s (no checkpoint needs it)\n", did, path)
	}
	if len(doc.Removed)+len(doc.Unfinished)+len(doc.Files) == 0 {
		c.printf("nothing to remove")
	} else {
		c.printf("%s %s", control.BytesText(doc.FreedBytes), freed)
	}
	if len(doc.Kept) > 0 {
		c.printf("; kept %s", checkpointNames(doc.Kept))
	}
	if len(doc.Incomplete) > 0 {
		c.printf("; left %s, which not all ranks have", checkpointNames(doc.Incomplete))
	}
	c.printf("\n")
}
