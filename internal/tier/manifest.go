package tier

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/store"
)

// ErrAbandoned means that a collection gave up an upload, because its claim was
// older than the grace period. The checkpoint cannot be committed on this tier
// any more.
var ErrAbandoned = errors.New("the upload took too long and was given up")

// Object is an object that a part or a manifest refers to.
type Object struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	Digest Digest `json:"digest"`
	// At is where the content begins in a bundle, which is larger; 0: Name is
	// this object alone.
	At int64 `json:"at,omitempty"`
}

// Manifest makes a checkpoint on a tier complete: it exists if all ranks' files
// are there. The object is a record, as in package store.
type Manifest struct {
	Format  int       `json:"format"`
	Run     string    `json:"run"`
	Attempt string    `json:"attempt,omitempty"` // as in the headers of the ranks' files
	Index   uint64    `json:"index"`
	Time    string    `json:"time,omitempty"` // as in the header of the lowest rank
	Ranks   int       `json:"ranks"`
	Parts   []PartRef `json:"parts"`
	// Token tells the manifest from any that another process writes.
	Token string `json:"token"`
	// Origin is the run that saved the ranks' files and packs, if they were
	// copied from another one.
	Origin string `json:"origin,omitempty"`
	// End, of the manifest with EndIndex, says how the run has finished.
	End *End `json:"end,omitempty"`
	// Abandoned is true in a tombstone: the checkpoint will never be complete.
	Abandoned bool `json:"abandoned,omitempty"`
}

// PartRef is a part of a manifest.
type PartRef struct {
	Object
	Ranks []int `json:"ranks"` // whose files it has, ascending
}

// Part lists what one host uploaded of a checkpoint. The object is a record.
type Part struct {
	Format  int         `json:"format"`
	Run     string      `json:"run"`
	Attempt string      `json:"attempt,omitempty"`
	Index   uint64      `json:"index"`
	Ranks   []RankFiles `json:"ranks"` // ascending
	Extra   []Extra     `json:"extra,omitempty"`
}

// RankFiles are the files of one rank that a checkpoint needs: that of the
// checkpoint itself, then its bases.
type RankFiles struct {
	Rank  int    `json:"rank"`
	Files []File `json:"files"`
}

// File is a rank's file of a checkpoint. Header is the digest of its /Header,
// which tells it from other files of the same rank and index.
type File struct {
	Index  uint64 `json:"index"`
	Header string `json:"header"`
	Object
}

// Extra is anything else that belongs to a checkpoint: a journal, a record, a
// file of the program. Kind and Path are the caller's. Path is relative, with
// slashes, and does not lead upwards.
type Extra struct {
	Kind string `json:"kind"`
	Rank int    `json:"rank"`
	Path string `json:"path"`
	Object
}

const (
	manifestFormat = 1
	runMark        = "{\"format\": 1}\n" // content of runs/RUN

	maxManifest = 64 << 20
	maxPartText = 256 << 20
	maxRanks    = 1 << 20
	maxFiles    = 4096 // of a rank
	maxObject   = 1 << 50
)

// Names of the objects of a run.
const (
	runsDir        = "runs/"
	checkpointsDir = "/checkpoints/"
	partsDir       = "/parts/"
	filesDir       = "/files/"
	claimsDir      = "/claims/"
	condemnedDir   = "/condemned/"
)

func manifestName(run string, index uint64) string {
	return fmt.Sprintf("%s%s%08d.json", run, checkpointsDir, index)
}

// ParseManifest decodes and checks a manifest. It is refused if it refers to
// anything outside its run, or to ranks other than 0 to Ranks-1, each once.
func ParseManifest(text []byte) (*Manifest, error) {
	m := new(Manifest)
	if err := decode(text, m, &m.Format); err != nil {
		return nil, err
	}
	return m, m.check()
}

// decode decodes a record.
func decode(text []byte, v any, format *int) error {
	if err := store.DecodeRecord(text, v); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if *format != manifestFormat {
		return fmt.Errorf("it has format %d, this program reads %d; use the version of Cairn that wrote it", *format, manifestFormat)
	}
	return nil
}

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

func isID(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == 32 && strings.ToLower(s) == s
}

func checkIdentity(run, attempt string, index uint64) error {
	if !isID(run) || attempt != "" && !isID(attempt) || index == 0 {
		return refused("run %.40q, attempt %.40q, %s", run, attempt, Title(index))
	}
	return nil
}

func (m *Manifest) check() error {
	if err := checkIdentity(m.Run, m.Attempt, m.Index); err != nil || m.Abandoned {
		return err
	}
	if (m.End != nil) != (m.Index == EndIndex) {
		return refused("it is the manifest of %s, and says otherwise", Title(m.Index))
	}
	if m.Origin != "" && !isID(m.Origin) {
		return refused("origin %.40q", m.Origin)
	}
	if m.Ranks < 1 || m.Ranks > maxRanks || len(m.Parts) > m.Ranks {
		return refused("%d parts of %d ranks", len(m.Parts), m.Ranks)
	}
	seen := make([]bool, m.Ranks)
	count := 0
	for i := range m.Parts {
		p := &m.Parts[i]
		if err := p.check(m.Run+partsDir, maxPartText); err != nil {
			return err
		}
		if err := ascending(p.Ranks); err != nil {
			return err
		}
		for _, r := range p.Ranks {
			if r >= m.Ranks || seen[r] {
				return refused("rank %d of %d is listed twice, or does not exist", r, m.Ranks)
			}
			seen[r] = true
			count++
		}
	}
	if count != m.Ranks {
		return refused("files of %d ranks; there are %d", count, m.Ranks)
	}
	return nil
}

// check checks that an object is in a directory of its run.
func (o *Object) check(dir string, most int64) error {
	if err := CheckName(o.Name); err != nil {
		return refused("%v", err)
	}
	if !strings.HasPrefix(o.Name, dir) || strings.Contains(o.Name[len(dir):], "/") {
		return refused("object %s is not in %s", o.Name, dir)
	}
	if o.Size < 0 || o.Size > most || o.At < 0 || o.At > maxObject {
		return refused("object %s has %d bytes at %d", o.Name, o.Size, o.At)
	}
	return nil
}

// ascending checks a list of ranks.
func ascending(ranks []int) error {
	last := -1
	for _, r := range ranks {
		if r <= last {
			return refused("ranks are not in order at rank %d", r)
		}
		last = r
	}
	if last < 0 {
		return refused("a part without ranks")
	}
	return nil
}

// ParsePart decodes and checks a part. It does not compare it with a manifest.
func ParsePart(text []byte) (*Part, error) {
	p := new(Part)
	if err := decode(text, p, &p.Format); err != nil {
		return nil, err
	}
	return p, p.check()
}

func (p *Part) check() error {
	if err := checkIdentity(p.Run, p.Attempt, p.Index); err != nil {
		return err
	}
	if err := ascending(p.list()); err != nil {
		return err
	}
	dir := p.Run + filesDir
	for _, r := range p.Ranks {
		if p.Index == EndIndex && len(r.Files) == 0 {
			continue
		}
		if len(r.Files) == 0 || len(r.Files) > maxFiles || r.Files[0].Index != p.Index {
			return refused("rank %d has %d files, and the first must be that of %s", r.Rank, len(r.Files), Title(p.Index))
		}
		indexes := make(map[uint64]bool, len(r.Files))
		for i := range r.Files {
			f := &r.Files[i]
			if f.Index == 0 || f.Index > p.Index || indexes[f.Index] || !isID(f.Header) {
				return refused("rank %d's file of checkpoint %d is no base of %s, or is there twice", r.Rank, f.Index, Title(p.Index))
			}
			indexes[f.Index] = true
			if err := f.check(dir, maxObject); err != nil {
				return err
			}
		}
	}
	for i := range p.Extra {
		e := &p.Extra[i]
		if err := e.check(dir); err != nil {
			return err
		}
	}
	return nil
}

func (e *Extra) check(dir string) error {
	odd := func(c rune) bool { return c < ' ' || c == '\\' || c == ':' || c == 0x7f }
	if !fs.ValidPath(e.Path) || e.Path == "." || len(e.Path) > 4096 || strings.ContainsFunc(e.Path+e.Kind, odd) || e.Rank < 0 {
		return refused("extra file %.100q of kind %.20q of rank %d", e.Path, e.Kind, e.Rank)
	}
	return e.Object.check(dir, maxObject)
}

// list returns the ranks of a part.
func (p *Part) list() []int {
	out := make([]int, len(p.Ranks))
	for i, r := range p.Ranks {
		out[i] = r.Rank
	}
	return out
}

// Objects calls f with each object that a part refers to.
func (p *Part) Objects(f func(Object)) {
	for _, r := range p.Ranks {
		for _, file := range r.Files {
			f(file.Object)
		}
	}
	for _, e := range p.Extra {
		f(e.Object)
	}
}

// Part reads a part of the manifest and checks that it belongs to it.
func (m *Manifest) Part(ctx context.Context, t Tier, i int) (*Part, error) {
	ref := &m.Parts[i]
	fail := func(err error) error { return fmt.Errorf("%s: %s: %w", t, ref.Name, err) }
	text, err := ReadAll(ctx, t, ref.Name, maxPartText)
	if err != nil {
		return nil, err
	}
	if int64(len(text)) != ref.Size || BytesSource(text).Digest != ref.Digest {
		return nil, fail(refused("it is not the part that the manifest of %s names", Title(m.Index)))
	}
	p, err := ParsePart(text)
	if err != nil {
		return nil, fail(err)
	}
	if p.Run != m.Run || p.Attempt != m.Attempt || p.Index != m.Index || !slices.Equal(p.list(), ref.Ranks) {
		return nil, fail(refused("it does not belong to the manifest of %s", Title(m.Index)))
	}
	return p, nil
}

// parseIndex returns the index in the name of a manifest.
func parseIndex(run, name string) (uint64, bool) {
	base := path.Base(name)
	index, ok := store.ParseIndex("ckpt-" + strings.TrimSuffix(base, ".json"))
	return index, ok && manifestName(run, index) == name
}

// readManifest reads a manifest. It may be a tombstone.
func readManifest(ctx context.Context, t Tier, run string, index uint64) (*Manifest, error) {
	name := manifestName(run, index)
	text, err := ReadAll(ctx, t, name, maxManifest)
	if err != nil {
		return nil, err
	}
	m, err := ParseManifest(text)
	if err == nil && (m.Run != run || m.Index != index) {
		err = refused("it is that of run %s, %s", m.Run, Title(m.Index))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", t, name, err)
	}
	return m, nil
}

// Gone reports whether a manifest was removed since it was read.
func Gone(ctx context.Context, t Tier, m *Manifest) (bool, error) {
	_, err := t.Stat(ctx, manifestName(m.Run, m.Index))
	if errors.Is(err, ErrNotExist) {
		return true, nil
	}
	return false, err
}

// Runs returns the runs that have something on a tier.
func Runs(ctx context.Context, t Tier) ([]string, error) {
	var runs []string
	for info, err := range t.List(ctx, runsDir) {
		if err != nil {
			return nil, err
		}
		if run := strings.TrimPrefix(info.Name, runsDir); isID(run) {
			runs = append(runs, run)
		}
	}
	return runs, nil
}

// Checkpoints returns the checkpoints of a run that are complete on a tier,
// newest first, without its end. Manifests that cannot be read are in the
// error, joined; the others are returned all the same.
func Checkpoints(ctx context.Context, t Tier, run string) ([]*Manifest, error) {
	all, err := Manifests(ctx, t, run)
	if err != nil {
		return nil, err
	}
	var out []*Manifest
	var errs []error
	for _, m := range all {
		if m.Err != nil {
			errs = append(errs, m.Err)
		} else if !m.Abandoned && m.At != EndIndex {
			out = append(out, m.Manifest)
		}
	}
	return out, errors.Join(errs...)
}
