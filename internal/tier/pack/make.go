//go:build linux

package pack

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/journal"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/vfs"
)

// step lets tests end Make and Unpack before any change, as a kill would.
var step = func() {}

// Options say what to make packs of.
type Options struct {
	Dir         string // of the run on this host
	Checkpoints string // the checkpoint directory of its ranks
	Packs       string // where packs are kept
	Home        string // the directory that the program was started in, if it is known
	Index       uint64 // of the checkpoint
	Ranks       []int  // of this host, all of them
	All         int    // ranks of the run
	// File returns the path of a rank's file of the checkpoint. nil: the run
	// has ended. Attempt is its last start then, and the packs get the files as
	// they are now.
	File         func(rank int) string
	Run, Attempt string
	// Own returns the names of a rank's own files: paths below Dir, with
	// slashes. Stdout returns that of its standard output.
	Own    func(rank int) []string
	Stdout func(rank int) string
}

// Pack is what Make has made for a rank: the pack, then its bases.
type Pack struct {
	*Index
	Objects []Object
}

// tries is how often Make tries if files change while it reads them.
const tries = 3

// Make makes the packs of a committed checkpoint, or returns those that it has
// made before. They are durable when it returns. It removes older packs that
// are no bases of the new ones. If it returns journal.ErrPassed, newer
// checkpoints have replaced the checkpoint. Only one Make may use a directory
// at a time.
func Make(ctx context.Context, o Options) ([]Pack, error) {
	m := &maker{Options: o, ranks: make(map[int]*rankPack)}
	packs, err := m.run(ctx)
	if err != nil && o.File == nil {
		return nil, fmt.Errorf("copying the files of the run, which has ended: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("copying the program's files for checkpoint %d: %w", o.Index, err)
	}
	return packs, nil
}

type maker struct {
	Options
	ranks map[int]*rankPack
}

// rankPack is the pack of a rank that is being made.
type rankPack struct {
	x      Index
	stdout int64            // bytes of standard output; -1: all
	more   []string         // files that the checkpoint and the record of written files name
	prev   map[string]*File // of the newest pack
	chosen []Base           // that may be used
	bases  []int            // by Extent.Pack of the newest pack: the number in chosen, from 1 on; -1: not used
	w      *writer          // nil: the pack is there
	raw    map[*journal.Live][]Extent
	made   *Pack // nil: it is not made yet
}

func (m *maker) run(ctx context.Context) ([]Pack, error) {
	if err := os.Mkdir(m.Packs, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	sizes := make(map[string]int64)
	made := 0
	for _, r := range m.Ranks {
		p, err := m.open(r, sizes)
		if err != nil {
			return nil, err
		}
		m.ranks[r] = p
		if p.made != nil {
			made++
		}
	}
	if made < len(m.Ranks) {
		err := journal.ErrChanged
		for i := 0; i < tries && errors.Is(err, journal.ErrChanged); i++ {
			err = m.try(ctx, sizes)
		}
		if err != nil {
			return nil, err
		}
	}
	var out []Pack
	for _, r := range m.Ranks {
		out = append(out, *m.ranks[r].made)
	}
	return out, m.clean(out)
}

// open reads what the checkpoint says about a rank, and looks for older packs.
func (m *maker) open(rank int, sizes map[string]int64) (*rankPack, error) {
	p := &rankPack{x: Index{Format: format, Run: m.Run, Attempt: m.Attempt, Index: m.Index, Rank: rank, Ranks: m.All}, stdout: -1}
	if err := m.readCheckpoint(p, rank, sizes); err != nil {
		return nil, err
	}
	if st, err := os.Stat(m.Checkpoints); err == nil {
		p.more = append(p.more, store.Open(vfs.OS(), m.Checkpoints, rank).WrittenFiles(control.Inode(st))...)
	}
	return p, m.findOld(p)
}

// findOld finds the newest pack of a rank. It may be that of the checkpoint
// already.
func (m *maker) findOld(p *rankPack) error {
	entries, err := os.ReadDir(m.Packs)
	if err != nil {
		return err
	}
	newest, name := uint64(0), ""
	for _, e := range entries {
		rank, index, _, ok := parseName(e.Name())
		if ok && rank == p.x.Rank && index >= newest {
			newest, name = index, e.Name()
		}
	}
	if name == "" {
		return nil
	}
	f, x, size, err := openPack(filepath.Join(m.Packs, name))
	if err != nil { // it is not used, and removed
		return nil
	}
	f.Close()
	objects := []Object{{name, filepath.Join(m.Packs, name), size}}
	whole := true
	for _, b := range x.Bases {
		at := filepath.Join(m.Packs, b.Name)
		st, err := os.Stat(at)
		whole = whole && err == nil && st.Size() == b.Size
		objects = append(objects, Object{b.Name, at, b.Size})
	}
	if whole && x.Index == p.x.Index && x.Attempt == p.x.Attempt && x.Run == p.x.Run {
		p.made = &Pack{x, objects}
	}
	p.choose(x, objects)
	return nil
}

// choose decides which packs are bases of the new one.
func (p *rankPack) choose(x *Index, objects []Object) {
	used := make([]int64, len(objects))
	p.prev = make(map[string]*File)
	for i := range x.Files {
		f := &x.Files[i]
		p.prev[f.Path] = f
		for _, e := range f.Extents {
			if e.Pack >= 0 {
				used[e.Pack] += e.N
			}
		}
	}
	order := make([]int, 0, len(objects))
	for i, o := range objects {
		st, err := os.Stat(o.Path)
		if err == nil && st.Size() == o.Size && used[i] > 0 && (used[i] >= o.Size/4 || o.Size < chunk) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(min(max(used[b]-used[a], -1), 1)) })
	p.bases = make([]int, len(objects))
	for i := range p.bases {
		p.bases[i] = zeros
	}
	for _, i := range order[:min(len(order), maxBases)] {
		p.chosen = append(p.chosen, Base{objects[i].Name, objects[i].Size})
		p.bases[i] = len(p.chosen)
	}
}

// try makes the packs once.
func (m *maker) try(ctx context.Context, sizes map[string]int64) (err error) {
	more := make(map[int][]string)
	for r, p := range m.ranks {
		more[r] = p.more
		p.raw = make(map[*journal.Live][]Extent)
		p.x.Files, p.x.Bases = nil, slices.Clone(p.chosen)
	}
	s, err := journal.NewSnapshot(journal.SnapshotOptions{Dir: m.Checkpoints, Ranks: m.Ranks, All: m.All, Index: m.Index, Home: m.home(), End: m.File == nil, More: more, Sizes: sizes})
	if err != nil {
		return err
	}
	defer s.Close()
	for _, p := range m.ranks {
		if p.w, err = create(m.Packs, p.x.Rank); err != nil {
			return err
		}
		defer p.w.close()
	}
	home := s.Base()
	for _, l := range s.Live() {
		if err := m.readLive(ctx, l, home); err != nil {
			return err
		}
	}
	files, err := s.Finish()
	if err != nil {
		return err
	}
	for _, r := range m.Ranks {
		p := m.ranks[r]
		p.x.Home = home
		if m.File != nil {
			p.x.Epoch, p.x.Journal = s.Epoch(r)
		}
		for _, name := range m.Own(r) {
			if err := m.addOwn(ctx, p, name); err != nil {
				return err
			}
		}
		if err := m.addFiles(ctx, p, files); err != nil {
			return err
		}
		if err := p.finish(m.Packs); err != nil {
			return err
		}
	}
	return nil
}

// home returns the directory that the program was started in, without symbolic
// links if it exists: so the names of files begin.
func (m *maker) home() string {
	if real, err := filepath.EvalSymlinks(m.Home); err == nil && m.Home != "" {
		return real
	}
	return m.Home
}

// inPack returns the name of a file in a pack.
func inPack(path, home string) string {
	if rest, ok := strings.CutPrefix(path, home); ok && home != "" && (rest == "" || rest[0] == '/') {
		return homePrefix + strings.TrimPrefix(rest, "/")
	}
	return path
}

// readLive stores a file as it is now, for all ranks that have it.
func (m *maker) readLive(ctx context.Context, l *journal.Live, home string) error {
	f, err := l.Open()
	if err != nil { // the snapshot says if that matters
		l.Err = err
		return nil
	}
	if !l.IsOpen() {
		defer f.Close()
	}
	var in []*reuse
	for _, r := range l.Ranks {
		p := m.ranks[r]
		in = append(in, p.reuse(inPack(l.Path(), home)))
	}
	l.Size, err = storeFile(ctx, f, -1, in)
	for i, r := range l.Ranks {
		m.ranks[r].raw[l] = in[i].out
	}
	return err
}

// reuse stores the content of a file in a pack, as far as older packs do not
// have it.
type reuse struct {
	p    *rankPack
	prev []Extent // of the newest pack; all of them
	next int      // of prev
	at   int64    // where prev[next] begins in the file
	out  []Extent
}

// maxSmall is how many small extents a file may have. With more, they are
// stored again as larger ones.
const maxSmall = 64

func (p *rankPack) reuse(name string) *reuse {
	r := &reuse{p: p}
	f := p.prev[name]
	if f == nil {
		return r
	}
	small := 0
	for _, e := range f.Extents {
		if e.N < chunk/4 {
			small++
		}
	}
	if r.prev = f.Extents; small > maxSmall {
		r.prev = slices.Clone(r.prev)
		for i := range r.prev {
			if r.prev[i].N < chunk/4 {
				r.prev[i].Digest = ""
			}
		}
	}
	return r
}

// limit returns how many bytes to store at once from an offset on: an extent of
// the newest pack that may be used again, or the bytes before the next such
// extent.
func (r *reuse) limit(at int64) int64 {
	for r.next < len(r.prev) && r.at+r.prev[r.next].N <= at {
		r.at += r.prev[r.next].N
		r.next++
	}
	pos := r.at
	for i := r.next; i < len(r.prev) && pos < at+chunk; i++ {
		e := &r.prev[i]
		if r.usable(e) {
			if pos == at {
				return e.N
			}
			if pos > at {
				return pos - at
			}
		}
		pos += e.N
	}
	return chunk
}

func (r *reuse) usable(e *Extent) bool {
	return e.Pack != zeros && e.Digest != "" && e.N <= chunk && r.p.bases[e.Pack] != zeros
}

// add stores bytes at an offset of the file.
func (r *reuse) add(at int64, text []byte, digest string, zero bool) error {
	n := int64(len(text))
	switch {
	case zero:
		r.out = append(r.out, Extent{Pack: zeros, N: n})
		return nil
	case r.next < len(r.prev) && r.at == at && r.prev[r.next].N == n && r.usable(&r.prev[r.next]) && r.prev[r.next].Digest == digest:
		e := r.prev[r.next]
		e.Pack = r.p.bases[e.Pack]
		r.out = append(r.out, e)
		return nil
	}
	off, err := r.p.w.write(text)
	r.out = append(r.out, Extent{Off: off, N: n, Digest: digest})
	return err
}

var noBytes = make([]byte, chunk)

// storeFile stores a file in packs, up to a size; -1: all of it. It returns how
// many bytes it has read.
func storeFile(ctx context.Context, f io.ReaderAt, size int64, in []*reuse) (int64, error) {
	buf := make([]byte, chunk)
	for at := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return at, err
		}
		n := int64(chunk)
		for _, r := range in {
			n = min(n, r.limit(at))
		}
		if size >= 0 {
			n = min(n, size-at)
		}
		if n == 0 {
			return at, nil
		}
		got, err := f.ReadAt(buf[:n], at)
		if err != nil && err != io.EOF {
			return at, err
		}
		if got == 0 {
			return at, nil
		}
		text := buf[:got]
		zero := bytes.Equal(text, noBytes[:got])
		digest := digestOf(text)
		for _, r := range in {
			if err := r.add(at, text, digest, zero); err != nil {
				return at, err
			}
		}
		at += int64(got)
	}
}

func digestOf(text []byte) string {
	var d tier.Digester
	d.Write(text)
	return d.Digest().String()
}

// addOwn adds a rank's own file, as it is.
func (m *maker) addOwn(ctx context.Context, p *rankPack, name string) error {
	f, err := os.Open(filepath.Join(m.Dir, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	size := int64(-1)
	if name == m.Stdout(p.x.Rank) {
		size = p.stdout
	}
	r := p.reuse(runPrefix + name)
	n, err := storeFile(ctx, f, size, []*reuse{r})
	if err == nil && n < size {
		err = fmt.Errorf("%s has %d bytes, and had %d at the checkpoint", f.Name(), n, size)
	}
	p.x.Files = append(p.x.Files, File{Path: runPrefix + name, Kind: kindFile, Mode: uint32(st.Mode().Perm()), Time: st.ModTime().UnixNano(), Size: n, Extents: r.out})
	return err
}

// addFiles adds the program's files that a rank has.
func (m *maker) addFiles(ctx context.Context, p *rankPack, files []journal.SavedFile) error {
	numbers := make(map[int]int)
	for i := range files {
		s := &files[i]
		if !slices.Contains(s.Ranks, p.x.Rank) || s.Path == p.x.Home || inDir(s.Path, m.Dir) {
			continue
		}
		shared := m.All > 1 && !s.Gone && !OnLocalDisk(s.Path)
		if shared && !p.x.Journal && m.File != nil { // as in a run whose hosts share everything, it stays where it is
			continue
		}
		f := File{Path: inPack(s.Path, p.x.Home), Mode: uint32(s.Mode.Perm())}
		switch {
		case s.Err != nil:
			f.Kind, f.Why = kindAbsent, "it cannot be read: "+s.Err.Error()
		case shared && !s.Mode.IsDir():
			f.Kind, f.Why = kindAbsent, "it is on a file system that hosts share, and other ranks may change it"
		case s.Gone:
			f.Kind = kindGone
		case s.Mode.IsDir():
			f.Kind = kindDir
		case s.Mode&fs.ModeSymlink != 0:
			f.Kind, f.To, f.Mode = kindLink, s.To, 0
		default:
			f.Kind, f.Size, f.Time = kindFile, s.Size, s.Time.UnixNano()
			if f.Link = numbers[s.File]; f.Link == 0 {
				numbers[s.File] = len(p.x.Files) + 1
				var err error
				if f.Extents, err = p.extents(ctx, s.Pieces); err != nil {
					return err
				}
			}
		}
		p.x.Files = append(p.x.Files, f)
	}
	return nil
}

func inDir(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/')
}

// extents returns where the pieces of a file are in the pack. It stores those
// that are kept files of the journal.
func (p *rankPack) extents(ctx context.Context, pieces []journal.Piece) (out []Extent, err error) {
	for _, piece := range pieces {
		switch {
		case piece.Live != nil:
			out = append(out, slice(p.raw[piece.Live], piece.Off, piece.N)...)
		case piece.Kept != "":
			f, err := os.Open(piece.Kept)
			if errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("%w: %w", journal.ErrChanged, err)
			}
			if err != nil {
				return nil, err
			}
			r := &reuse{p: p}
			n, err := storeFile(ctx, io.NewSectionReader(f, piece.Off, piece.N), piece.N, []*reuse{r})
			f.Close()
			if err == nil && n < piece.N {
				err = damaged("%s is too short", piece.Kept)
			}
			if err != nil {
				return nil, err
			}
			out = append(out, r.out...)
		default:
			out = append(out, Extent{Pack: zeros, N: piece.N})
		}
	}
	return out, nil
}

// slice returns a range of a list of extents.
func slice(list []Extent, off, n int64) (out []Extent) {
	for _, e := range list {
		if n == 0 {
			break
		}
		if off >= e.N {
			off -= e.N
			continue
		}
		k := min(e.N-off, n)
		if k < e.N {
			e.Digest = ""
		}
		if e.Pack != zeros {
			e.Off += off
		}
		e.N = k
		out = append(out, e)
		off, n = 0, n-k
	}
	return out
}

// writer writes a pack.
type writer struct {
	f    *os.File
	at   int64
	d    tier.Digester
	done bool
}

// create begins a pack. A leftover of a crash is replaced.
func create(dir string, rank int) (*writer, error) {
	name := filepath.Join(dir, fmt.Sprintf("rank-%04d.tmp", rank))
	step()
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	w := &writer{f: f}
	_, err = w.write([]byte(magic))
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *writer) write(text []byte) (off int64, err error) {
	off = w.at
	step()
	if _, err = w.f.Write(text); err == nil {
		w.d.Write(text)
		w.at += int64(len(text))
	}
	return off, err
}

// close removes a pack that is not finished.
func (w *writer) close() {
	if !w.done {
		w.done = true
		w.f.Close()
		os.Remove(w.f.Name())
	}
}

// finish writes the index and gives the pack its name.
func (p *rankPack) finish(dir string) error {
	p.dropUnused()
	text, err := store.EncodeRecord(&p.x)
	if err != nil {
		return err
	}
	end := binary.LittleEndian.AppendUint64(nil, uint64(p.w.at))
	end = binary.LittleEndian.AppendUint64(end, uint64(len(text)))
	for _, b := range [][]byte{text, append(end, magic...)} {
		if _, err := p.w.write(b); err != nil {
			return err
		}
	}
	step()
	if err := p.w.f.Sync(); err != nil {
		return err
	}
	name := Name(p.x.Rank, p.x.Index, p.w.d.Digest())
	at := filepath.Join(dir, name)
	step()
	if err := errors.Join(p.w.f.Close(), os.Rename(p.w.f.Name(), at)); err != nil {
		return err
	}
	p.w.done = true
	step()
	if err := vfs.OS().SyncDir(dir); err != nil {
		return err
	}
	x := p.x
	p.made = &Pack{&x, []Object{{name, at, p.w.at}}}
	for _, b := range p.x.Bases {
		p.made.Objects = append(p.made.Objects, Object{b.Name, filepath.Join(dir, b.Name), b.Size})
	}
	return nil
}

// dropUnused removes bases that no extent needs.
func (p *rankPack) dropUnused() {
	used := make([]int, len(p.x.Bases)+1)
	each := func(f func(e *Extent)) {
		for i := range p.x.Files {
			for k := range p.x.Files[i].Extents {
				if e := &p.x.Files[i].Extents[k]; e.Pack > 0 {
					f(e)
				}
			}
		}
	}
	each(func(e *Extent) { used[e.Pack] = 1 })
	var bases []Base
	for i, b := range p.x.Bases {
		if used[i+1] > 0 {
			bases = append(bases, b)
			used[i+1] = len(bases)
		}
	}
	each(func(e *Extent) { e.Pack = used[e.Pack] })
	p.x.Bases = bases
}

// clean removes packs of these ranks that are not needed.
func (m *maker) clean(packs []Pack) error {
	needed := make(map[string]bool)
	for i := range packs {
		for _, o := range packs[i].Objects {
			needed[o.Name] = true
		}
	}
	entries, err := os.ReadDir(m.Packs)
	if err != nil {
		return err
	}
	for _, e := range entries {
		rank, _, _, ok := parseName(strings.TrimSuffix(e.Name(), ".tmp"))
		if ok && slices.Contains(m.Ranks, rank) && !needed[e.Name()] {
			step()
			if err := os.Remove(filepath.Join(m.Packs, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
