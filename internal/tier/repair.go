package tier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/store"
)

// Wanted is an object of a checkpoint that is damaged or missing on a tier.
type Wanted struct {
	Object
	Index uint64 // of the checkpoint
	Rank  int
	File  *File  // nil: it is an extra file
	Extra *Extra // nil: it is a rank's file
	Err   error  // what is wrong with it
}

// String says what the object is.
func (w *Wanted) String() string {
	if w.File != nil {
		return fmt.Sprintf("rank %d's file of checkpoint %d", w.Rank, w.File.Index)
	}
	return fmt.Sprintf("rank %d's %s", w.Rank, w.Extra.Kind)
}

// Key distinguishes the object from others of the tier.
func (o *Object) Key() string { return fmt.Sprintf("%s@%d", o.Name, o.At) }

// needs returns the names under which an object may be.
func (o *Object) needs() []string {
	if o.At > 0 {
		return []string{o.Name, repairedName(o.Name)}
	}
	return []string{o.Name}
}

// RepairOptions say how Repair gets what is missing.
type RepairOptions struct {
	// Get returns a file with the content of an object, and where it is from.
	// Repair checks the content, and closes the file.
	Get func(ctx context.Context, w *Wanted) (f *os.File, from string, err error)
	// Done gets the outcome for each object.
	Done func(w *Wanted, from string, err error)
	// Seen has the objects that were read for other checkpoints, by Key, and
	// what is wrong with them. Repair adds to it.
	Seen map[string]error
	// Parts says which parts are looked at, and Due which of their objects are
	// read; nil: all.
	Parts func(*PartRef) bool
	Due   func(context.Context, Object) bool
}

// Repair reads every object of a checkpoint, and stores those again that are
// damaged or missing. It returns an error that wraps ErrDamaged or ErrNotExist
// if a part cannot be read: then nobody knows what the checkpoint needs, and it
// has to be uploaded again. It may be repeated. Uploads and collections may be
// under way.
func Repair(ctx context.Context, t Tier, m *Manifest, o RepairOptions) error {
	var unreadable error
	for i := range m.Parts {
		if o.Parts != nil && !o.Parts(&m.Parts[i]) {
			continue
		}
		p, err := m.Part(ctx, t, i)
		if errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotExist) {
			if gone, gerr := m.gone(ctx, t); gone || gerr != nil {
				return gerr
			}
			unreadable = errors.Join(unreadable, err)
			continue
		}
		if err != nil {
			return err
		}
		for _, w := range p.wanted() {
			if o.Due != nil && !o.Due(ctx, w.Object) {
				continue
			}
			err := w.repair(ctx, t, m, &o)
			if errors.Is(err, errBundle) {
				unreadable = errors.Join(unreadable, err)
				break
			}
			if err != nil {
				return err
			}
		}
	}
	return unreadable
}

// gone reports whether a collection has removed the checkpoint meanwhile. It
// removes the manifest before the objects.
func (m *Manifest) gone(ctx context.Context, t Tier) (bool, error) {
	_, err := t.Stat(ctx, manifestName(m.Run, m.Index))
	if errors.Is(err, ErrNotExist) {
		return true, nil
	}
	return false, err
}

// wanted returns all objects of a part.
func (p *Part) wanted() (out []*Wanted) {
	for i := range p.Ranks {
		r := &p.Ranks[i]
		for k := range r.Files {
			out = append(out, &Wanted{Object: r.Files[k].Object, Index: p.Index, Rank: r.Rank, File: &r.Files[k]})
		}
	}
	for i := range p.Extra {
		e := &p.Extra[i]
		out = append(out, &Wanted{Object: e.Object, Index: p.Index, Rank: e.Rank, Extra: e})
	}
	return out
}

// repair checks an object, and stores it again if that is necessary.
func (w *Wanted) repair(ctx context.Context, t Tier, m *Manifest, o *RepairOptions) error {
	err, known := o.Seen[w.Key()]
	if known && err == nil {
		return nil
	}
	if !known && w.At > 0 {
		if err := w.ensureBundle(ctx, t); err != nil {
			if gone, gerr := m.gone(ctx, t); gone || gerr != nil {
				return gerr
			}
			return err
		}
	}
	if !known {
		err = Download(ctx, t, w.Object, io.Discard)
	}
	if o.Seen[w.Key()] = err; err == nil {
		return nil
	}
	if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNotExist) {
		return err
	}
	w.Err = err
	if gone, err := m.gone(ctx, t); gone || err != nil {
		return err
	}
	from, err := w.restore(ctx, t, o.Get)
	if err == nil {
		o.Seen[w.Key()] = nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	o.Done(w, from, err)
	return nil
}

// restore gets the content of an object, and stores it in place of what is
// there.
func (w *Wanted) restore(ctx context.Context, t Tier, get func(context.Context, *Wanted) (*os.File, string, error)) (from string, err error) {
	f, from, err := get(ctx, w)
	if err != nil {
		return "", err
	}
	defer f.Close()
	src, err := NewSource(ctx, f, w.Size)
	if err == nil && src.Digest != w.Digest {
		err = fmt.Errorf("what %s has: %w", from, ErrDamaged)
	}
	if err != nil {
		return from, err
	}
	if w.At > 0 {
		return from, w.restoreIn(ctx, t, src)
	}
	if err := t.Remove(ctx, w.Name); err != nil { // it is useless
		return from, err
	}
	return from, put(ctx, t, w.Name, src)
}

// repairPart names the claims of repairs.
const repairPart = "repair"

// ReplaceManifest lets write create the manifest of a checkpoint in place of
// one that cannot be used. In between there is none. A claim says so, and names
// what the checkpoint needs: a collection spares that, and Interrupted finds
// the checkpoint if this process is killed.
func ReplaceManifest(ctx context.Context, t Tier, run string, index uint64, attempt string, needs []string, write func() error) error {
	c := claim{Format: manifestFormat, Attempt: attempt, Index: index, Token: store.NewID()[:16], Reuse: needs}
	text, err := store.EncodeRecord(&c)
	if err != nil {
		return err
	}
	name := repairClaims(run, index) + c.Token + ".json"
	if err = t.Create(ctx, name, text); err == nil {
		err = confirm(ctx, t, name, int64(len(text)))
	}
	if err == nil {
		err = t.Remove(ctx, manifestName(run, index))
	}
	if err == nil {
		err = write()
	}
	if err == nil { // while the claim is there
		_, err = readManifest(ctx, t, run, index)
	}
	if err != nil {
		return err
	}
	return endRepair(ctx, t, run, index)
}

func repairClaims(run string, index uint64) string {
	return fmt.Sprintf("%s%s%08d-%s-", run, claimsDir, index, repairPart)
}

// endRepair removes the claims of all repairs of a checkpoint, including
// repairs that were killed.
func endRepair(ctx context.Context, t Tier, run string, index uint64) error {
	for info, err := range t.List(ctx, repairClaims(run, index)) {
		if err == nil {
			err = t.Remove(ctx, info.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Interrupted returns the checkpoints that have no manifest because a repair
// was killed. (If the repair was killed after it had written the manifest, the
// next collection removes the claim.)
func Interrupted(ctx context.Context, t Tier, run string) (out []uint64, err error) {
	for info, err := range t.List(ctx, run+claimsDir) {
		if err != nil {
			return nil, err
		}
		number, rest, _ := strings.Cut(strings.TrimPrefix(info.Name, run+claimsDir), "-")
		index, ok := parseIndex(run, run+checkpointsDir+number+".json")
		if !ok || !strings.HasPrefix(rest, repairPart+"-") || slices.Contains(out, index) {
			continue
		}
		if _, err := t.Stat(ctx, manifestName(run, index)); errors.Is(err, ErrNotExist) {
			out = append(out, index)
		} else if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// RebuildManifest writes the manifest of a checkpoint again, if it is damaged
// or missing. It makes the manifest from the parts of one attempt, which must
// have all ranks.
func RebuildManifest(ctx context.Context, t Tier, run string, index uint64, attempt string, ranks int) (*Manifest, error) {
	m := &Manifest{Format: manifestFormat, Run: run, Attempt: attempt, Index: index, Ranks: ranks, Token: store.NewID()}
	has := make(map[int]bool)
	var needs []string
	for info, err := range t.List(ctx, fmt.Sprintf("%s%s%08d-", run, partsDir, index)) {
		if err != nil {
			return nil, err
		}
		text, err := ReadAll(ctx, t, info.Name, maxPartText)
		if errors.Is(err, ErrTemporary) || ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			continue
		}
		p, err := ParsePart(text)
		if err != nil || p.Run != run || p.Index != index || p.Attempt != attempt || slices.ContainsFunc(p.list(), func(r int) bool { return has[r] }) {
			continue
		}
		for _, r := range p.list() {
			has[r] = true
		}
		needs = append(needs, info.Name)
		p.Objects(func(o Object) { needs = append(needs, o.needs()...) })
		src := BytesSource(text)
		m.Parts = append(m.Parts, PartRef{Object{Name: info.Name, Size: src.Size, Digest: src.Digest}, p.list()})
		m.Time = info.Modified.UTC().Format(time.RFC3339)
	}
	slices.SortFunc(m.Parts, func(a, b PartRef) int { return slices.Compare(a.Ranks, b.Ranks) })
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("the manifest of %s on %s cannot be made of its parts: %w", Title(index), t, err)
	}
	text, err := store.EncodeRecord(m)
	if err == nil {
		err = ReplaceManifest(ctx, t, run, index, attempt, needs, func() error { return t.Create(ctx, manifestName(run, index), text) })
	}
	return m, err
}
