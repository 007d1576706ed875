package tier

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/cairnrun/cairn/internal/store"
)

// CopyRun copies checkpoints of a run, with the objects that they need, to
// another tier. as is the identity of the run that they belong to there.
// CopyRun checks the digest of every object. The manifests come last, so that a
// copy that was interrupted does not count; it may be repeated. It returns how
// many bytes it has copied. Nothing else may write that run to the other tier.
//
// The ranks' files stay as they are, with the identity of the run that saved
// them. The manifests of the copy name it (Manifest.Origin), and whoever
// fetches such a file gives it the new identity.
func CopyRun(ctx context.Context, from, to Tier, as string, list []*Manifest) (int64, error) {
	n, err := copyAs(ctx, from, to, as, list, false)
	if err != nil {
		err = fmt.Errorf("copying from %s to %s: %w", from, to, err)
	}
	return n, err
}

// CopyCheckpoint copies a checkpoint to another tier. It replaces a copy there
// whose manifest or parts are damaged.
func CopyCheckpoint(ctx context.Context, from, to Tier, m *Manifest) error {
	_, err := copyAs(ctx, from, to, m.Run, []*Manifest{m}, true)
	if err != nil {
		err = fmt.Errorf("copying %s from %s to %s: %w", Title(m.Index), from, to, err)
	}
	return err
}

func copyAs(ctx context.Context, from, to Tier, as string, list []*Manifest, replace bool) (n int64, err error) {
	if !isID(as) {
		return 0, fmt.Errorf("%.40q is no identity of a run", as)
	}
	list = slices.SortedFunc(slices.Values(list), func(a, b *Manifest) int { return cmp.Compare(a.Index, b.Index) })
	var made []*Manifest
	c := &copying{from: from, to: to, seen: make(map[string]bool)}
	for _, m := range list {
		x, err := c.checkpoint(ctx, m, as)
		if err != nil {
			return 0, err
		}
		made = append(made, x)
	}
	write := func() error {
		if err := Parallel(ctx, 4, c.jobs); err != nil {
			return err
		}
		if err := to.Create(ctx, runsDir+as, []byte(runMark)); err != nil {
			return err
		}
		for _, m := range made {
			text, err := store.EncodeRecord(m)
			if err == nil {
				err = createRecord(ctx, to, manifestName(as, m.Index), text)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if replace {
		var needs []string
		for _, ref := range made[0].Parts {
			needs = append(needs, ref.Name)
		}
		needs = slices.AppendSeq(needs, maps.Keys(c.seen))
		err = ReplaceManifest(ctx, to, as, made[0].Index, made[0].Attempt, needs, write)
	} else {
		err = write()
	}
	return c.bytes, err
}

// copying is a copy that is being made.
type copying struct {
	from, to Tier
	seen     map[string]bool
	jobs     []func(context.Context) error

	mu    sync.Mutex
	bytes int64
}

// checkpoint adds the objects of a checkpoint to what is copied. It returns the
// manifest that the copy gets.
func (c *copying) checkpoint(ctx context.Context, m *Manifest, as string) (*Manifest, error) {
	out := *m
	out.Run, out.Parts = as, nil
	if as != m.Run {
		out.Origin = cmp.Or(m.Origin, m.Run)
	}
	// What is in a bundle becomes an object of its own.
	rename := func(o *Object) {
		o.Name = as + strings.TrimPrefix(o.Name, m.Run)
		if o.At > 0 {
			o.Name, o.At = fmt.Sprintf("%s-%d", o.Name, o.At), 0
		}
	}
	for i := range m.Parts {
		p, err := m.Part(ctx, c.from, i)
		if err != nil {
			return nil, err
		}
		p.Objects(func(o Object) {
			to := o
			rename(&to)
			c.add(o, to.Name)
		})
		p.Run = as
		for k := range p.Ranks {
			for f := range p.Ranks[k].Files {
				rename(&p.Ranks[k].Files[f].Object)
			}
		}
		for k := range p.Extra {
			rename(&p.Extra[k].Object)
		}
		text, err := store.EncodeRecord(p)
		if err != nil {
			return nil, err
		}
		ref := m.Parts[i]
		rename(&ref.Object)
		src := BytesSource(text)
		ref.Size, ref.Digest = src.Size, src.Digest
		out.Parts = append(out.Parts, ref)
		c.jobs = append(c.jobs, func(ctx context.Context) error {
			if c.has(ctx, ref.Object) {
				return nil
			}
			if err := c.to.Remove(ctx, ref.Name); err != nil { // if it is there, it is damaged
				return err
			}
			return put(ctx, c.to, ref.Name, src)
		})
	}
	return &out, nil
}

// add adds an object to what is copied, under a new name.
func (c *copying) add(o Object, name string) {
	if c.seen[name] {
		return
	}
	c.seen[name] = true
	c.jobs = append(c.jobs, func(ctx context.Context) error {
		copied, err := c.object(ctx, o, name)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bytes += copied
		return err
	})
}

// has reports whether an object is there.
func (c *copying) has(ctx context.Context, o Object) bool {
	info, err := c.to.Stat(ctx, o.Name)
	var d Digester
	return err == nil && info.Size == o.Size && Download(ctx, c.to, o, &d) == nil
}

// object copies an object, unless it is there.
func (c *copying) object(ctx context.Context, o Object, name string) (int64, error) {
	if c.has(ctx, Object{Name: name, Size: o.Size, Digest: o.Digest}) {
		return 0, nil
	}
	f, err := os.CreateTemp("", "cairn-copy-")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	os.Remove(f.Name()) // only this process needs it
	if err := Download(ctx, c.from, o, f); err != nil {
		return 0, err
	}
	if err := c.to.Remove(ctx, name); err != nil { // if it is there, it is damaged
		return 0, err
	}
	return o.Size, put(ctx, c.to, name, Source{ReaderAt: f, Size: o.Size, Digest: o.Digest})
}

// createRecord creates a record, unless it is there.
func createRecord(ctx context.Context, to Tier, name string, text []byte) error {
	err := to.Create(ctx, name, text)
	if errors.Is(err, ErrExists) {
		var there []byte
		if there, err = ReadAll(ctx, to, name, maxManifest); err == nil && !bytes.Equal(there, text) {
			err = fmt.Errorf("%s: %w: a run has continued there; copy to an empty place", name, ErrExists)
		}
	}
	return err
}
