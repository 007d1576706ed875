package tier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/store"
)

// DefaultGrace is how old a claim must be to be given up, unless CollectOptions
// say otherwise.
const DefaultGrace = 24 * time.Hour

// CollectOptions say what a collection keeps. It also keeps pinned checkpoints,
// and the end of the run.
type CollectOptions struct {
	Keep   int      // the newest so many checkpoints
	Retain []uint64 // and these
	Grace  time.Duration
	// Parallel is how many requests are made at a time; 0: 16.
	Parallel int
}

// Collected says what a collection removed.
type Collected struct {
	Checkpoints []uint64
	Objects     int
	Bytes       int64
	Abandoned   []uint64 // uploads that were given up
}

// condemned is the content of an object under RUN/condemned, a record. Uploads
// do not refer to the named objects.
type condemned struct {
	Format int      `json:"format"`
	Names  []string `json:"names"`
}

func readCondemned(ctx context.Context, t Tier, name string) (c condemned, err error) {
	text, err := ReadAll(ctx, t, name, maxPartText)
	if err != nil {
		return c, err
	}
	if err = decode(text, &c, &c.Format); err != nil {
		err = fmt.Errorf("%s: %s: %w", t, name, err)
	}
	return c, err
}

// Listed is a manifest, or why it cannot be read. It may be a tombstone.
type Listed struct {
	*Manifest
	At  uint64 // the index that its name says
	Err error
}

// Manifests reads all manifests of a run, newest first.
func Manifests(ctx context.Context, t Tier, run string) ([]Listed, error) {
	if !isID(run) {
		return nil, fmt.Errorf("%.40q is no identity of a run", run)
	}
	indexes, err := manifestIndexes(ctx, t, run)
	if err != nil {
		return nil, err
	}
	var out []Listed
	for _, index := range indexes {
		m, err := readManifest(ctx, t, run, index)
		if errors.Is(err, ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil && (errors.Is(err, ErrTemporary) || ctx.Err() != nil) {
			return nil, err
		}
		out = append(out, Listed{m, index, err})
	}
	return out, nil
}

// manifestIndexes returns the indexes of all manifests, newest first.
func manifestIndexes(ctx context.Context, t Tier, run string) ([]uint64, error) {
	var out []uint64
	for info, err := range t.List(ctx, run+checkpointsDir) {
		if err != nil {
			return nil, err
		}
		if index, ok := parseIndex(run, info.Name); ok {
			out = append(out, index)
		}
	}
	slices.SortFunc(out, func(a, b uint64) int { return cmp.Compare(b, a) })
	return out, nil
}

// Collect removes old checkpoints of a run, and objects that no checkpoint
// needs. Uploads may be under way meanwhile, and checkpoints may be pinned; the
// package comment says why that is safe. A collection that was killed does no
// harm; the next one continues. If a manifest that must be kept cannot be read,
// nothing is removed.
func Collect(ctx context.Context, t Tier, run string, o CollectOptions) (Collected, error) {
	c := &collection{t: t, run: run, o: o, began: time.Now()}
	c.o.Grace, c.o.Parallel = cmp.Or(c.o.Grace, DefaultGrace), cmp.Or(c.o.Parallel, 16)
	err := c.collect(ctx)
	if err != nil {
		err = fmt.Errorf("removing old checkpoints from %s: %w", t, err)
	}
	return c.done, err
}

type collection struct {
	t     Tier
	run   string
	o     CollectOptions
	began time.Time
	done  Collected

	mu     sync.Mutex      // guards needed and done
	seen   map[uint64]bool // manifests that were looked at
	pinned map[uint64]bool
	drop   []uint64        // manifests to remove, newest first
	oldest uint64          // index of the oldest checkpoint that is kept
	needed map[string]bool // objects that kept checkpoints and claims refer to
	tokens map[string]bool // of uploads that are under way
	claims []Info
}

func (c *collection) collect(ctx context.Context) error {
	c.seen, c.needed, c.tokens = make(map[uint64]bool), make(map[string]bool), make(map[string]bool)
	if err := c.readNeeds(ctx, false); err != nil {
		return err
	}
	var objects []Info
	for _, dir := range []string{filesDir, partsDir} {
		for info, err := range c.t.List(ctx, c.run+dir) {
			if err != nil {
				return err
			}
			if !c.isNeeded(info.Name) {
				objects = append(objects, info)
			}
		}
	}
	lists, err := c.condemnedLists(ctx)
	if err != nil {
		return err
	}
	if len(objects)+len(c.drop)+len(c.claims)+len(lists) == 0 {
		return nil
	}
	own, now, err := c.condemn(ctx, objects)
	if err != nil {
		return err
	}
	// What was committed, claimed or pinned before the list was there is
	// spared.
	if err := c.readNeeds(ctx, true); err != nil {
		return err
	}
	if err := c.checkList(ctx, objects); err != nil {
		return err
	}
	if err := c.endClaims(ctx, now); err != nil {
		return err
	}
	if err := c.remove(ctx, objects); err != nil {
		return err
	}
	for _, info := range lists {
		if now.Sub(info.Modified) > c.o.Grace {
			if err := c.t.Remove(ctx, info.Name); err != nil {
				return err
			}
		}
	}
	if err := c.t.Sweep(ctx, c.run+"/", now.Add(-c.o.Grace)); err != nil {
		return err
	}
	return c.t.Remove(ctx, own)
}

// readNeeds notes what is needed. It reads claims before manifests: an upload
// creates its manifest before it removes its claim.
func (c *collection) readNeeds(ctx context.Context, again bool) error {
	if err := c.readClaims(ctx); err != nil {
		return err
	}
	pins, err := Pins(ctx, c.t, c.run)
	if err != nil {
		return fmt.Errorf("%w; it may pin any checkpoint, so nothing is removed: remove it first if it is damaged", err)
	}
	c.pinned = make(map[uint64]bool)
	for _, p := range pins {
		c.pinned[p.Index] = true
	}
	c.drop = slices.DeleteFunc(c.drop, func(index uint64) bool {
		if c.pinned[index] {
			delete(c.seen, index) // so that it is read again, and kept
		}
		return c.pinned[index]
	})
	return c.readManifests(ctx, again)
}

// readManifests decides which checkpoints are kept, and notes what they need.
// When it is called again, it keeps all that have appeared since.
func (c *collection) readManifests(ctx context.Context, again bool) error {
	indexes, err := manifestIndexes(ctx, c.t, c.run)
	if err != nil {
		return err
	}
	kept := 0
	for _, index := range indexes {
		if c.seen[index] {
			continue
		}
		m, err := readManifest(ctx, c.t, c.run, index)
		if errors.Is(err, ErrNotExist) && !again {
			continue // removed meanwhile, or so it seems
		}
		c.seen[index] = true
		if err != nil {
			return fmt.Errorf("%w; it may refer to any object, so nothing is removed: remove it first if it is damaged", err)
		}
		switch {
		case index == EndIndex && !m.Abandoned:
			if err := c.readParts(ctx, m); err != nil {
				return fmt.Errorf("the end of the run must be kept, but cannot be used: %w; remove %s first", err, manifestName(c.run, index))
			}
			continue
		case m.Abandoned:
			if !again && c.oldest != 0 && kept >= c.o.Keep {
				c.drop = append(c.drop, index)
			}
			continue
		case again || c.pinned[index] || kept < c.o.Keep || slices.Contains(c.o.Retain, index):
			kept++
		default:
			c.drop = append(c.drop, index)
			continue
		}
		c.oldest = index
		if err := c.readParts(ctx, m); err != nil {
			return fmt.Errorf("%s must be kept, but cannot be used: %w; remove %s first", Title(index), err, manifestName(c.run, index))
		}
	}
	return nil
}

// readParts notes what a checkpoint needs.
func (c *collection) readParts(ctx context.Context, m *Manifest) error {
	var jobs []func(context.Context) error
	for i := range m.Parts {
		c.needed[m.Parts[i].Name] = true
		jobs = append(jobs, func(ctx context.Context) error {
			p, err := m.Part(ctx, c.t, i)
			if err != nil {
				return err
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			p.Objects(func(o Object) {
				for _, name := range o.needs() {
					c.needed[name] = true
				}
			})
			return nil
		})
	}
	return Parallel(ctx, c.o.Parallel, jobs)
}

// checkList checks that the tier's list of manifests was up to date: a part
// that is to be removed has no manifest, or one that this collection has seen.
func (c *collection) checkList(ctx context.Context, objects []Info) error {
	for _, info := range objects {
		rest, ok := strings.CutPrefix(info.Name, c.run+partsDir)
		number, _, _ := strings.Cut(rest, "-")
		index, valid := parseIndex(c.run, c.run+checkpointsDir+number+".json")
		if !ok || !valid || c.isNeeded(info.Name) || c.seen[index] {
			continue
		}
		if _, err := c.t.Stat(ctx, manifestName(c.run, index)); !errors.Is(err, ErrNotExist) {
			return errors.Join(fmt.Errorf("%w: %s exists, and is not listed; nothing is removed", ErrTemporary, Title(index)), err)
		}
	}
	return nil
}

// readClaims notes what the uploads under way need.
func (c *collection) readClaims(ctx context.Context) error {
	c.claims = nil
	for info, err := range c.t.List(ctx, c.run+claimsDir) {
		if err != nil {
			return err
		}
		claim, err := readClaim(ctx, c.t, info.Name)
		if errors.Is(err, ErrNotExist) {
			continue // committed meanwhile
		}
		if err != nil {
			return err
		}
		c.claims = append(c.claims, info)
		c.tokens[claim.Token] = true
		for _, name := range claim.Reuse {
			c.needed[name] = true
		}
	}
	return nil
}

func (c *collection) isNeeded(name string) bool {
	if c.needed[name] {
		return true
	}
	for field := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '-' || r == '.' || r == '/' }) {
		if c.tokens[field] {
			return true
		}
	}
	return false
}

func (c *collection) condemnedLists(ctx context.Context) (lists []Info, err error) {
	for info, err := range c.t.List(ctx, c.run+condemnedDir) {
		if err != nil {
			return nil, err
		}
		lists = append(lists, info)
	}
	return lists, nil
}

// condemn creates the list of what will be removed. It returns its name and the
// time on the tier.
func (c *collection) condemn(ctx context.Context, objects []Info) (name string, now time.Time, err error) {
	list := condemned{Format: manifestFormat, Names: []string{}}
	for _, index := range c.drop {
		list.Names = append(list.Names, manifestName(c.run, index))
	}
	for _, info := range objects {
		list.Names = append(list.Names, info.Name)
	}
	text, err := store.EncodeRecord(&list)
	if err != nil {
		return "", now, err
	}
	name = c.run + condemnedDir + store.NewID() + ".json"
	if err := c.t.Create(ctx, name, text); err != nil {
		return "", now, err
	}
	info, err := c.t.Stat(ctx, name)
	return name, info.Modified, err
}

// endClaims removes claims of checkpoints that are committed, and gives up
// uploads whose claims are too old. Their objects are removed next time.
func (c *collection) endClaims(ctx context.Context, now time.Time) error {
	for _, info := range c.claims {
		claim, err := readClaim(ctx, c.t, info.Name)
		if errors.Is(err, ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if now.Sub(info.Modified) <= c.o.Grace {
			if m, err := readManifest(ctx, c.t, c.run, claim.Index); err != nil || m.Attempt != claim.Attempt || m.Abandoned {
				continue
			}
		} else if err := c.abandon(ctx, claim.Index); err != nil {
			return err
		}
		if err := c.t.Remove(ctx, info.Name); err != nil {
			return err
		}
	}
	return nil
}

// abandon creates a tombstone, unless there is a manifest.
func (c *collection) abandon(ctx context.Context, index uint64) error {
	m := &Manifest{Format: manifestFormat, Run: c.run, Index: index, Token: store.NewID(), Abandoned: true}
	text, err := store.EncodeRecord(m)
	if err != nil {
		return err
	}
	err = c.t.Create(ctx, manifestName(c.run, index), text)
	switch {
	case err == nil:
		c.done.Abandoned = append(c.done.Abandoned, index)
		return confirm(ctx, c.t, manifestName(c.run, index), int64(len(text)))
	case errors.Is(err, ErrExists):
		return nil
	}
	return err
}

// remove removes manifests, the oldest first, and then objects, so that no
// manifest refers to what is not there.
func (c *collection) remove(ctx context.Context, objects []Info) error {
	for _, index := range slices.Backward(c.drop) {
		if err := c.tooLate(); err != nil {
			return err
		}
		if err := c.t.Remove(ctx, manifestName(c.run, index)); err != nil {
			return err
		}
		c.done.Checkpoints = append(c.done.Checkpoints, index)
	}
	for _, index := range c.drop {
		if _, err := c.t.Stat(ctx, manifestName(c.run, index)); !errors.Is(err, ErrNotExist) {
			return errors.Join(fmt.Errorf("the manifest of %s is still there after it was removed", Title(index)), err)
		}
	}
	var jobs []func(context.Context) error
	for _, info := range objects {
		if c.isNeeded(info.Name) {
			continue
		}
		jobs = append(jobs, func(ctx context.Context) error {
			if err := c.tooLate(); err != nil {
				return err
			}
			if err := c.t.Remove(ctx, info.Name); err != nil {
				return err
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.done.Objects++
			c.done.Bytes += info.Size
			return nil
		})
	}
	return Parallel(ctx, c.o.Parallel, jobs)
}

// tooLate returns an error if half of the grace period is over. After all of
// it, another collection removes the condemned list of this one, and uploads
// may refer to objects that this one is removing.
func (c *collection) tooLate() error {
	if time.Since(c.began) > c.o.Grace/2 {
		return fmt.Errorf("%w: the collection took too long; the next one continues", ErrTemporary)
	}
	return nil
}

// RemoveRun removes everything of a run except its pins and what pinned
// checkpoints need. It returns the pins. No upload may be under way.
func RemoveRun(ctx context.Context, t Tier, run string) ([]Pin, error) {
	pins, err := removeRun(ctx, t, run)
	if err != nil {
		err = fmt.Errorf("removing run %s from %s: %w", run, t, err)
	}
	return pins, err
}

func removeRun(ctx context.Context, t Tier, run string) ([]Pin, error) {
	if !isID(run) {
		return nil, fmt.Errorf("%.40q is no identity of a run", run)
	}
	if err := removeClaims(ctx, t, run); err != nil {
		return nil, err
	}
	if err := RemoveEnd(ctx, t, run); err != nil {
		return nil, err
	}
	_, cerr := Collect(ctx, t, run, CollectOptions{}) // what cannot be read is removed below, if nothing is pinned
	pins, err := Pins(ctx, t, run)
	if err != nil || len(pins) > 0 {
		return pins, errors.Join(err, cerr)
	}
	for _, dir := range []string{checkpointsDir, "/"} {
		for info, err := range t.List(ctx, run+dir) {
			if err == nil {
				err = t.Remove(ctx, info.Name)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if err := t.Sweep(ctx, run+"/", time.Now()); err != nil {
		return nil, err
	}
	return nil, t.Remove(ctx, runsDir+run)
}
