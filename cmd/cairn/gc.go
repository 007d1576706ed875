package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/cairnrun/cairn/ckpt"
	"github.com/cairnrun/cairn/store"
)

// keepDefault is what a run keeps, too, if its Options don't say.
const keepDefault = 2

func gcCommand() command {
	return command{
		name: "gc", args: "DIR", min: 1, max: 1,
		brief: "remove older sets and what crashes left behind",
		about: `Keeps the newest sets of a run's folder and removes the others, with what
crashes left: sets that were never finished, half-written files, links that no
set needs. Sets whose metadata is damaged do not count as kept and are removed;
if no set is sound, nothing is. What a newer set still needs of an older one
stays with the newer set.

It takes the folder's lock, so no run may be using it; --dry-run takes none
and removes nothing. Only metadata is checked: if in doubt whether the sets to
keep are good, 'cairn verify DIR' first.`,
		examples: []example{
			{"cairn gc --dry-run ckpt", "what would be removed"},
			{"cairn gc --keep 1 ckpt", "keep only the newest set"},
		},
		setup: func(f *flag.FlagSet) action {
			keep := f.Int("keep", keepDefault, "keep the newest `N` sets (2 if not given)")
			dry := f.Bool("dry-run", false, "only say what would be removed")
			return func(ctx context.Context, c *call) error { return gc(ctx, c, *keep, *dry) }
		},
	}
}

// gcDocument is what gc --json prints.
type gcDocument struct {
	Dir        string       `json:"dir"`
	DryRun     bool         `json:"dryRun"`
	Kept       []uint64     `json:"kept"`
	Removed    []removedSet `json:"removed"`
	Unfinished []unfinished `json:"unfinished"` // set folders without a committed file, removed too
	Files      []string     `json:"files"`      // in kept sets, removed because none needs them
	FreedBytes int64        `json:"freedBytes"`
}

type removedSet struct {
	Set  uint64 `json:"set"`
	Path string `json:"path"`
	Why  string `json:"why"` // "older", or what is damaged
}

func gc(ctx context.Context, c *call, keep int, dry bool) error {
	if keep < 1 {
		return usagef("gc: --keep %d would leave nothing to restart from; keep 1 or more, or remove the folder yourself", keep)
	}
	dir := c.args[0]
	if err := c.runFolder(dir); err != nil {
		return err
	}
	folders, err := c.folders(dir)
	if err != nil {
		return err
	}
	if len(folders) == 0 {
		if _, err := c.fsys.Stat(filepath.Join(dir, "lock")); err != nil {
			return fmt.Errorf("%s: %s", dir, noCheckpoints)
		}
	}
	d := store.Open(c.fsys, dir, 0)
	if !dry {
		if d, err = store.Create(c.fsys, dir, 0); err != nil {
			return err
		}
		defer d.Close()
		if folders, err = c.folders(dir); err != nil {
			return err
		}
	}
	p, err := c.planGC(ctx, d, folders, keep)
	if err != nil {
		return err
	}
	p.doc.DryRun = dry
	if !dry {
		if err := p.remove(c, d, keep); err != nil {
			return err
		}
	}
	if c.json {
		return c.document(p.doc)
	}
	c.gcText(&p.doc)
	return nil
}

// gcPlan is what gc is about to remove.
type gcPlan struct {
	doc     gcDocument
	damaged map[uint64]bool
}

// planGC decides what goes. It makes the same choice as store.Dir.Prune.
func (c *call) planGC(ctx context.Context, d *store.Dir, folders map[uint64]string, keep int) (*gcPlan, error) {
	committed, err := d.Sets()
	if err != nil {
		return nil, err
	}
	p := &gcPlan{
		doc:     gcDocument{Dir: d.Path(), Kept: []uint64{}, Removed: []removedSet{}, Unfinished: []unfinished{}, Files: []string{}},
		damaged: make(map[uint64]bool),
	}
	var gone, stays []folderFile
	for n, path := range folders {
		files, err := c.files(path)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if rank, ok := fileRank(filepath.Base(f.path)); ok && rank > 0 {
				return nil, fmt.Errorf("%s: sets of several ranks, which must be removed together; gc knows only runs of one rank", d.Path())
			}
		}
		if !slices.Contains(committed, n) {
			p.doc.Unfinished = append(p.doc.Unfinished, unfinished{n, path})
			gone = append(gone, files...)
		}
	}
	slices.SortFunc(p.doc.Unfinished, func(a, b unfinished) int { return int(int64(b.Set) - int64(a.Set)) })
	for _, n := range committed {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		t := target{file: d.File(n), dir: d.Path(), index: n}
		files, err := c.files(filepath.Dir(t.file))
		if err != nil {
			return nil, err
		}
		s, err := c.check(t)
		switch {
		case errors.Is(err, ckpt.ErrCorrupt):
			p.damaged[n] = true
			p.doc.Removed = append(p.doc.Removed, removedSet{n, filepath.Dir(t.file), reason(err, t.file)})
		case err != nil:
			return nil, fmt.Errorf("set %d can't be judged, so nothing was removed: %w", n, err)
		case len(p.doc.Kept) >= keep:
			s.Close()
			p.doc.Removed = append(p.doc.Removed, removedSet{n, filepath.Dir(t.file), "older"})
		default:
			unneeded, err := c.unneeded(t, &s.Header)
			s.Close()
			if err != nil {
				return nil, err
			}
			p.doc.Kept = append(p.doc.Kept, n)
			for _, f := range unneeded {
				p.doc.Files = append(p.doc.Files, f.path)
			}
			for _, f := range files {
				if slices.Contains(p.doc.Files, f.path) {
					gone = append(gone, f)
				} else {
					stays = append(stays, f)
				}
			}
			continue
		}
		gone = append(gone, files...)
	}
	if len(committed) > 0 && len(p.doc.Kept) == 0 {
		return nil, fmt.Errorf("%s: all of %s are damaged, so nothing was removed; see 'cairn verify %s', and move the folder away to start afresh", d.Path(), count(len(committed), "set"), d.Path())
	}
	p.doc.FreedBytes = distinct(gone, stays)
	return p, nil
}

// remove does what was planned. The folder is locked.
func (p *gcPlan) remove(c *call, d *store.Dir, keep int) error {
	for _, path := range p.doc.Files {
		if err := c.fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if _, err := d.Prune(keep, p.damaged); err != nil {
		return fmt.Errorf("%s: not everything could be removed; the sets to keep are whole: %w", d.Path(), err)
	}
	return nil
}

func (c *call) gcText(doc *gcDocument) {
	did, freed := "removed", "freed"
	if doc.DryRun {
		did, freed = "would remove", "would be freed"
	}
	for _, r := range doc.Removed {
		why := "older than those kept"
		if r.Why != "older" {
			why = "damaged: " + printable(r.Why)
		}
		c.printf("%s set %d (%s)\n", did, r.Set, why)
	}
	for _, u := range doc.Unfinished {
		c.printf("%s set %d (never finished)\n", did, u.Set)
	}
	for _, path := range doc.Files {
		c.printf("%s %s (no set needs it)\n", did, path)
	}
	if len(doc.Removed)+len(doc.Unfinished)+len(doc.Files) == 0 {
		c.printf("nothing to remove")
	} else {
		c.printf("%s %s", size(doc.FreedBytes), freed)
	}
	if len(doc.Kept) > 0 {
		c.printf("; kept %s", setNames(doc.Kept))
	}
	c.printf("\n")
}
