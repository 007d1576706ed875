// Package kept is the store of a host for objects of checkpoints: those of its
// own ranks, as hard links to their files and packs, and copies and shards that
// it holds for other hosts.
//
//	DIR/RUN/
//	  files/rank-0003-00000010-HEADER-DIGEST.h5         a copy of an object
//	  files/rank-0003-00000012-DIGEST.pack              the rank's pack (package pack)
//	  shards/rank-0003-00000010-HEADER-DIGEST.h5.4+2.1  shard 1 of a 4+2 code
//	  parts/00000012-rank-0003-ATTEMPT.json             record: what rank 3 needs for checkpoint 12
//	  incoming/7                                        being received; removed by Open
//	  files/….bad, shards/….bad                         found damaged, and not used any more
//
// An object's name ends with the digest of its content, so a copy or a shard
// can be checked without anything else. HEADER is the first half of the digest
// of the file's /Header: by it, Link finds a base that it knows without reading
// it again.
//
// A file gets its name when its content is durable and was checked, and the
// name is durable when it is reported. So every name in files and shards is a
// whole object, and what a crash leaves is in incoming.
package kept

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/copies"
	"github.com/cairnrun/cairn/internal/tier/erasure"
	"github.com/cairnrun/cairn/internal/tier/recovery"
	"github.com/cairnrun/cairn/internal/vfs"
)

// Store is what a host keeps of a run. Its methods may be called concurrently.
// Only one process may use a store at a time, but others may Look.
type Store struct {
	fs   vfs.FS
	root string // DIR/RUN
	run  string

	mu       sync.Mutex
	files    map[copies.ID]*entry
	parts    map[copies.PartID]recovery.Part
	linked   map[copies.PartID]bool // made by Link
	bad      map[copies.ID]string   // found damaged: why
	pinned   map[string]int         // objects that Link is about to need
	partials map[copies.ID]*Incoming
	idle     []copies.ID // of partials, the oldest first
	next     int         // number of the next file in incoming
}

// entry is a file of a copy or a shard.
type entry struct{ size int64 }

const (
	filesDir    = "files"
	shardsDir   = "shards"
	partsDir    = "parts"
	incomingDir = "incoming"
	badSuffix   = ".bad"
)

// Open opens the store in a directory for a run, and removes what a crash left.
// The directory's parent must exist.
func Open(fsys vfs.FS, dir, run string) (*Store, error) {
	if err := tier.CheckName(run); err != nil || strings.Contains(run, "/") {
		return nil, fmt.Errorf("%.100q is no name of a run", run)
	}
	s := newStore(fsys, dir, run)
	for _, d := range []string{dir, s.root, s.path(filesDir), s.path(shardsDir), s.path(partsDir), s.path(incomingDir)} {
		if err := fsys.Mkdir(d); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	for _, d := range []string{filepath.Dir(filepath.Clean(dir)), dir, s.root} {
		if err := fsys.SyncDir(d); err != nil {
			return nil, err
		}
	}
	for _, d := range []string{filesDir, shardsDir, partsDir, incomingDir} {
		if err := vfs.NoLinks(fsys, dir, run+"/"+d); err != nil {
			return nil, err
		}
	}
	for _, step := range []func() error{s.clean, s.scanFiles, s.scanParts, s.compareSizes} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Look opens a store for reading, while another process may use it. It changes
// no file. A directory that is not there is an empty store.
func Look(fsys vfs.FS, dir, run string) (*Store, error) {
	s := newStore(lookFS{fsys}, dir, run)
	for _, step := range []func() error{s.scanFiles, s.scanParts, s.compareSizes} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// lookFS leaves out the changes that reading a store makes. Directories that
// are not there are empty.
type lookFS struct{ vfs.FS }

func (f lookFS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := f.FS.ReadDir(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}

func (lookFS) Remove(string) error         { return nil }
func (lookFS) Rename(string, string) error { return nil }
func (lookFS) SyncDir(string) error        { return nil }

func newStore(fsys vfs.FS, dir, run string) *Store {
	return &Store{fs: fsys, root: filepath.Join(dir, run), run: run, files: map[copies.ID]*entry{}, parts: map[copies.PartID]recovery.Part{}, linked: map[copies.PartID]bool{},
		bad: map[copies.ID]string{}, pinned: map[string]int{}, partials: map[copies.ID]*Incoming{}}
}

func (s *Store) path(names ...string) string {
	return filepath.Join(append([]string{s.root}, names...)...)
}

// file returns the path of a copy or a shard.
func (s *Store) file(id copies.ID) string {
	if id.Data == 0 {
		return s.path(filesDir, id.String())
	}
	return s.path(shardsDir, id.String())
}

// clean removes what was being received.
func (s *Store) clean() error {
	entries, err := s.fs.ReadDir(s.path(incomingDir))
	for _, e := range entries {
		if err := vfs.RemoveAll(s.fs, s.path(incomingDir, e.Name())); err != nil {
			return err
		}
	}
	return err
}

// scanFiles looks what copies and shards are there. Other names are ignored.
func (s *Store) scanFiles() error {
	for _, dir := range []string{filesDir, shardsDir} {
		entries, err := s.fs.ReadDir(s.path(dir))
		if err != nil {
			return err
		}
		for _, e := range entries {
			name, bad := strings.CutSuffix(e.Name(), badSuffix)
			id, ok := parseID(name)
			if !ok || (id.Data == 0) != (dir == filesDir) || !e.Type().IsRegular() {
				continue
			}
			if bad {
				s.bad[id] = "it was found damaged"
				continue
			}
			st, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue // the process that uses the store has removed it
			}
			if err != nil {
				return err
			}
			s.files[id] = &entry{st.Size()}
		}
	}
	for id := range s.bad {
		if s.files[id] != nil { // it was received again
			delete(s.bad, id)
			s.fs.Remove(s.file(id) + badSuffix)
		}
	}
	return nil
}

// scanParts reads the parts. One that is damaged does not count.
func (s *Store) scanParts() error {
	entries, err := s.fs.ReadDir(s.path(partsDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		at := s.path(partsDir, e.Name())
		if !strings.HasSuffix(e.Name(), ".json") {
			if strings.HasSuffix(e.Name(), ".tmp") {
				if err := s.fs.Remove(at); err != nil {
					return err
				}
			}
			continue
		}
		var r partRecord
		err := store.ReadRecord(s.fs, at, &r)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && (r.Format != partFormat || r.Run != s.run) {
			return fmt.Errorf("%s: it has format %d and is of run %.40q; this cairn knows format %d, and the run is %s", at, r.Format, r.Run, partFormat, s.run)
		}
		var p recovery.Part
		if err == nil {
			p = r.part()
			if err = CheckPart(&p); err != nil || partName(partID(&p)) != e.Name() {
				err = fmt.Errorf("%w: %w", store.ErrDamaged, cmp.Or(err, errors.New("it is of another part")))
			}
		}
		if errors.Is(err, store.ErrDamaged) {
			if err = s.fs.Rename(at, at+badSuffix); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		s.parts[partID(&p)] = p
	}
	return nil
}

// compareSizes finds files that are shorter or longer than their parts say.
func (s *Store) compareSizes() error {
	sizes := map[string]int64{}
	for _, p := range s.parts {
		for _, o := range p.Objects {
			sizes[o.Name] = o.Size
		}
	}
	for id, e := range s.files {
		size, known := sizes[id.Object]
		if want := fileSize(id, size); known && want != e.size {
			s.damaged(id, e, fmt.Errorf("it has %d bytes, not %d", e.size, want))
		}
	}
	return nil
}

// fileSize returns the bytes of a copy or a shard of an object of some size.
func fileSize(id copies.ID, size int64) int64 {
	if id.Data == 0 {
		return size
	}
	return erasure.ShardSize(code(id), size)
}

func code(id copies.ID) erasure.Code { return erasure.Code{Data: id.Data, Parity: id.Parity} }

// FileSize returns the bytes that a host stores, and another sends, of a copy
// or a shard of an object of some size.
func FileSize(id copies.ID, size int64) (int64, error) {
	if err := checkID(id); err != nil {
		return 0, err
	}
	if size < 0 || size > maxObject {
		return 0, fmt.Errorf("%s: an object of %d bytes", id, size)
	}
	return fileSize(id, size), nil
}

const maxObject = 1 << 56

// ObjectName returns the name of the object that is a rank's file.
func ObjectName(rank int, f tier.File) string {
	return filePrefix(rank, f.Index, f.Header) + f.Digest.String() + ".h5"
}

func filePrefix(rank int, index uint64, header string) string {
	return fmt.Sprintf("rank-%04d-%08d-%.16s-", rank, index, header)
}

// DigestOf returns the digest in the name of an object.
func DigestOf(object string) (d tier.Digest, err error) {
	base, _, dot := strings.Cut(object, ".")
	at := strings.LastIndexByte(base, '-')
	if err := tier.CheckName(object); err != nil || !dot || at < 0 || len(base)-at-1 != 2*len(d) || strings.Contains(object, "/") || strings.HasSuffix(object, badSuffix) {
		return d, fmt.Errorf("%.100q is no name of an object: it does not end with a digest", object)
	}
	if base[at+1:] != strings.ToLower(base[at+1:]) {
		return d, fmt.Errorf("%.100q is no name of an object: its digest has capital letters", object)
	}
	_, err = hex.Decode(d[:], []byte(base[at+1:]))
	return d, err
}

func checkID(id copies.ID) error {
	if _, err := DigestOf(id.Object); err != nil {
		return err
	}
	if id.Data == 0 && id.Shard == 0 && id.Parity == 0 {
		return nil
	}
	if id.Data < 1 || id.Parity < 1 || id.Data+id.Parity > 256 || id.Shard < 0 || id.Shard >= id.Data+id.Parity {
		return fmt.Errorf("there is no shard %d of a %d+%d code", id.Shard, id.Data, id.Parity)
	}
	return nil
}

// parseID returns what a file is, by its name: OBJECT or OBJECT.4+2.1.
func parseID(name string) (id copies.ID, ok bool) {
	id.Object = name
	if parts := strings.Split(name, "."); len(parts) > 3 && strings.Contains(parts[len(parts)-2], "+") {
		n := len(parts)
		id.Object = strings.Join(parts[:n-2], ".")
		data, parity, _ := strings.Cut(parts[n-2], "+")
		var errs [3]error
		id.Data, errs[0] = strconv.Atoi(data)
		id.Parity, errs[1] = strconv.Atoi(parity)
		id.Shard, errs[2] = strconv.Atoi(parts[n-1])
		if errors.Join(errs[:]...) != nil || id.Data == 0 {
			return id, false
		}
	}
	return id, checkID(id) == nil && id.String() == name
}

// partRecord is the content of a file in parts.
type partRecord struct {
	Format  int          `json:"format"`
	Run     string       `json:"run"`
	Index   uint64       `json:"index"`
	Attempt string       `json:"attempt"`
	Rank    int          `json:"rank"`
	Ranks   int          `json:"ranks"`
	Time    int64        `json:"time"` // nanoseconds since 1970
	Objects []partObject `json:"objects"`
	Absent  []string     `json:"absent,omitempty"`
}

type partObject struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

const partFormat = 1

func (r *partRecord) part() recovery.Part {
	p := recovery.Part{Checkpoint: recovery.Checkpoint{Index: r.Index, Attempt: r.Attempt}, Rank: r.Rank, Ranks: r.Ranks, Time: r.Time, Absent: r.Absent}
	for _, o := range r.Objects {
		p.Objects = append(p.Objects, recovery.Object(o))
	}
	return p
}

func partID(p *recovery.Part) copies.PartID {
	return copies.PartID{Checkpoint: p.Checkpoint, Rank: p.Rank}
}

// partName returns the name of a part's file. The attempt is whole if it is
// short.
func partName(id copies.PartID) string {
	return fmt.Sprintf("%08d-rank-%04d-%.16s.json", id.Index, id.Rank, id.Attempt)
}

// CheckPart returns an error if a part, perhaps of another host, cannot be
// kept.
func CheckPart(p *recovery.Part) error {
	if err := tier.CheckName(p.Attempt); err != nil || strings.ContainsAny(p.Attempt, "/.") || len(p.Attempt) > 64 {
		return fmt.Errorf("%.100q is no attempt", p.Attempt)
	}
	if p.Index == 0 || p.Rank < 0 || p.Rank >= p.Ranks || len(p.Objects) == 0 {
		return fmt.Errorf("rank %d of %d, checkpoint %d, %d objects: this is no part", p.Rank, p.Ranks, p.Index, len(p.Objects))
	}
	for i, o := range p.Objects {
		if _, err := FileSize(copies.ID{Object: o.Name}, o.Size); err != nil {
			return err
		}
		if slices.ContainsFunc(p.Objects[:i], func(x recovery.Object) bool { return x.Name == o.Name }) {
			return fmt.Errorf("%s is there twice", o.Name)
		}
	}
	return nil
}

// StorePart stores a part. It is durable when StorePart returns.
func (s *Store) StorePart(p recovery.Part) error {
	if err := CheckPart(&p); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.storePart(p)
}

func (s *Store) storePart(p recovery.Part) error {
	id := partID(&p)
	if old, ok := s.parts[id]; ok && slices.Equal(old.Objects, p.Objects) {
		return nil
	}
	for other := range s.parts {
		if other != id && partName(other) == partName(id) {
			return fmt.Errorf("%s is the part of another attempt", partName(id))
		}
	}
	r := partRecord{partFormat, s.run, p.Index, p.Attempt, p.Rank, p.Ranks, p.Time, nil, p.Absent}
	for _, o := range p.Objects {
		r.Objects = append(r.Objects, partObject(o))
	}
	// A crash, or an error, may leave the new one. It is as good.
	if err := store.WriteRecord(s.fs, s.path(partsDir, partName(id)), &r); err != nil {
		return err
	}
	step.At("tier.part")
	p.Objects = slices.Clone(p.Objects)
	s.parts[id] = p
	return nil
}

// Inventory returns what the store has. The caller adds name and domain.
func (s *Store) Inventory() recovery.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := recovery.Store{Kind: recovery.OnHost}
	for _, id := range slices.SortedFunc(maps.Keys(s.parts), comparePartIDs) {
		out.Parts = append(out.Parts, s.parts[id])
	}
	for _, id := range slices.SortedFunc(maps.Keys(s.files), compareIDs) {
		if id.Data == 0 {
			out.Copies = append(out.Copies, id.Object)
		} else {
			out.Shards = append(out.Shards, recovery.Shard{Object: id.Object, Number: id.Shard, Data: id.Data, Parity: id.Parity})
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(s.bad), compareIDs) {
		out.Damaged = append(out.Damaged, recovery.Damage{Object: id.Object, Why: s.bad[id]})
	}
	return out
}

func compareIDs(a, b copies.ID) int { return strings.Compare(a.String(), b.String()) }

func comparePartIDs(a, b copies.PartID) int {
	return cmp.Or(cmp.Compare(b.Index, a.Index), cmp.Compare(a.Rank, b.Rank), strings.Compare(a.Attempt, b.Attempt))
}

// Have returns the copies and shards that are here, and the parts: what
// copies.New needs.
func (s *Store) Have() (ids []copies.ID, parts []recovery.Part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids = slices.SortedFunc(maps.Keys(s.files), compareIDs)
	for _, id := range slices.SortedFunc(maps.Keys(s.parts), comparePartIDs) {
		parts = append(parts, s.parts[id])
	}
	return ids, parts
}

// Has reports whether a copy or a shard is here.
func (s *Store) Has(id copies.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files[id] != nil
}

// Path returns where the file of a copy or a shard is, if the store has it.
func (s *Store) Path(id copies.ID) string { return s.file(id) }

// Stat describes the file of a copy or a shard. If the store does not have it,
// Stat describes the damaged file that was in its place.
func (s *Store) Stat(id copies.ID) (fs.FileInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files[id] != nil {
		return s.fs.Stat(s.file(id))
	}
	return s.fs.Stat(s.file(id) + badSuffix)
}

// Bad returns the copies and shards that parts need, if they were found damaged
// and were not received again.
func (s *Store) Bad() []copies.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	needed := s.needed()
	ids := slices.SortedFunc(maps.Keys(s.bad), compareIDs)
	return slices.DeleteFunc(ids, func(id copies.ID) bool { return !needed[id.Object] })
}

// Linked returns the parts that Link has made since Open.
func (s *Store) Linked() (out []recovery.Part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.SortedFunc(maps.Keys(s.linked), comparePartIDs) {
		out = append(out, s.parts[id])
	}
	return out
}

// OpenFile opens a copy or a shard for reading. If it is not here, or was found
// damaged, the error is tier.ErrNotExist. What is read is not checked: Verify
// does that, or the reader.
func (s *Store) OpenFile(id copies.ID) (f vfs.File, size int64, err error) {
	f, e, err := s.openFile(id)
	if err != nil {
		return nil, 0, err
	}
	return f, e.size, nil
}

func (s *Store) openFile(id copies.ID) (vfs.File, *entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.files[id]
	if e == nil {
		return nil, nil, fmt.Errorf("%s: %w", id, tier.ErrNotExist)
	}
	f, err := s.fs.Open(s.file(id))
	if errors.Is(err, fs.ErrNotExist) {
		s.damaged(id, e, err)
		return nil, nil, fmt.Errorf("%s: %w: %w", id, tier.ErrDamaged, err)
	}
	return f, e, err
}

// Remove removes parts, and then copies and shards, durably. That some are not
// there is not an error. Objects of parts that Link has made stay, unless their
// parts are removed.
func (s *Store) Remove(parts []copies.PartID, ids []copies.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	dirs := []string{}
	removed := func(path string) bool {
		err := s.fs.Remove(path)
		if err == nil && !slices.Contains(dirs, filepath.Dir(path)) {
			dirs = append(dirs, filepath.Dir(path))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			return false
		}
		return true
	}
	sync := func() {
		for _, d := range dirs {
			errs = append(errs, s.fs.SyncDir(d))
		}
		dirs = dirs[:0]
	}
	for _, id := range parts {
		if _, ok := s.parts[id]; ok && removed(s.path(partsDir, partName(id))) {
			delete(s.parts, id)
			delete(s.linked, id)
		}
	}
	sync()
	protected := map[string]bool{}
	for id := range s.linked {
		for _, o := range s.parts[id].Objects {
			protected[o.Name] = true
		}
	}
	for _, id := range ids {
		if id.Data == 0 && (protected[id.Object] || s.pinned[id.Object] > 0) {
			continue
		}
		if s.files[id] != nil && removed(s.file(id)) {
			delete(s.files, id)
		}
	}
	needed := s.needed()
	for id := range s.bad {
		if !needed[id.Object] && removed(s.file(id)+badSuffix) {
			delete(s.bad, id)
		}
	}
	sync()
	return errors.Join(errs...)
}

// needed returns the objects of all parts.
func (s *Store) needed() map[string]bool {
	out := map[string]bool{}
	for _, p := range s.parts {
		for _, o := range p.Objects {
			out[o.Name] = true
		}
	}
	return out
}

// Rotten is a copy or a shard that was found damaged. It is not used any more.
type Rotten struct {
	ID  copies.ID
	Err error
}

// damaged takes a damaged file out of use, unless it was replaced meanwhile.
// The caller has locked the store.
func (s *Store) damaged(id copies.ID, e *entry, why error) {
	if s.files[id] != e {
		return
	}
	delete(s.files, id)
	s.bad[id] = why.Error()
	at := s.file(id)
	// If that fails, the file is not used all the same until the next Open. The
	// next reader finds the damage again.
	if s.fs.Rename(at, at+badSuffix) == nil {
		s.fs.SyncDir(filepath.Dir(at))
	}
}

// ObjectError says which copy or shard of this host is damaged.
type ObjectError struct {
	ID  copies.ID
	Err error
}

func (e *ObjectError) Error() string { return fmt.Sprintf("%s: %v", e.ID, e.Err) }

func (e *ObjectError) Unwrap() error { return e.Err }

// Verify reads all of a copy or a shard. If it is damaged, it is not used any
// more, and the error is an ObjectError that wraps tier.ErrDamaged. l, if not
// nil, bounds the rate.
func (s *Store) Verify(ctx context.Context, id copies.ID, l *tier.Limiter) error {
	f, e, err := s.openFile(id)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := check(ctx, f, e.size, id, l); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.damaged(id, e, err)
		return &ObjectError{id, fmt.Errorf("%w: %w", tier.ErrDamaged, err)}
	}
	return nil
}

// Damaged takes a copy or a shard out of use, which a reader found damaged.
func (s *Store) Damaged(id copies.ID, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.files[id]; e != nil {
		s.damaged(id, e, why)
	}
}

// Scrub reads everything once, and calls f for what it finds damaged.
func (s *Store) Scrub(ctx context.Context, f func(Rotten)) error {
	ids, _ := s.Have()
	for _, id := range ids {
		err := s.Verify(ctx, id, nil)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, tier.ErrNotExist): // it was removed meanwhile
		case errors.Is(err, tier.ErrDamaged):
			f(Rotten{id, err})
		case err != nil:
			return err
		}
	}
	return nil
}
