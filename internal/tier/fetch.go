package tier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// FetchOptions say where Fetch puts files.
type FetchOptions struct {
	FS       vfs.FS // nil: the real one
	Dir      string // the checkpoint directory, which exists
	Ranks    []int  // whose files are needed; none: all ranks
	Parallel int    // ranks at a time; 0: 4
}

// Fetch puts files of a checkpoint into a checkpoint directory, as package
// store publishes them: a rank's file gets its name when it and its bases are
// durable and have their digests. Files that the directory has already, in this
// or another checkpoint, are not fetched: bases are hard links to them. Nobody
// else may write files of these ranks meanwhile. If the directory has the
// identity of another run, Fetch refuses; if it has none, Fetch gives it the
// manifest's.
func Fetch(ctx context.Context, t Tier, m *Manifest, o FetchOptions) error {
	if err := m.check(); err != nil {
		return err
	}
	if m.Abandoned {
		return ErrAbandoned
	}
	if o.FS == nil {
		o.FS = vfs.OS()
	}
	f := &fetch{t, m, o}
	fail := func(err error) error {
		return fmt.Errorf("fetching %s (run %s) from %s: %w", Title(m.Index), m.Run, t, err)
	}
	for _, r := range o.Ranks {
		if r < 0 || r >= m.Ranks {
			return fail(fmt.Errorf("there is no rank %d; there are %d ranks", r, m.Ranks))
		}
	}
	if err := f.identify(); err != nil {
		return fail(err)
	}
	var jobs []func(context.Context) error
	for i := range m.Parts {
		if len(o.Ranks) > 0 && !slices.ContainsFunc(m.Parts[i].Ranks, func(r int) bool { return slices.Contains(o.Ranks, r) }) {
			continue
		}
		p, err := m.Part(ctx, t, i)
		if err != nil {
			return fail(err)
		}
		for _, r := range p.Ranks {
			if len(o.Ranks) == 0 || slices.Contains(o.Ranks, r.Rank) {
				jobs = append(jobs, func(ctx context.Context) error { return f.rank(ctx, &r) })
			}
		}
	}
	if err := Parallel(ctx, cmp.Or(o.Parallel, 4), jobs); err != nil {
		return fail(err)
	}
	return nil
}

type fetch struct {
	t Tier
	m *Manifest
	o FetchOptions
}

// identify checks that the directory belongs to the manifest's run. A directory
// that belongs to none gets the run's identity.
func (f *fetch) identify() error {
	d := store.ForHelper(f.o.FS, f.o.Dir, 0, nil)
	id, err := d.ID()
	switch {
	case err != nil:
		return err
	case id == "":
		return d.SetID(f.m.Run)
	case id != f.m.Run:
		return fmt.Errorf("%s belongs to run %s", f.o.Dir, id)
	}
	return nil
}

// rank fetches the files of one rank.
func (f *fetch) rank(ctx context.Context, r *RankFiles) (err error) {
	d := store.ForHelper(f.o.FS, f.o.Dir, r.Rank, nil)
	at := filepath.Dir(d.File(f.m.Index))
	there := f.has(ctx, d.File(f.m.Index), r.Files[0].Object)
	for i := range r.Files[1:] {
		b := &r.Files[1+i]
		there = there && f.has(ctx, filepath.Join(at, d.BaseName(b.Index)), b.Object)
	}
	if there {
		return nil
	}
	p, err := d.Begin(f.m.Index)
	if err != nil {
		return err
	}
	for i := range r.Files[1:] {
		b := &r.Files[1+i]
		if err := f.base(ctx, d, p.Receive(b.Index), b); err != nil {
			p.Abort()
			return err
		}
	}
	if err := f.content(ctx, d, p, &r.Files[0]); err != nil {
		p.Abort()
		return err
	}
	return p.Commit()
}

// base puts a base at path.
func (f *fetch) base(ctx context.Context, d *store.Dir, path string, b *File) error {
	if f.has(ctx, path, b.Object) {
		return nil
	}
	if err := f.o.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, from := range f.candidates(d, b.Index) {
		if from != path && f.has(ctx, from, b.Object) {
			if err := f.o.FS.Link(from, path); !errors.Is(err, vfs.ErrNoLink) {
				return err
			}
		}
	}
	file, err := f.o.FS.Create(path)
	if err != nil {
		return err
	}
	err = f.content(ctx, d, file, b)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// content writes the content of a rank's file, from another file that has it or
// from the tier.
func (f *fetch) content(ctx context.Context, d *store.Dir, file vfs.File, want *File) error {
	if err := file.Allocate(want.Size); err != nil {
		return err
	}
	for _, from := range f.candidates(d, want.Index) {
		if !f.has(ctx, from, want.Object) {
			continue
		}
		in, err := f.o.FS.Open(from)
		if err != nil {
			return err
		}
		defer in.Close()
		return checked(ctx, io.NewSectionReader(in, 0, want.Size), want.Object, io.NewOffsetWriter(file, 0))
	}
	return Download(ctx, f.t, want.Object, io.NewOffsetWriter(file, 0))
}

// candidates returns paths where the rank's file of a checkpoint may be.
func (f *fetch) candidates(d *store.Dir, index uint64) []string {
	out := []string{d.File(index)}
	entries, err := f.o.FS.ReadDir(f.o.Dir)
	if err != nil {
		return nil
	}
	for _, e := range slices.Backward(entries) {
		if _, ok := store.ParseIndex(e.Name()); ok {
			out = append(out, filepath.Join(f.o.Dir, e.Name(), d.BaseName(index)))
		}
	}
	return out
}

// has reports whether a file has the content of an object.
func (f *fetch) has(ctx context.Context, path string, o Object) bool {
	file, err := f.o.FS.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	size, err := file.Size()
	return err == nil && size == o.Size && checked(ctx, io.NewSectionReader(file, 0, size), o, io.Discard) == nil
}

// Verify reads every object of a checkpoint, and calls found for each that is
// damaged or missing. It returns how many bytes it has read. Objects in seen,
// by Key, were read for another checkpoint, and are not read again; Verify adds
// to it.
func Verify(ctx context.Context, t Tier, m *Manifest, seen map[string]error, found func(object string, err error)) (int64, error) {
	var mu sync.Mutex
	var read int64
	var jobs []func(context.Context) error
	check := func(o Object) {
		if err, known := seen[o.Key()]; known {
			if err != nil {
				found(o.Name, err)
			}
			return
		}
		seen[o.Key()] = nil
		jobs = append(jobs, func(ctx context.Context) error {
			err := Download(ctx, t, o, io.Discard)
			mu.Lock()
			defer mu.Unlock()
			read += o.Size
			if errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotExist) {
				seen[o.Key()] = err
				found(o.Name, err)
				return nil
			}
			return err
		})
	}
	for i := range m.Parts {
		p, err := m.Part(ctx, t, i)
		if errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotExist) {
			found(m.Parts[i].Name, err)
			continue
		}
		if err != nil {
			return 0, err
		}
		p.Objects(check)
	}
	err := Parallel(ctx, 4, jobs)
	return read, err
}

// Download writes the content of an object to w. If the content does not have
// the object's size and digest, the error is ErrDamaged; w has some of it then.
func Download(ctx context.Context, t Tier, o Object, w io.Writer) error {
	r, err := t.Get(ctx, o.Name, o.At, o.Size)
	if err != nil {
		return err
	}
	err = checked(ctx, r, o, w)
	r.Close()
	if err != nil {
		return fmt.Errorf("%s: %s: %w", t, o.Name, err)
	}
	return nil
}

// checked copies an object's content and checks its digest.
func checked(ctx context.Context, r io.Reader, o Object, w io.Writer) error {
	var d Digester
	if err := Copy(ctx, io.MultiWriter(w, &d), r, o.Size); err != nil {
		return err
	}
	if got := d.Digest(); got != o.Digest {
		return fmt.Errorf("%w: its digest is %s, not %s", ErrDamaged, got, o.Digest)
	}
	return nil
}
