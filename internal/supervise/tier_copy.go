//go:build linux

package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/local"
	"github.com/cairnrun/cairn/internal/tier/policy"
	"github.com/cairnrun/cairn/internal/vfs"
)

// ErrOnHosts is an error of CopyRun: it does not ask hosts.
var ErrOnHosts = errors.New("the checkpoints of this run are on its hosts")

// CopyRun copies a run to a place: s3://BUCKET/PREFIX, or a directory of a run on
// a shared tier. from is such a place, a run directory or a checkpoint
// directory. With FROM@INDEX, or FROM@NAME for a pinned one, it copies one
// checkpoint. fromKey and toKey are files with keys, if the places are
// encrypted. The copy is a run of its own, with its own identity, which 'cairn
// run --from' resumes.
func CopyRun(ctx context.Context, from, to, fromKey, toKey string) (*CopiedRun, error) {
	dir, index, pin := splitCheckpoint(from)
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	// The checkpoint directory of a run directory needs the output there.
	if rec, err := rundir.ReadRecord(filepath.Dir(dir)); err == nil && rec != nil && rec.Local == "" && rundir.RealPath(rec.CheckpointDir) == rundir.RealPath(dir) {
		dir = filepath.Dir(dir)
	}
	if rec, err := rundir.ReadRecord(dir); err != nil {
		return nil, err
	} else if rec != nil {
		return copyRecorded(ctx, rec, dir, index, pin, to, fromKey, toKey)
	}
	if here, err := store.Holds(vfs.OS(), dir); err == nil && here {
		src := local.Source{Checkpoints: dir}
		if _, err := os.Stat(filepath.Join(dir, "output")); err == nil { // it is pinned, with its output
			src.Run = dir
		}
		return copyDir(ctx, from, src, index, to, toKey)
	}
	return copyPlace(ctx, from, to, fromKey, toKey)
}

// copyRecorded copies the run of a run directory: from its directory, or from
// its tiers if its hosts share none.
func copyRecorded(ctx context.Context, rec *rundir.Record, run string, index uint64, pin, to, fromKey, toKey string) (*CopiedRun, error) {
	if rec.Local == "" && pin != "" {
		return nil, fmt.Errorf("%s@%s: the pinned checkpoints of this run are directories: name %s", run, pin, filepath.Join(rec.CheckpointDir, "pinned", pin))
	}
	if rec.Local == "" {
		return copyDir(ctx, run, local.Source{Run: run, Checkpoints: rec.CheckpointDir, Cwd: rec.Cwd, Ranks: rec.Ranks}, index, to, toKey)
	}
	why := errors.New("it has no tier outside of its hosts")
	if pol, err := policy.Parse(rec.Policy); rec.Policy != "" && err == nil {
		for _, t := range pol.Outer() {
			place := t.RunDir(rec.Name)
			if index > 0 {
				place += fmt.Sprintf("@%d", index)
			}
			if pin != "" {
				place += "@" + pin
			}
			out, err := copyPlace(ctx, place, to, cmp.Or(fromKey, t.Key), toKey)
			if err == nil {
				return out, nil
			}
			why = err
		}
	}
	return nil, fmt.Errorf("%s: %w, and it cannot be copied from a tier: %w; make a copy with 'cairn copy %s PLACE', and name that", run, ErrOnHosts, why, run)
}

// FilesElsewhere returns an error if a rank has data files that a copy of its
// checkpoint files would not have: the journal of a compiled program, and files
// on another host than this one. files are those that the checkpoint names.
func (v *HostView) FilesElsewhere(rank int, files []ckpt.FileEntry) error {
	const remedy = "resume the run with shared=DIR or s3=… in --tiers, take a checkpoint, stop it, and copy it from there"
	h := v.home(rank)
	switch {
	case h == nil:
		return nil
	case slices.Contains(h.Files.Journals, rank):
		return fmt.Errorf("the files that rank %d has changed are on host %s, with their journal, and a copy needs them: %s", rank, h.Name, remedy)
	case isHere(h.Name):
		return nil
	}
	for i := range files {
		if f := &files[i]; !f.IsStream() && !f.Closed && f.Mode != "r" && f.Path != "/dev/stdout" {
			return fmt.Errorf("%s of rank %d may be on the disk of host %s, and a copy needs it: give the command there if all ranks run there, or %s", f.Path, rank, h.Name, remedy)
		}
	}
	return nil
}

// copyDir copies a complete checkpoint of a run whose ranks share a directory:
// that of index, or the newest if index is 0.
func copyDir(ctx context.Context, from string, src local.Source, index uint64, to, toKey string) (*CopiedRun, error) {
	members, err := store.Members(vfs.OS(), src.Checkpoints)
	if err != nil {
		return nil, err
	}
	err = fmt.Errorf("%s has no complete checkpoint", from)
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(members))) {
		if index > 0 && n != index || len(members[n]) == 0 {
			continue
		}
		f, oerr := ckpt.Open(vfs.OS(), store.Open(vfs.OS(), src.Checkpoints, members[n][0]).File(n))
		if oerr != nil {
			err = oerr
			continue
		}
		h := f.Header
		f.Close()
		if len(members[n]) != h.Ranks {
			continue
		}
		src.Ranks = h.Ranks
		record := new(control.AttemptRecord).Next(0, h.Attempt)
		host, _ := os.Hostname()
		at, _ := time.Parse(time.RFC3339, h.Time)
		record.Ranks, record.Host, record.Time = h.Ranks, host, at // the same if the copy is repeated
		for range h.Ranks {
			record.Homes = append(record.Homes, control.Home{Host: host, Dir: "copied"})
		}
		return copyTo(ctx, from, to, toKey, h.Run, record, func(y tier.Tier, as string) ([]uint64, int64, error) {
			m, err := src.Publish(ctx, y, n, as)
			if err != nil {
				return nil, 0, err
			}
			return []uint64{n}, size(ctx, y, m), nil
		})
	}
	return nil, err
}

// size returns the bytes of a checkpoint on a tier.
func size(ctx context.Context, t tier.Tier, m *tier.Manifest) (n int64) {
	for i := range m.Parts {
		if p, err := m.Part(ctx, t, i); err == nil {
			p.Objects(func(o tier.Object) { n += o.Size })
		}
	}
	return n
}

// copyPlace copies a run from a tier.
func copyPlace(ctx context.Context, from, to, fromKey, toKey string) (*CopiedRun, error) {
	p, f, err := openPlace(ctx, from, fromKey)
	if err != nil {
		return nil, err
	}
	if p.End != nil {
		return nil, fmt.Errorf("the run at %s has finished, so a copy has nothing to resume: 'cairn run --from %s' gives its files and its output", from, from)
	}
	return copyTo(ctx, from, to, toKey, f.record.Run, f.record, func(y tier.Tier, as string) (indices []uint64, n int64, err error) {
		for _, m := range p.list {
			indices = append(indices, m.Index)
		}
		n, err = tier.CopyRun(ctx, p.tier, y, as, p.list)
		return indices, n, err
	})
}

// copyTo makes a copy of a run at a place. record is that of its newest start.
func copyTo(ctx context.Context, from, to, key, run string, record *control.AttemptRecord, put func(y tier.Tier, as string) ([]uint64, int64, error)) (*CopiedRun, error) {
	dst, name, _, _, err := placeOf(to)
	if err != nil {
		return nil, err
	}
	dst.Key = key
	y, err := helper.OpenTier(ctx, &dst, name, vfs.AccessFromEnv())
	if err != nil {
		return nil, err
	}
	as, err := copiedAs(ctx, y, run)
	if err != nil {
		return nil, err
	}
	complete, err := tier.Runs(ctx, y)
	if err != nil {
		return nil, err
	}
	for _, id := range complete {
		if id != as {
			return nil, fmt.Errorf("%s has another run already (%s): name an empty place", to, id)
		}
	}
	record.Run = as
	was, err := readAttempt(ctx, y, as)
	switch {
	case err != nil:
		return nil, err
	case was != nil && len(complete) > 0 && !sameStart(was, record):
		return nil, fmt.Errorf("%s has an older copy of the run, which may be used: name an empty place", to)
	case was != nil && len(complete) == 0: // of a copy that was interrupted
		if err := y.Remove(ctx, attemptName(as, was.Number)); err != nil {
			return nil, err
		}
	}
	if _, err := createAttempt(ctx, y, record); err != nil {
		return nil, err
	}
	out := &CopiedRun{Run: as, Of: run, From: from, To: to}
	if out.Checkpoints, out.Bytes, err = put(y, as); err != nil {
		return nil, err
	}
	if err := helper.Mark(ctx, &dst, y); err != nil {
		return nil, err
	}
	return out, tellQuiet(ctx, y, record) // no rank of the copy runs
}

// copiedAs returns the identity of the copy of a run at a place. It is chosen
// once, so that a copy that was interrupted can be repeated.
func copiedAs(ctx context.Context, t tier.Tier, run string) (string, error) {
	name := "copies/" + run
	as := store.NewID()
	err := t.Create(ctx, name, []byte(as))
	if errors.Is(err, tier.ErrExists) {
		var text []byte
		text, err = tier.ReadAll(ctx, t, name, 64)
		as = string(text)
	}
	return as, err
}
