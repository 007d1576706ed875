//go:build linux

package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/copies"
	"github.com/cairnrun/cairn/internal/tier/erasure"
	"github.com/cairnrun/cairn/internal/tier/kept"
	"github.com/cairnrun/cairn/internal/tier/policy"
	"github.com/cairnrun/cairn/internal/tier/recovery"
	"github.com/cairnrun/cairn/internal/vfs"
)

// outerTier is a tier outside of the hosts that is being repaired.
type outerTier struct {
	*policy.Tier
	name   string
	x      tier.Tier
	stored *tierStore // what can be used of it
	list   []tier.Listed
}

// openOuter opens the tiers outside of the hosts, and reads what they have. One
// that cannot be read is recorded as lost. It refuses if another supervisor has
// started the run since.
func (r *repairer) openOuter(ctx context.Context) error {
	for _, p := range r.pol.Outer() {
		t := &outerTier{Tier: p, name: p.Name()}
		t.stored = &tierStore{name: t.name, kind: p.Kind}
		err := t.open(ctx, r)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errSuperseded) {
			return fmt.Errorf("%w; this run directory is not the run's any more, and nothing is repaired", err)
		}
		if err != nil {
			r.did(0, t.name, "all that it has", "", err)
			continue
		}
		r.outer = append(r.outer, t)
	}
	return nil
}

func (t *outerTier) open(ctx context.Context, r *repairer) (err error) {
	if t.x, err = t.connect(ctx, r); err != nil {
		return err
	}
	if err := t.repairAttempt(ctx, r); err != nil {
		return err
	}
	if t.list, err = tier.Manifests(ctx, t.x, r.rec.ID); err != nil {
		return err
	}
	t.list = slices.DeleteFunc(t.list, func(m tier.Listed) bool { return m.At == tier.EndIndex })
	interrupted, err := tier.Interrupted(ctx, t.x, r.rec.ID)
	if err != nil {
		return err
	}
	for _, index := range interrupted {
		t.list = append(t.list, tier.Listed{At: index, Err: fmt.Errorf("its manifest: %w: a repair was killed", tier.ErrNotExist)})
	}
	p := r.v.inventory()
	for i := range t.list {
		m := &t.list[i]
		attempt := p.counting(m.At)
		if !errors.Is(m.Err, tier.ErrDamaged) && !errors.Is(m.Err, tier.ErrNotExist) || attempt == "" {
			continue
		}
		made, err := tier.RebuildManifest(ctx, t.x, r.rec.ID, m.At, attempt, r.rec.Ranks)
		if err == nil {
			m.Manifest, m.Err = made, nil
			r.did(m.At, t.name, "its manifest", "its parts", nil)
		}
	}
	return t.read(ctx, r)
}

// connect opens the tier, or begins it anew.
func (t *outerTier) connect(ctx context.Context, r *repairer) (tier.Tier, error) {
	if slices.Contains(r.rec.UsedTiers, t.name) && !slices.Contains(r.replace, string(t.Kind)) {
		return helper.OpenMarked(ctx, t.Tier, r.rec.Name, vfs.AccessFromEnv())
	}
	x, err := helper.OpenTier(ctx, t.Tier, r.rec.Name, vfs.AccessFromEnv())
	if err == nil {
		err = helper.Mark(ctx, t.Tier, x)
	}
	return x, err
}

// read reads the checkpoints that can be used, as far as their parts show.
func (t *outerTier) read(ctx context.Context, r *repairer) error {
	t.stored.checkpoints = nil
	_, err := readStore(ctx, t.x, r.rec.ID, t.stored)
	if errors.Is(err, tier.ErrDamaged) {
		return nil // its manifests are
	}
	return err
}

// repairAttempt looks for the record of the newest start, and creates it if it
// is lost. The run directory has it, too.
func (t *outerTier) repairAttempt(ctx context.Context, r *repairer) error {
	was, err := readAttempt(ctx, t.x, r.rec.ID)
	mine := new(control.AttemptRecord)
	*mine = *r.rec.Started
	mine.End = nil // a manifest says so
	switch {
	case err == nil && was != nil && was.Number > mine.Number:
		_, err := supersededBy(ctx, t.x, mine)
		return err
	case err == nil && was != nil && was.Number == mine.Number:
		return nil
	case errors.Is(err, tier.ErrDamaged):
		numbers, lerr := attemptNumbers(ctx, t.x, r.rec.ID)
		if lerr != nil || numbers[0] > mine.Number {
			return errors.Join(err, lerr)
		}
		for _, n := range numbers {
			if err := t.x.Remove(ctx, attemptName(mine.Run, n)); err != nil {
				return err
			}
		}
	case err != nil:
		return err
	case was == nil && r.out.Running: // the supervisor creates it
		return nil
	}
	lost := was == nil || err != nil
	if _, err = createAttempt(ctx, t.x, mine); err == nil && r.rec.Quiet {
		err = tellQuiet(ctx, t.x, mine)
	}
	if lost && (err != nil || t.holds(ctx, r)) {
		r.did(0, t.name, fmt.Sprintf("the record of start %d", mine.Number), "the run directory", err)
	}
	return err
}

// holds reports whether the tier has checkpoints of the run.
func (t *outerTier) holds(ctx context.Context, r *repairer) bool {
	list, err := tier.Manifests(ctx, t.x, r.rec.ID)
	return err != nil || len(list) > 0
}

// repairOuter repairs the tiers outside of the hosts.
func (r *repairer) repairOuter(ctx context.Context) {
	for _, t := range r.outer {
		if err := r.repairStore(ctx, t); err != nil && ctx.Err() == nil {
			r.did(0, t.name, "all that it has", "", err)
		}
	}
}

// repairStore repairs a tier outside of the hosts. If the tier has no
// checkpoint, it gets the newest that other tiers or hosts can give it.
func (r *repairer) repairStore(ctx context.Context, t *outerTier) error {
	p := r.inventory()
	seen := make(map[string]error)
	some := false
	for _, m := range t.list {
		c := recovery.Checkpoint{Index: m.At, Attempt: p.counting(m.At)}
		if m.Err == nil && (m.Abandoned || m.Attempt != c.Attempt) || c.Attempt == "" {
			continue
		}
		some = true
		err := m.Err
		if err == nil {
			err = tier.Repair(ctx, t.x, m.Manifest, tier.RepairOptions{Seen: seen,
				Get: func(ctx context.Context, w *tier.Wanted) (*os.File, string, error) { return r.content(ctx, p, t, w) },
				Done: func(w *tier.Wanted, from string, err error) {
					if err != nil {
						err = errors.Join(w.Err, err)
					}
					r.did(m.At, t.name, fmt.Sprintf("%s (%s)", w, w.Name), from, err)
				}})
		}
		switch {
		case err == nil:
		case errors.Is(err, tier.ErrDamaged) || errors.Is(err, tier.ErrNotExist):
			from, uerr := r.publish(ctx, t, c)
			if uerr != nil {
				uerr = errors.Join(err, uerr)
			}
			r.did(m.At, t.name, "its list of objects", from, uerr)
		default:
			return err
		}
	}
	list := committedOf(p)
	if some || len(list) == 0 {
		return nil
	}
	var errs []error
	for _, c := range list {
		from, err := r.publish(ctx, t, c)
		if err == nil {
			r.did(c.Index, t.name, "all of it", from, nil)
			return nil
		}
		errs = append(errs, fmt.Errorf("checkpoint %d: %w", c.Index, err))
	}
	return errors.Join(errs...)
}

// publish puts a checkpoint on a tier, in place of a damaged one. It returns
// where it is from.
func (r *repairer) publish(ctx context.Context, t *outerTier, c recovery.Checkpoint) (from string, err error) {
	var errs []error
	for _, other := range r.outer {
		for _, x := range other.stored.checkpoints {
			if other == t || x.Index != c.Index || x.Attempt != c.Attempt {
				continue
			}
			if err := tier.CopyCheckpoint(ctx, other.x, t.x, x.Manifest); err != nil {
				errs = append(errs, err)
				continue
			}
			return other.name, t.read(ctx, r)
		}
	}
	if r.out.Running {
		return "", errors.Join(append(errs, errors.New("hosts may have it: stop the run ('cairn stop'), and repeat"))...)
	}
	for _, attempt := range []string{c.Attempt, ""} {
		parts, err := r.uploadFrom(ctx, t, c, attempt)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := tier.ReplaceManifest(ctx, t.x, r.rec.ID, c.Index, c.Attempt, nil, func() error {
			_, err := tier.Commit(ctx, t.x, parts)
			return err
		}); err != nil {
			return "", err
		}
		return "hosts", t.read(ctx, r)
	}
	return "", errors.Join(errs...)
}

// uploadFrom lets hosts upload a checkpoint: from what they keep, or, if
// attempt is empty, from the homes of its ranks.
func (r *repairer) uploadFrom(ctx context.Context, t *outerTier, c recovery.Checkpoint, attempt string) (out []tier.Uploaded, err error) {
	p := r.inventory()
	ranks := make(map[*ViewedHost][]int)
	for rank, home := range p.record.Homes {
		h := r.v.hostOf(home.Dir)
		if attempt != "" {
			h = r.owner(p, rank)
		}
		switch {
		case h == nil && attempt != "":
			return nil, errors.New("hosts keep nothing for each other")
		case h == nil:
			return nil, fmt.Errorf("host %s had the files of rank %d, and is not there", home.Host, rank)
		case attempt == "" && !p.good(p.dirs[home.Dir], rank, c.Index):
			return nil, fmt.Errorf("host %s does not have rank %d's file", home.Host, rank)
		case attempt != "":
			kept, lacks := r.keptSources(p, c, rank, h, true)
			if _, err := r.fetch(h, kept, lacks); err != nil {
				return nil, fmt.Errorf("rank %d: %w", rank, err)
			}
		}
		ranks[h] = append(ranks[h], rank)
	}
	for _, h := range r.v.Hosts {
		if len(ranks[h]) == 0 {
			continue
		}
		s, err := r.keep(ctx, h, &control.Keep{Tier: string(t.Kind), Index: c.Index, Ranks: ranks[h], All: p.ranks, Attempt: attempt})
		if err != nil {
			return nil, err
		}
		var up tier.Uploaded
		if err := json.Unmarshal(s.Part, &up); err != nil {
			return nil, err
		}
		if up.Attempt != c.Attempt {
			return nil, fmt.Errorf("host %s has checkpoint %d of another start", h.Name, c.Index)
		}
		out = append(out, up)
	}
	return out, nil
}

// content gets the content of an object that a tier has lost, into a file that
// has no name. It returns where it is from.
func (r *repairer) content(ctx context.Context, p *localInventory, t *outerTier, w *tier.Wanted) (*os.File, string, error) {
	var errs []error
	try := func(from string, get func(io.Writer) error) (*os.File, bool) {
		f, err := os.CreateTemp("", "cairn-repair-")
		if err == nil {
			os.Remove(f.Name()) // only this process needs it
			var d tier.Digester
			if err = get(io.MultiWriter(f, &d)); err == nil && d.Digest() == w.Digest {
				return f, true
			}
			f.Close()
		}
		if err == nil {
			err = tier.ErrDamaged
		}
		errs = append(errs, fmt.Errorf("%s: %w", from, err))
		return nil, false
	}
	for _, other := range r.outer {
		if other == t {
			continue
		}
		if o, ok := other.find(ctx, w.Object); ok {
			if f, ok := try(other.name, func(to io.Writer) error { return tier.Download(ctx, other.x, o, to) }); ok {
				return f, other.name, nil
			}
		}
	}
	if w.Extra != nil && !helper.IsPack(w.Extra.Path) { // the list of files that the pack does not have
		for _, part := range keptPartsOf(p, recovery.Checkpoint{Index: w.Index, Attempt: p.counting(w.Index)}, w.Rank) {
			if f, ok := try("what hosts keep", func(to io.Writer) error { return writeJSON(to, part.Absent) }); ok {
				return f, "what hosts keep", nil
			}
		}
	}
	for _, s := range r.onHosts(p, w) {
		if f, ok := try(s.name, s.get); ok {
			return f, s.name, nil
		}
	}
	if len(errs) == 0 {
		errs = append(errs, fmt.Errorf("nobody has it%s", r.had(p, w.Rank)))
	}
	return nil, "", errors.Join(errs...)
}

// writeJSON writes a list as Upload does.
func writeJSON(w io.Writer, list []string) error {
	text, err := json.Marshal(list)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// had says where a rank's files were.
func (r *repairer) had(p *localInventory, rank int) string {
	if rank >= len(p.record.Homes) {
		return ""
	}
	home := p.record.Homes[rank]
	if p.dirs[home.Dir] == nil {
		return fmt.Sprintf("; host %s had it, and its directory is missing", home.Host)
	}
	return fmt.Sprintf("; host %s had it, but not any more", home.Host)
}

// find looks for an object of the same content.
func (t *outerTier) find(ctx context.Context, o tier.Object) (found tier.Object, ok bool) {
	for _, c := range t.stored.checkpoints {
		for i := range c.Parts {
			p, err := c.Part(ctx, t.x, i)
			if err != nil {
				continue
			}
			p.Objects(func(x tier.Object) {
				if x.Size == o.Size && x.Digest == o.Digest {
					found, ok = x, true
				}
			})
		}
	}
	return found, ok
}

// hostFile is a file on a host that may have the content of an object.
type hostFile struct {
	name string // of the host, or hosts, in messages
	get  func(io.Writer) error
}

// onHosts returns what hosts have that may be an object: what they keep, shards
// of it, files of checkpoint directories and packs. The caller compares
// digests.
func (r *repairer) onHosts(p *localInventory, w *tier.Wanted) (out []hostFile) {
	object := ""
	if w.File != nil {
		object = kept.ObjectName(w.Rank, *w.File)
	} else {
		object = w.Extra.Path
	}
	root := "kept/" + r.rec.ID + "/"
	file := func(h *ViewedHost, path string) {
		out = append(out, hostFile{"host " + h.Name, func(to io.Writer) error {
			_, err := io.Copy(to, io.NewSectionReader(h.file(path, w.Size), 0, w.Size))
			return err
		}})
	}
	shards := make(map[erasure.Code][]io.ReaderAt)
	for _, h := range r.v.Hosts {
		if h.Files == nil {
			continue
		}
		k := p.kept[h.Files.ID]
		if k == nil {
			k = new(recovery.Store)
		}
		if slices.Contains(k.Copies, object) {
			file(h, root+"files/"+object)
		}
		for _, s := range k.Shards {
			if s.Object != object {
				continue
			}
			id := copies.ID{Object: object, Shard: s.Number, Data: s.Data, Parity: s.Parity}
			size, err := kept.FileSize(id, w.Size)
			code := erasure.Code{Data: s.Data, Parity: s.Parity}
			if err == nil {
				if shards[code] == nil {
					shards[code] = make([]io.ReaderAt, s.Data+s.Parity)
				}
				shards[code][s.Number] = h.file(root+"shards/"+id.String(), size)
			}
		}
	}
	for code, list := range shards {
		out = append(out, hostFile{"shards on several hosts", func(to io.Writer) error {
			_, err := erasure.Rebuild(list, code, erasure.Digest(w.Digest), to)
			return err
		}})
	}
	for _, h := range r.v.Hosts {
		switch {
		case h.Files == nil:
		case w.File == nil:
			file(h, "packs/"+object)
		default:
			for _, part := range h.Files.Parts {
				if part.Rank != w.Rank || part.Index < w.File.Index {
					continue
				}
				name := fmt.Sprintf("ckpt/ckpt-%08d/rank-%04d", part.Index, w.Rank)
				if part.Index > w.File.Index {
					name += fmt.Sprintf(".base-%08d", w.File.Index)
				}
				file(h, name+".h5")
			}
		}
	}
	return out
}
