//go:build linux

package supervise

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/policy"
	"github.com/cairnrun/cairn/internal/vfs"
)

// Place is a run at a place on a tier outside of the hosts, for commands that
// look at it: s3://BUCKET/PREFIX, or a directory of one run on a shared tier.
type Place struct {
	Name   string // without the checkpoint
	Run    string
	Chosen bool // it is one checkpoint, which was named
	Ranks  int
	// End, if the run has finished, says how. Only pinned checkpoints are left.
	End *tier.End

	tier tier.Tier
	end  *tier.Manifest   // of End
	list []*tier.Manifest // those that count, or the chosen one, newest first
}

// IsPlace reports whether a name is that of a place, perhaps with the
// checkpoint.
func IsPlace(name string) bool {
	if strings.HasPrefix(name, "s3://") {
		return true
	}
	dir, _, _ := splitCheckpoint(name)
	runs, err := os.ReadDir(filepath.Join(dir, "runs"))
	return err == nil && slices.ContainsFunc(runs, func(e fs.DirEntry) bool {
		id, err := hex.DecodeString(e.Name())
		return err == nil && len(id) == 16
	})
}

// OpenPlace looks at a place. key is the file with the key, if it is encrypted.
// With PLACE@INDEX or PLACE@NAME, the result has only that checkpoint.
func OpenPlace(ctx context.Context, place, key string) (*Place, error) {
	p, _, err := openPlace(ctx, place, key)
	return p, err
}

// openPlace looks at a place, and returns the run there that counts, too.
func openPlace(ctx context.Context, place, key string) (*Place, *foundRun, error) {
	s := &Supervisor{o: Options{From: place}}
	src, name, index, pin, err := placeOf(place)
	if err != nil {
		return nil, nil, err
	}
	s.from.index, s.from.pin = index, pin
	src.Key, s.rec = key, &rundir.Record{Name: name}
	f, err := s.findOn(ctx, &src)
	switch {
	case err != nil:
		return nil, nil, err
	case f == nil:
		return nil, nil, fmt.Errorf("there is no run at %s", place)
	case f.manifest == nil && f.end == nil && index == 0 && pin == "":
		return nil, nil, fmt.Errorf("run %s has no checkpoint at %s, and has not finished", f.record.Run, place)
	case f.manifest == nil && f.end == nil:
		why := ""
		if x, err := helper.LookAtTier(ctx, &src, name, s.o.access()); err == nil && hasEnd(ctx, x, f.record) {
			why = "; the run there has finished"
		}
		return nil, nil, fmt.Errorf("there is no such checkpoint at %s%s", place, why)
	}
	p := &Place{Run: f.record.Run, Chosen: index > 0 || pin != "", Ranks: f.record.Ranks, end: f.end, list: []*tier.Manifest{f.manifest}}
	if f.end != nil {
		p.End = f.end.End
	}
	p.Name, _, _ = splitCheckpoint(place)
	if p.tier, err = helper.LookAtTier(ctx, &src, name, s.o.access()); err != nil {
		return nil, nil, err
	}
	if !p.Chosen {
		all, err := tier.Checkpoints(ctx, p.tier, p.Run)
		if err != nil {
			return nil, nil, err
		}
		p.list = slices.DeleteFunc(all, func(m *tier.Manifest) bool { return !f.record.Counts(m.Index, m.Attempt) })
	}
	return p, f, nil
}

// Empty reports whether no checkpoint is there.
func (p *Place) Empty() bool { return len(p.list) == 0 }

// OnTiers looks for a checkpoint of the run on its tiers outside of the hosts;
// index 0: the newest. It returns nil if none has it. The errors are those of
// tiers that fail.
func (v *HostView) OnTiers(ctx context.Context, index uint64) (best *Place, errs []error) {
	errs = v.eachTier(ctx, func(t *policy.Tier, x tier.Tier) error {
		line, err := readAttempt(ctx, x, v.rec.ID)
		if err != nil {
			return err
		}
		list, err := tier.Checkpoints(ctx, x, v.rec.ID)
		for _, m := range list {
			if line != nil && line.Counts(m.Index, m.Attempt) && (index == 0 || m.Index == index) && (best == nil || m.Index > best.list[0].Index) {
				best = &Place{Name: t.RunDir(v.rec.Name), Run: v.rec.ID, tier: x, list: []*tier.Manifest{m}}
			}
		}
		return err
	})
	return best, errs
}

// Checkpoints returns the checkpoints at the place, newest first.
func (p *Place) Checkpoints(ctx context.Context) (out []PlacedCheckpoint, err error) {
	pins, err := tier.Pins(ctx, p.tier, p.Run)
	if err != nil {
		return nil, err
	}
	for _, m := range p.list {
		c := PlacedCheckpoint{Index: m.Index, Ranks: m.Ranks}
		c.Time, _ = time.Parse(time.RFC3339, m.Time)
		seen := make(map[string]bool)
		for i := range m.Parts {
			part, err := m.Part(ctx, p.tier, i)
			if err != nil {
				return nil, fmt.Errorf("checkpoint %d: %w", m.Index, err)
			}
			part.Objects(func(o tier.Object) {
				if !seen[o.Key()] {
					seen[o.Key()] = true
					c.Bytes += o.Size
				}
			})
		}
		for _, pin := range pins {
			if pin.Index == m.Index && pin.Attempt == m.Attempt {
				c.Pins = append(c.Pins, pin.Name)
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// Verify reads every object of the checkpoints, and compares it with its
// digest.
func (p *Place) Verify(ctx context.Context) (*VerifiedTier, error) {
	out := &VerifiedTier{Tier: p.Name, Damage: []TierDamage{}}
	seen := make(map[string]error)
	all := p.list
	if p.end != nil {
		all = append(slices.Clone(all), p.end)
	}
	for _, m := range all {
		if err := out.verify(ctx, p.tier, m, seen); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// verify reads the objects of a manifest that are not in seen. If the run
// removes the checkpoint meanwhile, nothing of it is damaged.
func (v *VerifiedTier) verify(ctx context.Context, t tier.Tier, m *tier.Manifest, seen map[string]error) error {
	var damage []TierDamage
	n, err := tier.Verify(ctx, t, m, seen, func(object string, err error) {
		damage = append(damage, TierDamage{tier.Title(m.Index), object, tier.Readable(err.Error())})
	})
	if len(damage) > 0 {
		gone, gerr := tier.Gone(ctx, t, m)
		if gone {
			return err
		}
		err = errors.Join(err, gerr)
	}
	if err != nil {
		return err
	}
	v.Damage = append(v.Damage, damage...)
	v.Bytes += n
	if m.End != nil {
		v.End = true
	} else {
		v.Checked++
	}
	return nil
}

// FS returns a file system that shows the checkpoints in directory dir, which
// it returns, as package store would keep them there. Other paths are those of
// base. Nothing in dir can be changed.
func (p *Place) FS(ctx context.Context, base vfs.FS) (f vfs.FS, dir string, err error) {
	dir = filepath.Clean(p.Name)
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, "", err
	}
	out := &placeFS{FS: base, ctx: ctx, tier: p.tier, root: root, files: make(map[string]map[string]tier.Object)}
	for _, m := range p.list {
		files := make(map[string]tier.Object)
		out.files[filepath.Base(filepath.Dir(store.Open(base, dir, 0).File(m.Index)))] = files
		for i := range m.Parts {
			part, err := m.Part(ctx, p.tier, i)
			if err != nil {
				return nil, "", fmt.Errorf("%s at %s: %w", tier.Title(m.Index), p.Name, err)
			}
			for _, r := range part.Ranks {
				d := store.Open(base, dir, r.Rank)
				files[filepath.Base(d.File(m.Index))] = r.Files[0].Object
				for _, b := range r.Files[1:] {
					files[d.BaseName(b.Index)] = b.Object
				}
			}
		}
	}
	return out, dir, nil
}

// placeFS shows the checkpoints at a place.
type placeFS struct {
	vfs.FS
	ctx   context.Context
	tier  tier.Tier
	root  string
	files map[string]map[string]tier.Object // by directory and name
}

// find returns what a path is. ok is false if this file system does not show
// it: base may show it, as part of another checkpoint.
func (f *placeFS) find(name string) (o tier.Object, isDir, ok bool) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return o, false, false
	}
	rel, err := filepath.Rel(f.root, abs)
	if err != nil {
		return o, false, false
	}
	if rel == "." || f.files[rel] != nil {
		return o, true, true
	}
	dir, base := filepath.Split(rel)
	o, ok = f.files[filepath.Clean(dir)][base]
	return o, false, ok
}

func (f *placeFS) info(name string, o tier.Object, isDir bool) viewInfo {
	return viewInfo{control.FileInfo{Path: filepath.Base(name), Size: o.Size, Mode: 0o400}, isDir, o.Key()}
}

func (f *placeFS) Stat(name string) (fs.FileInfo, error) {
	o, isDir, ok := f.find(name)
	if !ok {
		return f.FS.Stat(name)
	}
	return f.info(name, o, isDir), nil
}

func (f *placeFS) ReadDir(name string) (out []fs.DirEntry, err error) {
	_, isDir, ok := f.find(name)
	switch {
	case !ok:
		return f.FS.ReadDir(name)
	case !isDir:
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errors.New("it is not a directory")}
	}
	if files := f.files[filepath.Base(name)]; files != nil {
		for base, o := range files {
			out = append(out, fs.FileInfoToDirEntry(f.info(base, o, false)))
		}
	} else {
		for base := range f.files {
			out = append(out, fs.FileInfoToDirEntry(f.info(base, tier.Object{}, true)))
		}
	}
	slices.SortFunc(out, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return out, nil
}

func (f *placeFS) Open(name string) (vfs.File, error) {
	o, isDir, ok := f.find(name)
	switch {
	case !ok:
		return f.FS.Open(name)
	case isDir:
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("it is a directory")}
	}
	return &viewFile{info: control.FileInfo{Path: name, Size: o.Size}, blocks: make(map[int64][]byte), fetch: func(at int64) ([]byte, error) {
		r, err := f.tier.Get(f.ctx, o.Name, o.At+at, min(control.MaxFileData, o.Size-at))
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return io.ReadAll(r)
	}}, nil
}
