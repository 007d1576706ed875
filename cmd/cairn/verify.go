package main

import (
	"cmp"
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
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise"
)

func verifyCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [--accept] [--tier TIER] [--key FILE] [CHECKPOINT|DIR|PLACE …]",
		Short: "check every byte of checkpoints",
		Long: `Reads all of a checkpoint, with the blocks that are in files of older checkpoints,
compares every block with its digest (a hash), and names the blocks that differ.
Given a directory, it checks the files of all ranks of all checkpoints. It names
checkpoints that are incomplete because a rank's file is missing. A file also
counts as damaged if its content is that of another run, rank or checkpoint than
its path says, or if the files of a checkpoint come from different starts of the
run. The exit code is 1 if anything is damaged, or if the checkpoint, or every
checkpoint of the directory, is incomplete. Without arguments, it checks the only
*.cairn directory here.

With --accept, it accepts values of one checkpoint that were changed on purpose
(with h5py, for example): it writes the checkpoint again, as a full one, with
digests of its current values, and a restart uses these values. It locks the
directory, so no run may be using it. Checkpoints share files: if a change in one
checkpoint has also changed others, cairn says so.

With --tier, it checks what a tier of the run has (cairn run --tiers): TIER is
partner, rs, shared or s3. It reads every object there and compares it with its
digest. Hosts check what they keep for partner and rs; the objects of a shared
directory or an object store are read from here. A place on a tier can be named by
itself, too: s3://BUCKET/PREFIX, or a directory of one run on a shared tier.`,
		Example: `  cairn verify ckpt                                                     # all in directory ckpt
  cairn verify ckpt@12                                                  # only checkpoint 12
  cairn verify --json a b | jq '.files[] | select(.status != "sound")'  # what is wrong in a and b
  cairn verify --accept ckpt@12                                         # accept edited values
  cairn verify --tier s3 sim.cairn                                      # what the object store has`,
		Args:              takes(0, -1),
		ValidArgsFunction: c.completeCheckpoints,
	}
	f := cmd.Flags()
	accept := f.Bool("accept", false, "accept values of one checkpoint that were changed on purpose")
	keyFlag(f, c)
	tier := f.String("tier", "", "check what a tier has: `TIER` is partner, rs, shared or s3")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error {
		switch {
		case *accept && *tier != "":
			return usagef("verify: --accept and --tier exclude each other")
		case len(c.args) == 1 && supervise.IsPlace(c.args[0]):
			if *accept || *tier != "" {
				return usagef("verify: --accept and --tier are for run directories, and %s is a place on a tier", c.args[0])
			}
			return c.verifyPlace(ctx, c.args[0])
		case *accept:
			return c.accept(ctx)
		case *tier != "" && *tier != "local":
			return c.verifyTier(ctx, *tier)
		}
		return verify(ctx, c)
	})
	return cmd
}

// verifyTier checks what a tier of a run has.
func (c *call) verifyTier(ctx context.Context, tier string) error {
	run, err := c.theRun()
	if err != nil {
		return err
	}
	if err := c.runDir(run); err != nil {
		return err
	}
	if err := c.askHosts(run); err != nil {
		return err
	}
	if c.hosts == nil {
		return fmt.Errorf("%s: the run has no tiers (cairn run --tiers)", run)
	}
	found, err := c.hosts.VerifyTier(ctx, tier)
	if err != nil {
		return err
	}
	return c.verifiedTier(found)
}

// verifiedTier shows what was found on a tier.
func (c *call) verifiedTier(found *supervise.VerifiedTier) (err error) {
	if c.json {
		err = c.document(found)
	} else {
		what := control.Count(found.Checked, "checkpoint")
		switch {
		case found.End && found.Checked == 0:
			what = "the end of the run"
		case found.End:
			what += " and the end of the run"
		case found.Bytes == 0:
			what = control.Count(found.Checked, "object")
		}
		for _, d := range found.Damage {
			c.printf("%s: %s: damaged: %s\n", d.Place, d.Object, printable(d.Reason))
		}
		c.printf("%s: %s checked, %d damaged\n", found.Tier, what, len(found.Damage))
	}
	if err == nil && len(found.Damage) > 0 {
		err = errFound
	}
	return err
}

// verifyDocument is what verify --json prints.
type verifyDocument struct {
	Files      []verifiedFile         `json:"files"`      // one for every rank's file
	Incomplete []incompleteCheckpoint `json:"incomplete"` // those that lack a rank's file
	Sound      bool                   `json:"sound"`      // all files of them
	// Finished are the runs that have finished and have no checkpoints.
	Finished []*supervise.FinishedRun `json:"finished,omitempty"`
}

// verifiedFile is the result of checking one rank's file of a checkpoint.
type verifiedFile struct {
	Index        uint64         `json:"index"`
	Rank         int            `json:"rank"`
	Ranks        int            `json:"ranks"` // 0: not known
	Run          string         `json:"run,omitempty"`
	Attempt      string         `json:"attempt,omitempty"`
	Path         string         `json:"path"`
	Status       string         `json:"status"` // "sound", "damaged" or "unreadable"
	CheckedBytes int64          `json:"checkedBytes"`
	Damage       []damagedBlock `json:"damage"`
	Accepted     []damagedBlock `json:"accepted,omitempty"` // by --accept
	Sharing      []uint64       `json:"sharing,omitempty"`  // checkpoints that share files with an accepted one
	Error        string         `json:"error,omitempty"`    // why it is unreadable
}

// incompleteCheckpoint is a checkpoint that not all ranks have.
type incompleteCheckpoint struct {
	Index   uint64 `json:"index"`
	Ranks   int    `json:"ranks"`
	Missing []int  `json:"missing"`
}

// damagedBlock is a block that differs from what was written.
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
		var over *finishedError
		if errors.As(err, &over) {
			doc.Finished = append(doc.Finished, over.run)
			c.finishedText(over.dir, over.run, false)
			continue
		}
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

// outcome is the result of checking a checkpoint.
type outcome struct {
	index  uint64
	files  []verifiedFile
	lacks  *incompleteCheckpoint
	status string // "sound", "incomplete", "damaged" or "unreadable"
}

// lineage identifies the run that the files of a directory belong to.
type lineage struct{ first *verifiedFile }

// compare finds a file that is intact but does not belong to the files before
// it.
func (l *lineage) compare(v, group *verifiedFile) {
	if v.Status != "sound" {
		return
	}
	l.first = cmp.Or(l.first, v)
	why := ""
	switch {
	case v.Run != l.first.Run:
		why = fmt.Sprintf("it belongs to run %q, and %s to run %q", v.Run, l.first.Path, l.first.Run)
	case v.Ranks != group.Ranks:
		why = fmt.Sprintf("it belongs to a run of %d ranks, and %s to one of %d", v.Ranks, group.Path, group.Ranks)
	case v.Attempt != group.Attempt:
		why = fmt.Sprintf("another start of the run has saved it than %s: they do not belong together", group.Path)
	default:
		return
	}
	v.Status, v.Damage = "damaged", append(v.Damage, damagedBlock{"metadata", why})
}

// verifyGroup checks the files of all ranks of a checkpoint. With all set, the
// run may remove them meanwhile.
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
		c.printf("checkpoint %d is incomplete: of its %s, there is no file of %s\n", o.index, control.Count(lacks.Ranks, "rank"), rankNames(lacks.Missing))
	}
	return o, failed
}

// notDone reports the previous error, and keeps this one for the end.
func (c *call) notDone(before, err error) error {
	if before != nil {
		c.notef("%s", describe(before))
	}
	return err
}

// verifyFile checks one rank's file of a checkpoint. It returns an error if the
// file could not be checked; damage is not an error.
func (c *call) verifyFile(ctx context.Context, t target) (verifiedFile, error) {
	v := verifiedFile{Index: t.index, Rank: t.rank, Path: withSlashes(t.file), Status: "sound", Damage: []damagedBlock{}}
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

// damage reads all of a checkpoint and returns what is damaged, in file order.
func (c *call) damage(ctx context.Context, s *ckpt.File) ([]damagedBlock, error) {
	p := c.progress(fmt.Sprintf("checking checkpoint %d", s.Header.Index), s.State())
	var found []ckpt.Damage
	var err error
	elsewhere := false
	if c.hosts != nil { // the host that has it reads it
		found, elsewhere, err = c.hosts.Verify(s.Path)
	}
	if !elsewhere {
		found, err = s.Verify(ctx, p.at)
	}
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
		c.printf("%s: cannot check: %s\n", v.Path, v.Error)
	case v.Status == "sound" && len(v.Accepted) > 0:
		c.printf("%s: sound now: accepted the values in %s\n", v.Path, control.Count(len(v.Accepted), "changed block"))
		for _, b := range v.Accepted {
			c.printf("  %s\n", printable(b.Block))
		}
	case v.Status == "sound":
		c.printf("%s: sound, %s checked\n", v.Path, control.BytesText(v.CheckedBytes))
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

// outlook prints what damage in a directory means for its run.
func (c *call) outlook(checkpoints []outcome) {
	good := slices.IndexFunc(checkpoints, func(o outcome) bool { return o.status == "sound" })
	bad := slices.IndexFunc(checkpoints, func(o outcome) bool { return o.status == "damaged" })
	switch {
	case bad < 0 && (good >= 0 || len(checkpoints) == 0):
	case bad < 0:
		c.printf("no checkpoint in this directory is complete: there is none that every rank can load\n")
	case good < 0:
		c.printf("no checkpoint in this directory is sound: a run will refuse to resume from it; bring back a copy, or move the directory away to start over\n")
	case bad < good:
		c.printf("a restart avoids the damage: it uses checkpoint %d\n", checkpoints[good].index)
	default:
		c.printf("a restart uses checkpoint %d, which is sound\n", checkpoints[good].index)
	}
}

// accept does verify --accept.
func (c *call) accept(ctx context.Context) error {
	if len(c.args) != 1 {
		return usagef("verify: --accept takes one checkpoint, not %d; name one at a time", len(c.args))
	}
	g, err := c.theCheckpoint(c.args[0])
	if err != nil {
		return err
	}
	if g.dir == "" {
		return fmt.Errorf("%s: --accept needs a file in a checkpoint directory (DIR/ckpt-00000012/rank-0000.h5); put this file into one first", g.parts[0].file)
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
		c.notef("%s shares files with this checkpoint, and the same values may have changed there; check with 'cairn verify %s'", checkpointNames(slices.Compact(sharing)), g.dir)
	}
	if !doc.Sound {
		return errFound
	}
	return nil
}

// acceptFile rewrites a file if it holds something to accept.
func (c *call) acceptFile(ctx context.Context, t target, dir *store.Dir) (verifiedFile, error) {
	v, err := c.verifyFile(ctx, t)
	if err != nil || v.Status == "sound" {
		return v, err
	}
	s, err := c.open(t)
	if err != nil {
		return v, fmt.Errorf("%w; its metadata is damaged, so changed values cannot be accepted", err)
	}
	defer s.Close()
	changed := v.Damage
	sharing, err := c.sharing(t)
	if err != nil {
		return v, err
	}
	p := c.progress(fmt.Sprintf("rewriting checkpoint %d", s.Header.Index), s.State())
	err = s.Accept(ctx, dir, p.at)
	p.end()
	if err != nil {
		return v, fmt.Errorf("%s: cannot accept, left as it was: %w", t.file, err)
	}
	if v, err = c.verifyFile(ctx, t); err != nil {
		return v, err
	}
	v.Accepted, v.Sharing = changed, sharing
	return v, nil
}

// sharing returns the other checkpoints in the directory that share a file with
// t.
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

// checkpointNames returns indices as users read them: checkpoints 3 and 4.
func checkpointNames(indices []uint64) string { return control.Listed(indices, "checkpoint") }
