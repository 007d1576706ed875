package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/store"
)

func verifyCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [--accept] [SET|DIR …]",
		Short: "check every byte of sets",
		Long: `Reads all of a set, with the blocks that lie in files of older sets, compares
everything with its digests, and names the blocks that are not what was
written. For a run's folder, all sets in it are checked; of a set, the files of
all ranks. It says which sets are incomplete, because a rank's file is missing.
A file of another run, rank or checkpoint than the one it lies with counts as
damaged, and so do files of one checkpoint that two starts of the run saved.
The exit code is 1 if anything is damaged, or if the set, or every set of the
folder, is incomplete. Without arguments, the only *.cairn folder here is checked.

With --accept, values that were changed on purpose in the files of one set (by
h5py, say) are accepted: the set is written anew with digests of what it holds
now, whole by itself, and a run that restarts takes the changed values. It
needs the folder's lock, so no run may be using it. Sets share files: a value
changed in one may be changed in others too, which cairn then says.`,
		Example: `  cairn verify ckpt                                                    # all sets in folder ckpt
  cairn verify ckpt@12                                                 # only set 12
  cairn verify --json a b | jq '.sets[] | select(.status != "sound")'  # what is wrong in two folders
  cairn verify --accept ckpt@12                                        # make values edited in set 12 good`,
		Args:              takes(0, -1),
		ValidArgsFunction: c.completeCheckpoints,
	}
	f := cmd.Flags()
	accept := f.Bool("accept", false, "accept values that were changed on purpose, in one set")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error {
		if *accept {
			return c.accept(ctx)
		}
		return verify(ctx, c)
	})
	return cmd
}

// verifyDocument is what verify --json prints.
type verifyDocument struct {
	Files      []verifiedFile         `json:"sets"`       // one for every rank's file
	Incomplete []incompleteCheckpoint `json:"incomplete"` // those that lack a rank's file
	Sound      bool                   `json:"sound"`      // all files of them
}

// verifiedFile is what became of checking one rank's file of a set.
type verifiedFile struct {
	Index        uint64         `json:"set"`
	Rank         int            `json:"rank"`
	Ranks        int            `json:"ranks"` // 0: not known
	Run          string         `json:"run,omitempty"`
	Attempt      string         `json:"attempt,omitempty"`
	Path         string         `json:"path"`
	Status       string         `json:"status"` // "sound", "damaged" or "unreadable"
	CheckedBytes int64          `json:"checkedBytes"`
	Damage       []damagedBlock `json:"damage"`
	Accepted     []damagedBlock `json:"accepted,omitempty"` // by --accept
	Sharing      []uint64       `json:"sharing,omitempty"`  // sets that share files with one that was accepted
	Error        string         `json:"error,omitempty"`    // why it is unreadable
}

// incompleteCheckpoint is a set that not all ranks have.
type incompleteCheckpoint struct {
	Index   uint64 `json:"set"`
	Ranks   int    `json:"ranks"`
	Missing []int  `json:"missing"`
}

// damagedBlock is a block that is not what was written.
type damagedBlock struct {
	Block  string `json:"block"`
	Reason string `json:"reason"`
}

func verify(ctx context.Context, c *call) error {
	if len(c.args) == 0 {
		run, err := c.theRun()
		if err != nil {
			return err
		}
		c.args = []string{run}
	}
	doc := verifyDocument{Files: []verifiedFile{}, Incomplete: []incompleteCheckpoint{}, Sound: true}
	var failed error
	found := false
	for _, arg := range c.args {
		checkpoints, all, err := c.groups(arg)
		if err != nil {
			failed = c.notDone(failed, err)
			continue
		}
		var outcomes []outcome
		var whose lineage
		for _, g := range checkpoints {
			o, err := c.verifyGroup(ctx, g, all, &whose)
			if errors.Is(err, context.Canceled) {
				return err
			}
			if err != nil {
				failed = c.notDone(failed, err)
			}
			if len(o.files) == 0 {
				continue // the run has removed it meanwhile
			}
			doc.Sound = doc.Sound && o.status != "damaged"
			doc.Files = append(doc.Files, o.files...)
			if o.lacks != nil {
				doc.Incomplete = append(doc.Incomplete, *o.lacks)
			}
			outcomes = append(outcomes, o)
		}
		if all && !c.json {
			c.outlook(outcomes)
		}
		whole := func(o outcome) bool { return o.lacks == nil }
		found = found || len(outcomes) > 0 && !slices.ContainsFunc(outcomes, whole)
	}
	found = found || !doc.Sound
	doc.Sound = doc.Sound && failed == nil
	if c.json {
		if err := c.document(doc); err != nil {
			return err
		}
	}
	switch {
	case failed != nil:
		return failed
	case found:
		return errFound
	}
	return nil
}

// outcome is what became of checking a set.
type outcome struct {
	index  uint64
	files  []verifiedFile
	lacks  *incompleteCheckpoint
	status string // "sound", "incomplete", "damaged" or "unreadable"
}

// lineage is what the files of a directory have in common.
type lineage struct{ first *verifiedFile }

// compare finds a file that is sound by itself and does not belong to those
// before it.
func (l *lineage) compare(v, group *verifiedFile) {
	if v.Status != "sound" {
		return
	}
	if l.first == nil {
		l.first = v
	}
	why := ""
	switch {
	case v.Run != l.first.Run:
		why = fmt.Sprintf("it is of run %q, and %s is of run %q", v.Run, l.first.Path, l.first.Run)
	case v.Ranks != group.Ranks:
		why = fmt.Sprintf("it is of a run of %d ranks, and %s is of one of %d", v.Ranks, group.Path, group.Ranks)
	case v.Attempt != group.Attempt:
		why = fmt.Sprintf("it was saved by another start of the run than %s: they do not belong together", group.Path)
	default:
		return
	}
	v.Status, v.Damage = "damaged", append(v.Damage, damagedBlock{"metadata", why})
}

// verifyGroup checks the files of all ranks of a set. In a run's folder they
// may be removed meanwhile.
func (c *call) verifyGroup(ctx context.Context, g group, all bool, whose *lineage) (o outcome, failed error) {
	var first *verifiedFile
	o = outcome{index: g.index, status: "sound"}
	lacks := incompleteCheckpoint{Index: g.index}
	have := make(map[int]bool)
	vanished := false
	for _, t := range g.parts {
		v, err := c.verifyFile(ctx, t)
		if errors.Is(err, context.Canceled) {
			return o, err
		}
		if all && errors.Is(err, fs.ErrNotExist) {
			vanished = true
			continue
		}
		if err != nil {
			failed = c.notDone(failed, err)
		}
		if first == nil && v.Status == "sound" {
			first = &v
		}
		whose.compare(&v, first)
		if v.Status == "damaged" || v.Status == "unreadable" && o.status == "sound" {
			o.status = v.Status
		}
		have[t.rank] = true
		lacks.Ranks = max(lacks.Ranks, v.Ranks, t.rank+1)
		o.files = append(o.files, v)
		if !c.json {
			c.verifiedText(&v)
		}
	}
	for r := range lacks.Ranks {
		if !have[r] {
			lacks.Missing = append(lacks.Missing, r)
		}
	}
	if g.file || vanished || len(lacks.Missing) == 0 {
		return o, failed
	}
	o.lacks = &lacks
	if o.status == "sound" {
		o.status = "incomplete"
	}
	if !c.json {
		c.printf("set %d is incomplete: of its %s, there is no file of %s\n", o.index, count(lacks.Ranks, "rank"), rankNames(lacks.Missing))
	}
	return o, failed
}

// notDone keeps the last of several errors for the end and reports the one
// before it now.
func (c *call) notDone(before, err error) error {
	if before != nil {
		c.notef("%s", describe(before))
	}
	return err
}

// verifyFile checks one rank's file of a set. An error says that it could not
// be done; damage is none.
func (c *call) verifyFile(ctx context.Context, t target) (verifiedFile, error) {
	v := verifiedFile{Index: t.index, Rank: t.rank, Path: t.file, Status: "sound", Damage: []damagedBlock{}}
	s, err := c.open(t)
	if err == nil {
		defer s.Close()
		v.Index, v.Rank, v.Ranks, v.CheckedBytes = s.Header.Index, s.Header.Rank, s.Header.Ranks, s.State()
		v.Run, v.Attempt = s.Header.Run, s.Header.Attempt
		v.Damage, err = c.damage(ctx, s)
	}
	switch {
	case errors.Is(err, ckpt.ErrCorrupt):
		v.Damage = append(v.Damage, damagedBlock{"metadata", reason(err, t.file)})
	case err != nil:
		v.Status, v.Error = "unreadable", reason(err, t.file)
		return v, err
	}
	if len(v.Damage) > 0 {
		v.Status = "damaged"
		if _, gone := c.fsys.Stat(t.file); errors.Is(gone, fs.ErrNotExist) {
			v.Status, v.Error = "unreadable", "removed while it was being checked"
			return v, fmt.Errorf("%s: removed while it was being checked; try again: %w", t.file, gone)
		}
	}
	return v, nil
}

// damage reads all of a set and returns what is damaged, in the set's order.
func (c *call) damage(ctx context.Context, s *ckpt.File) ([]damagedBlock, error) {
	p := c.progress(fmt.Sprintf("checking set %d", s.Header.Index), s.State())
	found, err := s.Verify(ctx, p.at)
	p.end()
	out := []damagedBlock{}
	if err != nil {
		return out, err
	}
	if len(found) > 1 {
		place := make(map[string]int)
		for i := range s.Header.Datasets {
			d := &s.Header.Datasets[i]
			for k := 0; int64(k)*d.Block < d.Size; k++ {
				place[s.BlockName(i, k)] = d.First + k
			}
		}
		slices.SortStableFunc(found, func(a, b ckpt.Damage) int { return place[a.Name] - place[b.Name] })
	}
	for _, d := range found {
		why := strings.TrimPrefix(reason(d.Err, s.Path), d.Name+" ")
		out = append(out, damagedBlock{d.Name, why})
	}
	return out, nil
}

func (c *call) verifiedText(v *verifiedFile) {
	switch {
	case v.Status == "unreadable":
		c.printf("%s: could not be checked: %s\n", v.Path, v.Error)
	case v.Status == "sound" && len(v.Accepted) > 0:
		c.printf("%s: sound now: accepted the values in %s\n", v.Path, count(len(v.Accepted), "changed block"))
		for _, b := range v.Accepted {
			c.printf("  %s\n", printable(b.Block))
		}
	case v.Status == "sound":
		c.printf("%s: sound, %s checked\n", v.Path, size(v.CheckedBytes))
	default:
		c.printf("%s: damaged\n", v.Path)
		c.blocksText(v.Damage)
	}
}

func (c *call) blocksText(blocks []damagedBlock) {
	const most, alike = 20, 3
	seen := make(map[string]int) // reason → blocks
	printed := 0
	for _, b := range blocks {
		seen[b.Reason]++
		if printed == most || strings.Contains(b.Reason, "base of this checkpoint") && seen[b.Reason] > alike {
			continue
		}
		printed++
		c.printf("  %s: %s\n", printable(b.Block), printable(b.Reason))
	}
	if printed < len(blocks) {
		c.printf("  … and %d more (--json lists all)\n", len(blocks)-printed)
	}
}

// outlook says what damage in a folder means for its run.
func (c *call) outlook(checkpoints []outcome) {
	good := slices.IndexFunc(checkpoints, func(o outcome) bool { return o.status == "sound" })
	bad := slices.IndexFunc(checkpoints, func(o outcome) bool { return o.status == "damaged" })
	switch {
	case bad < 0 && (good >= 0 || len(checkpoints) == 0):
	case bad < 0:
		c.printf("no set in this folder is complete: there is none that every rank can load\n")
	case good < 0:
		c.printf("no set in this folder is sound: a run will refuse to start from it; bring back a copy, or move the folder away to start afresh\n")
	case bad < good:
		c.printf("a run that restarts steps around the damage to set %d\n", checkpoints[good].index)
	default:
		c.printf("a run that restarts takes set %d, which is sound\n", checkpoints[good].index)
	}
}

// accept does verify --accept.
func (c *call) accept(ctx context.Context) error {
	if len(c.args) != 1 {
		return usagef("verify: --accept takes one set, not %d; name one at a time", len(c.args))
	}
	g, err := c.theCheckpoint(c.args[0])
	if err != nil {
		return err
	}
	if g.dir == "" {
		return fmt.Errorf("%s: --accept works on a set in a run's folder (DIR/ckpt-00000012/rank-0000.h5), which this file is not in; put it there first", g.parts[0].file)
	}
	var dirs []*store.Dir
	for _, t := range g.parts {
		dir, err := store.Create(c.fsys, t.dir, t.rank)
		if err != nil {
			return err
		}
		defer dir.Close()
		dirs = append(dirs, dir)
	}
	doc := verifyDocument{Files: []verifiedFile{}, Incomplete: []incompleteCheckpoint{}, Sound: true}
	var sharing []uint64
	for i, t := range g.parts {
		v, err := c.acceptFile(ctx, t, dirs[i])
		if err != nil {
			return err
		}
		doc.Files = append(doc.Files, v)
		doc.Sound = doc.Sound && v.Status == "sound"
		sharing = append(sharing, v.Sharing...)
		if !c.json {
			c.verifiedText(&v)
		}
	}
	if c.json {
		if err := c.document(doc); err != nil {
			return err
		}
	}
	if slices.Sort(sharing); len(sharing) > 0 {
		c.notef("files of this set are also files of %s, where the same values may have changed; check with 'cairn verify %s'", checkpointNames(slices.Compact(sharing)), g.dir)
	}
	if !doc.Sound {
		return errFound
	}
	return nil
}

// acceptFile rewrites a set if it holds something to accept.
func (c *call) acceptFile(ctx context.Context, t target, dir *store.Dir) (verifiedFile, error) {
	v, err := c.verifyFile(ctx, t)
	if err != nil || v.Status == "sound" {
		return v, err
	}
	s, err := c.open(t)
	if err != nil {
		return v, fmt.Errorf("%w; its metadata is damaged, so there is nothing to accept values into", err)
	}
	defer s.Close()
	changed := v.Damage
	sharing, err := c.sharing(t)
	if err != nil {
		return v, err
	}
	p := c.progress(fmt.Sprintf("rewriting set %d", s.Header.Index), s.State())
	err = s.Accept(ctx, dir, p.at)
	p.end()
	if err != nil {
		return v, fmt.Errorf("%s: not accepted, and left as it was: %w", t.file, err)
	}
	if v, err = c.verifyFile(ctx, t); err != nil {
		return v, err
	}
	v.Accepted, v.Sharing = changed, sharing
	return v, nil
}

// sharing returns the other sets in a run's folder that have a file in common
// with t.
func (c *call) sharing(t target) ([]uint64, error) {
	mine, err := c.files(filepath.Dir(t.file))
	if err != nil {
		return nil, err
	}
	dirs, err := c.checkpointDirs(t.dir)
	if err != nil {
		return nil, err
	}
	var out []uint64
	for n, path := range dirs {
		if n == t.index {
			continue
		}
		theirs, err := c.files(path)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(theirs, func(f dirFile) bool {
			return slices.ContainsFunc(mine, func(g dirFile) bool { return os.SameFile(f.info, g.info) })
		}) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, nil
}

// checkpointNames gives indices as people read them: set 3, sets 3 and 4.
func checkpointNames(indices []uint64) string { return listed(indices, "set") }
