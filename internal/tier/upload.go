package tier

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// UploadOptions say what to upload of a checkpoint.
type UploadOptions struct {
	FS    vfs.FS // nil: the real one
	Dir   string // the checkpoint directory
	Index uint64
	Ranks []int // whose files are in Dir; none: all ranks
	// Part distinguishes hosts that upload parts of one checkpoint: letters,
	// digits, '_' and '-'. A repeated upload of the same part continues the
	// interrupted one. No two processes may upload the same part at a time.
	Part     string
	Extra    []ExtraFile
	End      *EndOf // what is uploaded is the end of a run: Extra alone
	As       string // the run that gets the files; "": the one that saved them
	Parallel int    // objects at a time; 0: 4
	// Files is the number of bundles for the files of all ranks, if there are
	// more ranks than that; 0: each file is an object of its own.
	Files int
}

// ExtraFile is a file that is uploaded with a checkpoint.
type ExtraFile struct {
	Kind   string
	Rank   int
	Path   string // see Extra
	Source Source
}

// Uploaded is a part that was uploaded, and what Commit must know of it.
type Uploaded struct {
	Run     string  `json:"run"`
	Attempt string  `json:"attempt,omitempty"`
	Index   uint64  `json:"index"`
	Time    string  `json:"time"`
	Ranks   int     `json:"ranks"` // of the run
	Part    PartRef `json:"part"`
	Claim   string  `json:"claim"`
	Origin  string  `json:"origin,omitempty"` // as in Manifest
}

// claim is the content of an object under RUN/claims, a record. A collection
// spares objects in Reuse and objects with the token in their names.
type claim struct {
	Format  int      `json:"format"`
	Attempt string   `json:"attempt,omitempty"`
	Index   uint64   `json:"index"`
	Token   string   `json:"token"`
	Reuse   []string `json:"reuse,omitempty"`
}

// Publish uploads a checkpoint whose files are all in one directory, and
// commits it.
func Publish(ctx context.Context, t Tier, o UploadOptions) (*Manifest, error) {
	up, err := Upload(ctx, t, o)
	if err != nil {
		return nil, err
	}
	return Commit(ctx, t, []Uploaded{up})
}

// Upload uploads the files of some ranks of a committed checkpoint. It skips
// files that the newest checkpoint on the tier has. When it returns, all
// objects are durable; they count only after Commit.
func Upload(ctx context.Context, t Tier, o UploadOptions) (Uploaded, error) {
	u := &upload{t: t, o: o}
	if u.o.FS == nil {
		u.o.FS = vfs.OS()
	}
	u.o.Parallel = cmp.Or(u.o.Parallel, 4)
	up, err := u.run(ctx)
	if err != nil {
		return Uploaded{}, fmt.Errorf("uploading %s to %s: %w", Title(o.Index), t, err)
	}
	return up, nil
}

type upload struct {
	t         Tier
	o         UploadOptions
	part      Part
	local     [][]string // paths of part.Ranks[i].Files[k]
	saved     string     // the run that saved the files
	ranks     int        // of the run
	time      string
	known     map[fileID]Object // files on the tier that may be used
	extras    map[Object]Object // … and extra files, by size and digest
	claimName string
	claim     claim
}

type fileID struct {
	rank   int
	index  uint64
	header string
}

func (u *upload) run(ctx context.Context) (up Uploaded, err error) {
	if err := CheckName(u.o.Part); err != nil || strings.Contains(u.o.Part, "/") || len(u.o.Part) > 64 {
		return up, fmt.Errorf("%.100q is no name for a part", u.o.Part)
	}
	for _, step := range []func(context.Context) error{u.open, u.prepare, u.makeClaim, u.heedCondemned, u.putAll} {
		if err := step(ctx); err != nil {
			return up, err
		}
	}
	text, err := store.EncodeRecord(&u.part)
	if err != nil {
		return up, err
	}
	src := BytesSource(text)
	name := fmt.Sprintf("%s%s%08d-%s-%s-%.8s.json", u.part.Run, partsDir, u.o.Index, u.o.Part, u.claim.Token, src.Digest)
	if err := put(ctx, u.t, name, src); err != nil {
		return up, err
	}
	ref := PartRef{Object{Name: name, Size: src.Size, Digest: src.Digest}, u.part.list()}
	origin := ""
	if u.saved != u.part.Run {
		origin = u.saved
	}
	return Uploaded{u.part.Run, u.part.Attempt, u.o.Index, u.time, u.ranks, ref, u.claimName, origin}, nil
}

// put stores an object and looks whether it is there.
func put(ctx context.Context, t Tier, name string, src Source) error {
	if err := t.Put(ctx, name, src); err != nil {
		return err
	}
	return confirm(ctx, t, name, src.Size)
}

// confirm checks that an object is there.
func confirm(ctx context.Context, t Tier, name string, size int64) error {
	info, err := t.Stat(ctx, name)
	if err == nil && info.Size != size {
		err = fmt.Errorf("%s: %s: %w: it has %d bytes, not %d", t, name, ErrDamaged, info.Size, size)
	}
	return err
}

// there reports whether an object that is known is still on the tier.
func (u *upload) there(ctx context.Context, o Object) bool {
	info, err := u.t.Stat(ctx, o.Name)
	return err == nil && (info.Size == o.Size || o.At > 0 && info.Size >= o.At+o.Size)
}

// open reads the headers of the ranks' files.
func (u *upload) open(ctx context.Context) error {
	ranks := slices.Sorted(slices.Values(u.o.Ranks))
	if e := u.o.End; e != nil {
		u.part = Part{Format: manifestFormat, Run: e.Run, Attempt: e.Attempt, Index: u.o.Index}
		u.saved, u.ranks, u.time = e.Run, e.Ranks, time.Now().UTC().Format(time.RFC3339)
		for _, r := range ranks {
			u.part.Ranks = append(u.part.Ranks, RankFiles{Rank: r, Files: []File{}})
		}
		return nil
	}
	all := len(ranks) == 0
	if all {
		ranks = []int{0}
	}
	for i := 0; i < len(ranks); i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := u.openRank(ranks[i]); err != nil {
			return err
		}
		if i == 0 && all {
			for r := 1; r < u.ranks; r++ {
				ranks = append(ranks, r)
			}
		}
	}
	return nil
}

func (u *upload) openRank(rank int) error {
	d := store.Open(u.o.FS, u.o.Dir, rank)
	name := d.File(u.o.Index)
	f, err := ckpt.Open(u.o.FS, name)
	if err != nil {
		return err
	}
	defer f.Close()
	h := &f.Header
	if u.part.Run == "" {
		u.saved = h.Run
		u.part = Part{Format: manifestFormat, Run: cmp.Or(u.o.As, h.Run), Attempt: h.Attempt, Index: u.o.Index}
		u.ranks, u.time = h.Ranks, h.Time
	}
	if h.Run == "" {
		return fmt.Errorf("%s: the run has no identity; let it save another checkpoint", name)
	}
	if err := h.CheckPlace(u.o.Index, rank); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if h.Run != u.saved || h.Attempt != u.part.Attempt || h.Ranks != u.ranks {
		return fmt.Errorf("%s: %w: it is of run %s, attempt %s; that of rank %d is of run %s, attempt %s", name, ckpt.ErrForeign, h.Run, h.Attempt, u.part.Ranks[0].Rank, u.saved, u.part.Attempt)
	}
	files := RankFiles{Rank: rank, Files: []File{{Index: u.o.Index, Header: f.Digest()}}}
	paths := []string{name}
	for i := range h.Bases {
		b := &h.Bases[i]
		at := filepath.Join(filepath.Dir(name), d.BaseName(b.Index))
		base, err := ckpt.Open(u.o.FS, at)
		if err != nil {
			return err
		}
		err = f.CheckBase(b, base)
		files.Files = append(files.Files, File{Index: b.Index, Header: base.Digest()})
		paths = append(paths, at)
		if err = errors.Join(err, base.Close()); err != nil {
			return err
		}
	}
	u.part.Ranks = append(u.part.Ranks, files)
	u.local = append(u.local, paths)
	return nil
}

// prepare marks the run as one that has something on the tier, and finds
// objects of the newest checkpoint that need not be uploaded again.
func (u *upload) prepare(ctx context.Context) error {
	run := u.part.Run
	if err := u.t.Create(ctx, runsDir+run, []byte(runMark)); err != nil {
		return err
	}
	u.known, u.extras = make(map[fileID]Object), make(map[Object]Object)
	all, err := Manifests(ctx, u.t, run)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.At == u.o.Index && m.Err == nil && m.Abandoned {
			return ErrAbandoned
		}
	}
	for _, m := range all {
		// One that is damaged, or is removed meanwhile, only means that more is
		// uploaded.
		if m.Err != nil || m.Abandoned || u.learn(ctx, m.Manifest) != nil {
			continue
		}
		break
	}
	return ctx.Err()
}

// learn notes the objects of a manifest's parts that have files of these ranks.
func (u *upload) learn(ctx context.Context, m *Manifest) error {
	mine := make(map[int]bool)
	for _, r := range u.part.Ranks {
		mine[r.Rank] = true
	}
	for i := range m.Parts {
		if !slices.ContainsFunc(m.Parts[i].Ranks, func(r int) bool { return mine[r] }) {
			continue
		}
		p, err := m.Part(ctx, u.t, i)
		if err != nil {
			return err
		}
		for _, r := range p.Ranks {
			for _, f := range r.Files {
				u.known[fileID{r.Rank, f.Index, f.Header}] = f.Object
			}
		}
		for _, e := range p.Extra {
			if u.o.End != nil && e.At > 0 { // its bundle has checkpoints, too, and is removed with them
				continue
			}
			u.extras[Object{Size: e.Size, Digest: e.Digest}] = e.Object
		}
	}
	return nil
}

// makeClaim claims the objects that will be used, or continues a claim that an
// interrupted upload of this part made.
func (u *upload) makeClaim(ctx context.Context) error {
	prefix := fmt.Sprintf("%s%s%08d-%s-", u.part.Run, claimsDir, u.o.Index, u.o.Part)
	for info, err := range u.t.List(ctx, prefix) {
		if err != nil {
			return err
		}
		if c, err := readClaim(ctx, u.t, info.Name); err == nil && c.Attempt == u.part.Attempt && info.Name == prefix+c.Token+".json" {
			u.claimName, u.claim = info.Name, c
			claimed := setOf(c.Reuse)
			u.use(func(name string) bool { return claimed[name] })
			return nil
		}
	}
	c := claim{Format: manifestFormat, Attempt: u.part.Attempt, Index: u.o.Index, Token: store.NewID()[:16]}
	for _, r := range u.part.Ranks {
		for _, f := range r.Files {
			if o, ok := u.known[fileID{r.Rank, f.Index, f.Header}]; ok {
				c.Reuse = append(c.Reuse, o.Name)
			}
		}
	}
	for _, e := range u.o.Extra {
		if o, ok := u.extras[Object{Size: e.Source.Size, Digest: e.Source.Digest}]; ok {
			c.Reuse = append(c.Reuse, o.Name)
		}
	}
	text, err := store.EncodeRecord(&c)
	if err != nil {
		return err
	}
	u.claimName, u.claim = prefix+c.Token+".json", c
	if err := u.t.Create(ctx, u.claimName, text); err != nil {
		return err
	}
	return confirm(ctx, u.t, u.claimName, int64(len(text)))
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// use forgets the objects on the tier that may not be used.
func (u *upload) use(may func(name string) bool) {
	for id, o := range u.known {
		if !may(o.Name) {
			delete(u.known, id)
		}
	}
	for key, o := range u.extras {
		if !may(o.Name) {
			delete(u.extras, key)
		}
	}
}

func readClaim(ctx context.Context, t Tier, name string) (c claim, err error) {
	text, err := ReadAll(ctx, t, name, maxPartText)
	if err != nil {
		return c, err
	}
	if err = decode(text, &c, &c.Format); err == nil && (len(c.Token) != 16 || strings.Trim(c.Token, "0123456789abcdef") != "") {
		err = refused("token %.40q", c.Token)
	}
	if err != nil {
		err = fmt.Errorf("%s: %s: %w", t, name, err)
	}
	return c, err
}

// heedCondemned forgets objects that a collection may be removing.
func (u *upload) heedCondemned(ctx context.Context) error {
	for info, err := range u.t.List(ctx, u.part.Run+condemnedDir) {
		if err != nil {
			return err
		}
		c, err := readCondemned(ctx, u.t, info.Name)
		if errors.Is(err, ErrNotExist) {
			continue // the collection has finished
		}
		if err != nil {
			return err
		}
		going := setOf(c.Names)
		u.use(func(name string) bool { return !going[name] })
	}
	return nil
}

// putAll stores what is not there.
func (u *upload) putAll(ctx context.Context) error {
	var jobs []func(context.Context) error
	bundled := make(map[int]bool) // ranks
	for _, list := range u.bundles() {
		for _, i := range list {
			bundled[u.part.Ranks[i].Rank] = true
		}
		jobs = append(jobs, func(ctx context.Context) error { return u.putBundle(ctx, list) })
	}
	for i := range u.part.Ranks {
		r := &u.part.Ranks[i]
		if bundled[r.Rank] {
			continue
		}
		for k := range r.Files {
			jobs = append(jobs, func(ctx context.Context) error { return u.putFile(ctx, r.Rank, &r.Files[k], u.local[i][k]) })
		}
	}
	u.part.Extra = make([]Extra, len(u.o.Extra))
	for i, e := range u.o.Extra {
		u.part.Extra[i] = Extra{Kind: e.Kind, Rank: e.Rank, Path: e.Path}
		if bundled[e.Rank] {
			continue
		}
		jobs = append(jobs, func(ctx context.Context) error {
			o := &u.part.Extra[i].Object
			*o = Object{Name: fmt.Sprintf("%s%sextra-%s-%04d", u.part.Run, filesDir, u.claim.Token, i), Size: e.Source.Size, Digest: e.Source.Digest}
			if err := u.part.Extra[i].check(u.part.Run + filesDir); err != nil {
				return err
			}
			if x, ok := u.extras[Object{Size: o.Size, Digest: o.Digest}]; ok && u.there(ctx, x) {
				*o = x
				return nil
			}
			return put(ctx, u.t, o.Name, e.Source)
		})
	}
	return Parallel(ctx, u.o.Parallel, jobs)
}

// putFile stores a rank's file, or finds it on the tier.
func (u *upload) putFile(ctx context.Context, rank int, f *File, local string) error {
	if o, ok := u.known[fileID{rank, f.Index, f.Header}]; ok && u.there(ctx, o) {
		f.Object = o
		return nil
	}
	file, err := u.o.FS.Open(local)
	if err != nil {
		return err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return err
	}
	src, err := NewSource(ctx, file, size)
	if err != nil {
		return fmt.Errorf("%s: %w", local, err)
	}
	f.Object = Object{Name: fmt.Sprintf("%s%srank-%04d-%08d-%s.h5", u.part.Run, filesDir, rank, f.Index, u.claim.Token), Size: size, Digest: src.Digest}
	return put(ctx, u.t, f.Name, src)
}

// Commit writes the manifest of a checkpoint, when all its parts are uploaded,
// and ends their claims. If another writer was first, the error is ErrExists;
// if a collection has given up the upload, it is ErrAbandoned. A Commit that is
// repeated returns the manifest that is there.
func Commit(ctx context.Context, t Tier, parts []Uploaded) (*Manifest, error) {
	return commit(ctx, t, parts, nil)
}

func commit(ctx context.Context, t Tier, parts []Uploaded, end *End) (*Manifest, error) {
	if len(parts) == 0 {
		return nil, errors.New("a checkpoint without parts")
	}
	parts = slices.SortedFunc(slices.Values(parts), func(a, b Uploaded) int { return slices.Compare(a.Part.Ranks, b.Part.Ranks) })
	first := &parts[0]
	m := &Manifest{Format: manifestFormat, Run: first.Run, Attempt: first.Attempt, Index: first.Index, Time: first.Time, Ranks: first.Ranks, Token: store.NewID(), Origin: first.Origin, End: end}
	fail := func(err error) (*Manifest, error) {
		return nil, fmt.Errorf("committing %s on %s: %w", Title(m.Index), t, err)
	}
	for i := range parts {
		p := &parts[i]
		if p.Run != m.Run || p.Attempt != m.Attempt || p.Index != m.Index || p.Ranks != m.Ranks || p.Origin != m.Origin {
			return fail(fmt.Errorf("part %s is of run %s, attempt %s, checkpoint %d, %d ranks; others are of run %s, attempt %s, %d ranks", p.Part.Name, p.Run, p.Attempt, p.Index, p.Ranks, m.Run, m.Attempt, m.Ranks))
		}
		m.Parts = append(m.Parts, p.Part)
	}
	if err := m.check(); err != nil {
		return fail(err)
	}
	text, err := store.EncodeRecord(m)
	if err != nil {
		return fail(err)
	}
	name := manifestName(m.Run, m.Index)
	err = t.Create(ctx, name, text)
	if errors.Is(err, ErrExists) {
		old, rerr := readManifest(ctx, t, m.Run, m.Index)
		switch {
		case rerr != nil:
			return fail(errors.Join(err, rerr))
		case old.Abandoned:
			return fail(ErrAbandoned)
		case old.Attempt != m.Attempt || old.Ranks != m.Ranks:
			return fail(fmt.Errorf("%w: attempt %s wrote it, and this is attempt %s: another process runs this run, or has run it", ErrExists, old.Attempt, m.Attempt))
		}
		m, err = old, nil
	} else if err == nil {
		var back []byte
		if back, err = ReadAll(ctx, t, name, maxManifest); err == nil && !bytes.Equal(back, text) {
			err = fmt.Errorf("%s: %w: it is not what was written", name, ErrDamaged)
		}
	}
	if err != nil {
		return fail(err)
	}
	for i := range parts {
		t.Remove(ctx, parts[i].Claim) // if it stays, the next collection removes it
	}
	return m, nil
}
