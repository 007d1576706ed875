package tier

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
)

// CopyRun copies checkpoints of a run to another tier, with the objects that
// they need, and the named records of the run. It checks the digest of every
// object. It copies the manifests last: if it is interrupted, the checkpoints do
// not count on the other tier, and it may be repeated. It returns how many bytes
// it has copied. Nothing else may write this run to the other tier.
func CopyRun(ctx context.Context, from, to Tier, run string, list []*Manifest, records []string) (int64, error) {
	n, err := copyRun(ctx, from, to, run, list, records)
	if err != nil {
		err = fmt.Errorf("copying from %s to %s: %w", from, to, err)
	}
	return n, err
}

func copyRun(ctx context.Context, from, to Tier, run string, list []*Manifest, records []string) (n int64, err error) {
	if n, err = copyObjects(ctx, from, to, list); err != nil {
		return n, err
	}
	records = append(slices.Clone(records), runsDir+run)
	list = slices.SortedFunc(slices.Values(list), func(a, b *Manifest) int { return cmp.Compare(a.Index, b.Index) })
	for _, m := range list {
		records = append(records, manifestName(run, m.Index))
	}
	for _, name := range records {
		if err := copyRecord(ctx, from, to, name); err != nil {
			return n, err
		}
	}
	return n, nil
}

// CopyCheckpoint copies a checkpoint to another tier, in place of one whose
// manifest or parts are damaged there, if there is one.
func CopyCheckpoint(ctx context.Context, from, to Tier, m *Manifest) error {
	_, err := copyObjects(ctx, from, to, []*Manifest{m})
	if err == nil {
		err = RemoveManifest(ctx, to, m.Run, m.Index)
	}
	for _, name := range []string{runsDir + m.Run, manifestName(m.Run, m.Index)} {
		if err == nil {
			err = copyRecord(ctx, from, to, name)
		}
	}
	if err != nil {
		err = fmt.Errorf("copying checkpoint %d from %s to %s: %w", m.Index, from, to, err)
	}
	return err
}

// copyObjects copies the objects of checkpoints, and the parts.
func copyObjects(ctx context.Context, from, to Tier, list []*Manifest) (n int64, err error) {
	var mu sync.Mutex
	var jobs []func(context.Context) error
	seen := make(map[string]bool)
	add := func(o Object) {
		if seen[o.Name] {
			return
		}
		seen[o.Name] = true
		jobs = append(jobs, func(ctx context.Context) error {
			copied, err := copyObject(ctx, from, to, o)
			mu.Lock()
			defer mu.Unlock()
			n += copied
			return err
		})
	}
	for _, m := range list {
		for i := range m.Parts {
			p, err := m.Part(ctx, from, i)
			if err != nil {
				return 0, err
			}
			p.Objects(add)
			add(m.Parts[i].Object)
		}
	}
	err = Parallel(ctx, 4, jobs)
	return n, err
}

// copyObject copies an object, unless it is there.
func copyObject(ctx context.Context, from, to Tier, o Object) (int64, error) {
	if info, err := to.Stat(ctx, o.Name); err == nil && info.Size == o.Size {
		var d Digester
		if Download(ctx, to, o, &d) == nil {
			return 0, nil
		}
	}
	f, err := os.CreateTemp("", "cairn-copy-")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	os.Remove(f.Name()) // only this process needs it
	if err := Download(ctx, from, o, f); err != nil {
		return 0, err
	}
	if err := to.Remove(ctx, o.Name); err != nil { // it is damaged, if there is one
		return 0, err
	}
	return o.Size, to.Put(ctx, o.Name, Source{ReaderAt: f, Size: o.Size, Digest: o.Digest})
}

// copyRecord creates a record, unless it is there.
func copyRecord(ctx context.Context, from, to Tier, name string) error {
	text, err := ReadAll(ctx, from, name, maxManifest)
	if err != nil {
		return err
	}
	err = to.Create(ctx, name, text)
	if errors.Is(err, ErrExists) {
		var there []byte
		if there, err = ReadAll(ctx, to, name, maxManifest); err == nil && !bytes.Equal(there, text) {
			err = fmt.Errorf("%s: %w: a run has continued there; copy to an empty place", name, ErrExists)
		}
	}
	return err
}
