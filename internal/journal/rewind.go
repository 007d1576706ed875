package journal

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// rewind undoes lines in a snapshot, as undoPlan does with files.
type rewind struct {
	*Snapshot
	p *undoPlan
}

// replay changes names as a line says that was added after they were looked at.
func (u *rewind) replay(e *record) error {
	path := e.log.abs(e.Path)
	if err := u.unread(path); err != nil {
		return err
	}
	if e.Op == opName {
		if _, ok := u.names[path]; ok {
			u.names[path] = node{kind: isOther}
		}
		return nil
	}
	to := e.log.abs(e.To)
	if err := u.unread(to); err != nil {
		return err
	}
	if !u.hasEntries(to) { // otherwise it fails
		u.move(path, to)
	}
	return nil
}

// hasEntries reports whether a name is that of a directory which is not empty.
func (u *rewind) hasEntries(dir string) bool {
	if !u.parents[dir] {
		return false
	}
	for name, n := range u.names {
		if _, ok := cutName(name, dir); ok && n.kind != isNothing {
			return true
		}
	}
	return false
}

// unread notes that a file that was not kept open may have been another one
// when it was read, because its name changes.
func (u *rewind) unread(path string) error {
	changed := fmt.Errorf("%w: %s", ErrChanged, path)
	if n := u.names[path]; n.kind == isFile && n.obj.live != nil && n.obj.live.file == nil && n.obj.live.Err == nil {
		n.obj.live.Err = changed
	}
	if u.parents[path] && u.open >= maxOpen {
		return changed
	}
	return nil
}

// move gives a file or a directory another name.
func (u *rewind) move(from, to string) {
	n, known := u.names[from]
	_, other := u.names[to]
	if known || other {
		u.names[to] = node{kind: isForeign}
		if known {
			u.names[to], u.names[from] = n, node{}
		}
		for _, r := range u.owners[from] {
			u.own(r, to)
		}
	}
	if !u.parents[from] {
		return
	}
	for name := range u.names {
		if rest, ok := cutName(name, from); ok {
			u.names[to+rest] = u.names[name]
			for _, r := range u.owners[name] {
				u.own(r, to+rest)
			}
			for dir := filepath.Dir(to + rest); !u.parents[dir]; dir = filepath.Dir(dir) {
				u.parents[dir] = true
			}
			u.names[name] = node{}
		}
	}
}

// undo undoes a line.
func (u *rewind) undo(i int) error {
	e := &u.p.all[i]
	path := e.log.abs(e.Path)
	switch e.Op {
	case opMove:
		return u.moveBack(path, e.log.abs(e.To))
	case opName:
		return u.nameBack(i, path)
	case opMode:
		n, ok := u.names[path]
		switch {
		case !ok:
		case n.kind == isFile:
			n.obj.mode = fs.FileMode(e.Mode)
		case n.kind == isDir:
			n.mode = fs.FileMode(e.Mode)
			u.names[path] = n
		}
		return nil
	}
	obj, err := u.find(i, path)
	if err != nil || obj == nil {
		return err
	}
	r := obj.start()
	switch e.Op {
	case opSize:
		r.truncate(e.Size)
	case opData:
		p, err := keptPiece(e)
		if err != nil {
			return err
		}
		r.write(e.Off, p)
	case opGrow:
		return u.shrink(i, r)
	case opPut:
		p, err := keptPiece(e)
		if err != nil {
			return err
		}
		r.write(e.Off, p)
		r.truncate(e.Off + e.Size)
	}
	return nil
}

// moveBack undoes a rename, unless the old name exists.
func (u *rewind) moveBack(path, to string) error {
	n, known := u.names[path]
	if known && n.kind != isNothing {
		return nil
	}
	m, other := u.names[to]
	if known && (!other || m.kind == isNothing) {
		return fmt.Errorf("%w: %s was renamed to %s, and both are not there", ErrChanged, path, to)
	}
	u.move(to, path)
	return nil
}

// nameBack makes a name refer to what had it.
func (u *rewind) nameBack(i int, path string) error {
	e := &u.p.all[i]
	n, ok := u.names[path]
	if !ok {
		return nil
	}
	switch e.Was {
	case "":
		if n.kind != isFile || !u.p.writtenByOthers(i, n.obj.ino) {
			u.names[path] = node{}
		}
	case "dir":
		u.names[path] = node{kind: isDir, mode: fs.FileMode(e.Mode)}
	case "link":
		u.names[path] = node{kind: isLink, to: e.To}
	default:
		obj, err := u.keptObject(e)
		if err != nil {
			return err
		}
		if obj == nil {
			u.names[path] = node{kind: isOther}
			return nil
		}
		obj.mode = fs.FileMode(e.Mode)
		u.names[path] = node{kind: isFile, obj: obj}
	}
	return nil
}

// keptObject returns the file that is kept for a line; nil: it is not known.
func (u *rewind) keptObject(e *record) (*object, error) {
	name := e.log.keptPath(e.Kept)
	st, err := os.Lstat(name)
	if missing(err) {
		return nil, fmt.Errorf("%w: %w", ErrChanged, err)
	}
	if err != nil {
		return nil, err
	}
	if !e.Copy {
		return u.objects[fileKey{device(st), inode(st)}], nil
	}
	f, err := openNoFollow(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if sum, err := hashKept(f, true); err != nil || sum != e.Hash {
		return nil, keptDamaged(e, name, err)
	}
	obj := &object{mode: fs.FileMode(e.Mode), time: time.Unix(0, e.Time), inited: true}
	obj.rope.pieces = []Piece{{Kept: name, N: st.Size()}}
	return obj, nil
}

func keptDamaged(e *record, name string, err error) error {
	if err != nil && err != io.ErrUnexpectedEOF {
		return err
	}
	return &damagedError{name, fmt.Sprintf("it is not the old content of %s", e.log.abs(e.Path))}
}

// keptPiece returns the bytes that a line keeps, and checks them.
func keptPiece(e *record) (Piece, error) {
	name := e.log.keptPath(e.Kept)
	f, err := openNoFollow(name)
	if missing(err) {
		err = fmt.Errorf("%w: %w", ErrChanged, err)
	}
	if err != nil {
		return Piece{}, err
	}
	defer f.Close()
	if sum, err := hashRange(f, e.At, e.Size); err != nil || sum != e.Hash {
		return Piece{}, keptDamaged(e, name, err)
	}
	return Piece{Kept: name, Off: e.At, N: e.Size}, nil
}

// find returns the file that a line is about; nil: it does not belong to the
// snapshot.
func (u *rewind) find(i int, path string) (*object, error) {
	e := &u.p.all[i]
	n := u.names[path]
	if filepath.Dir(path) == e.log.rankFile(keptName) { // it has lost its name
		if st, err := os.Lstat(path); err == nil {
			if obj := u.objects[fileKey{device(st), inode(st)}]; obj != nil {
				return obj, nil
			}
		}
	}
	if n.kind == isFile && (e.Ino == 0 || n.obj.ino == 0 || n.obj.ino == e.Ino) {
		return n.obj, nil
	}
	list := u.inos[e.Ino]
	if len(list) > 1 {
		st, err := os.Stat(filepath.Dir(path))
		list = slices.DeleteFunc(slices.Clone(list), func(o *object) bool { return err != nil || o.live.key.dev != device(st) })
	}
	switch {
	case len(list) == 1:
		return list[0], nil
	case len(list) > 1 || n.kind == isFile:
		return nil, fmt.Errorf("%w: %s is another file", ErrChanged, path)
	}
	return nil, nil
}

// start returns the content of a file, at first what was read of it.
func (o *object) start() *rope {
	if !o.inited {
		o.inited = true
		if o.live.Size > 0 {
			o.rope.pieces = []Piece{{Live: o.live, N: o.live.Size}}
		}
	}
	return &o.rope
}

// shrink undoes the growth of a file, as undoPlan.shrink does.
func (u *rewind) shrink(i int, r *rope) error {
	e := &u.p.all[i]
	size := r.size()
	stay, end := u.p.laterChanges(i)
	if end < 0 || end > size {
		end = size
	}
	if end <= e.Off || size <= e.Off { // killed before the write
		return nil
	}
	if len(stay) == 0 {
		r.truncate(e.Off)
		return nil
	}
	if e.Append {
		r.remove(e.Off, end)
		return nil
	}
	last := e.Off
	c := content{}
	for _, s := range stay {
		last = max(last, min(s.hi, size))
		c.add(s)
	}
	for _, g := range c.gaps(max(e.Off, e.At), min(end, last)) {
		r.write(g.lo, Piece{N: g.hi - g.lo})
	}
	if end == size {
		r.truncate(last)
	}
	return nil
}

// Piece is a range of bytes: of a file that was read, of a kept file, or zeros.
type Piece struct {
	Live *Live
	Kept string // path
	Off  int64
	N    int64
}

// rope is the content of a file, in pieces.
type rope struct {
	pieces []Piece
	todo   []write // not in pieces yet
}

type write struct {
	off int64
	p   Piece
}

func (r *rope) size() (n int64) {
	r.flush()
	for _, p := range r.pieces {
		n += p.N
	}
	return n
}

// cut divides the pieces at an offset.
func cut(pieces []Piece, at int64) (before, after []Piece) {
	for i, p := range pieces {
		if at < p.N {
			if at == 0 {
				return pieces[:i:i], pieces[i:]
			}
			head, tail := p, p
			head.N, tail.Off, tail.N = at, p.Off+at, p.N-at
			return append(slices.Clone(pieces[:i]), head), append([]Piece{tail}, pieces[i+1:]...)
		}
		at -= p.N
	}
	if at > 0 { // zeros fill the gap
		return append(slices.Clone(pieces), Piece{N: at}), nil
	}
	return pieces, nil
}

func (r *rope) truncate(size int64) {
	r.flush()
	r.pieces, _ = cut(r.pieces, size)
}

// remove removes a range.
func (r *rope) remove(lo, hi int64) {
	r.flush()
	_, after := cut(r.pieces, hi)
	before, _ := cut(r.pieces, lo)
	r.pieces = slices.Concat(before, after)
}

// write overwrites a range.
func (r *rope) write(off int64, p Piece) {
	if p.N > 0 {
		r.todo = append(r.todo, write{off, p})
	}
}

// flush puts writes into the pieces. There may be very many, and most do not
// overlap.
func (r *rope) flush() {
	todo := r.todo
	r.todo = nil
	sorted := slices.SortedStableFunc(slices.Values(todo), func(a, b write) int { return int(min(max(a.off-b.off, -1), 1)) })
	for i := 1; i < len(sorted); i++ {
		if sorted[i-1].off+sorted[i-1].p.N > sorted[i].off {
			for _, w := range todo {
				r.put([]write{w})
			}
			return
		}
	}
	if len(sorted) > 0 {
		r.put(sorted)
	}
}

// put overwrites ranges that are in order and do not overlap.
func (r *rope) put(list []write) {
	var out []Piece
	var rest Piece // of the piece that is divided
	next, at := 0, int64(0)
	take := func(to int64, keep bool) {
		for n := to - at; n > 0; {
			if rest.N == 0 && next < len(r.pieces) {
				rest = r.pieces[next]
				next++
			}
			p := rest
			if p.N == 0 { // after the end: zeros fill the gap
				p = Piece{N: n}
			}
			p.N = min(p.N, n)
			rest.Off, rest.N = rest.Off+p.N, max(rest.N-p.N, 0)
			if n -= p.N; keep {
				out = append(out, p)
			}
		}
		at = to
	}
	for _, w := range list {
		take(w.off, true)
		take(w.off+w.p.N, false)
		out = append(out, w.p)
	}
	if rest.N > 0 {
		out = append(out, rest)
	}
	r.pieces = append(out, r.pieces[next:]...)
}
