package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// A snapshot is taken while the program changes its files:
//
//	read the logs                        ┐ no line about names was added,
//	look what the names lead to          │ otherwise again
//	read the logs again                  ┘
//	read the files, which may change
//	read the logs once more, and undo all changes since the checkpoint, in memory
//
// Every change is in the log before it is made. So each byte that was changed
// after the checkpoint, and before it was read, has a line with its old value.
// The undo turns what was read, in part before a change and in part after it,
// into what the files were at the checkpoint. If nothing was changed in a byte,
// or the byte was read before that, the undo writes what is there already.
//
// Names that change while files are read have lines, too. The snapshot replays
// them forward before it undoes them. A name may change without a line only if
// it has one in the same segment; then what has the name now does not matter.

// SnapshotOptions say what a snapshot is of.
type SnapshotOptions struct {
	Dir   string // the checkpoint directory
	Home  string // the directory that the program was started in, if no journal says so
	Ranks []int  // of this host: all that may change the same files
	All   int    // ranks of the run
	Index uint64 // the checkpoint
	// End says that the snapshot is of the files as they are: the program has
	// ended.
	End bool
	// More are names that belong to a rank although no journal may have them.
	More map[int][]string
	// Sizes are the lengths of open files in the checkpoint. Files do not
	// become longer than that: a program that appends has no lines for it.
	Sizes map[string]int64
}

// ErrChanged means that files changed in a way that a snapshot cannot follow: a
// start of the program undid changes, or names changed all the time. It may be
// taken again.
var ErrChanged = errors.New("files changed while they were read")

// ErrPassed means that the journal does not reach back to the checkpoint any
// more: newer ones have replaced it.
var ErrPassed = errors.New("the checkpoint is too old")

// Snapshot is what files were at a checkpoint. Read has to be called for all of
// Live before Finish.
type Snapshot struct {
	o       SnapshotOptions
	logs    []*logFile
	pending []bool // by log: its last line is a rename that was not made yet
	names   map[string]node
	owners  map[string][]int // ranks, by name
	objects map[fileKey]*object
	parents map[string]bool // directories of names
	inos    map[uint64][]*object
	open    int
}

// Live is a file that is read for a snapshot.
type Live struct {
	// Size is how many bytes were read, from the beginning on. The caller sets
	// it.
	Size int64
	// Err is why the file cannot be read. The caller may set it.
	Err error
	// Ranks are those in whose journals it is.
	Ranks []int

	paths []string // its names, and perhaps that of a kept file
	file  *os.File // nil: it is opened when it is read
	key   fileKey
}

type fileKey struct{ dev, ino uint64 }

// object is a regular file in the snapshot.
type object struct {
	live   *Live // nil: it is made of pieces only
	ino    uint64
	mode   fs.FileMode
	time   time.Time
	rope   rope
	inited bool // rope is what was read
}

// node is what a name leads to.
type node struct {
	kind kind
	obj  *object
	mode fs.FileMode // of a directory
	to   string      // of a symbolic link
}

type kind byte

const (
	isNothing kind = iota
	isFile
	isDir
	isLink
	isDenied  // something that cannot be looked at
	isOther   // something that was made after the checkpoint
	isForeign // something that the program has only moved, and after the checkpoint
)

// maxOpen is how many files a snapshot keeps open until they are read. Of the
// others it knows only the number of the inode.
const maxOpen = 256

// tries is how often a snapshot looks at names again that have changed.
const tries = 3

// NewSnapshot looks what the names of the program's files lead to.
func NewSnapshot(o SnapshotOptions) (*Snapshot, error) {
	for range tries {
		s, err := newSnapshot(o)
		if !errors.Is(err, ErrChanged) {
			return s, err
		}
	}
	return nil, fmt.Errorf("%w: names changed %d times", ErrChanged, tries)
}

func newSnapshot(o SnapshotOptions) (*Snapshot, error) {
	s := &Snapshot{o: o, names: make(map[string]node), owners: make(map[string][]int), objects: make(map[fileKey]*object), inos: make(map[uint64][]*object)}
	var err error
	if s.logs, err = s.readLogs(); err != nil {
		return nil, err
	}
	s.pending = s.pendingMoves()
	if err := s.pin(); err != nil {
		s.Close()
		return nil, err
	}
	if !slices.Equal(s.pending, s.pendingMoves()) {
		s.Close()
		return nil, ErrChanged
	}
	step()
	now, err := s.readLogs()
	if err == nil {
		err = s.extends(now)
	}
	for i := range s.logs {
		if err == nil && slices.ContainsFunc(s.added(i, now[i]), isNameChange) {
			err = ErrChanged
		}
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	s.parents = make(map[string]bool)
	for name := range s.names {
		for dir := filepath.Dir(name); !s.parents[dir]; dir = filepath.Dir(dir) {
			s.parents[dir] = true
		}
	}
	return s, nil
}

// pendingMoves returns for each log whether its last line is a rename that has
// not been made yet. All others have been made: the line of one that fails is
// taken back.
func (s *Snapshot) pendingMoves() (out []bool) {
	for _, l := range s.logs {
		pending := false
		if n := len(l.lines); n > 0 && l.lines[n-1].Op == opMove {
			_, err := os.Lstat(l.abs(l.lines[n-1].Path))
			pending = err == nil
		}
		out = append(out, pending)
	}
	return out
}

func isNameChange(e entry) bool { return e.Op == opName || e.Op == opMove }

// maxReads is how often a log is read that seems to be damaged: the program may
// have been shortening it.
const maxReads = 5

func (s *Snapshot) readLogs() (logs []*logFile, err error) {
	for _, r := range s.o.Ranks {
		var l *logFile
		for range maxReads {
			l, err = (&Journal{Config: Config{Dir: s.o.Dir, Home: s.o.Home, Rank: r, Ranks: s.o.All}}).readLog(r)
			var bad *damagedError
			if !errors.As(err, &bad) {
				break
			}
		}
		if err != nil {
			return nil, err
		}
		indices, err := store.Open(vfs.OS(), s.o.Dir, r).Committed()
		if err != nil {
			return nil, err
		}
		if len(l.lines) > 0 && !s.o.End && !slices.Contains(indices, s.o.Index) {
			return nil, fmt.Errorf("%w: rank %d has removed its checkpoint", ErrPassed, r)
		}
		logs = append(logs, l)
	}
	return logs, nil
}

// plan returns what has to be undone.
func (s *Snapshot) plan(logs []*logFile) (*undoPlan, error) {
	if s.o.End {
		return new(undoPlan), nil
	}
	for _, l := range logs {
		if len(l.lines) > 0 && l.epochOf(s.o.Index) < l.lines[0].Epoch {
			return nil, fmt.Errorf("%s: %w", l.path(), ErrPassed)
		}
	}
	return planUndo(s.o.Index, logs...)
}

// extends returns an error unless logs have the lines of s.logs, or those of
// them that are still needed, and nothing was undone meanwhile.
func (s *Snapshot) extends(logs []*logFile) error {
	for i, was := range s.logs {
		now := logs[i]
		if was.undos%2 == 1 || was.undos != now.undos || now.gen < was.gen {
			return ErrChanged
		}
		same := len(now.lines) >= len(was.lines) && (len(was.lines) == 0 || now.sums[len(was.lines)-1] == was.sums[len(was.lines)-1])
		if !same && !s.shortened(was, now) {
			return ErrChanged
		}
	}
	return nil
}

// shortened reports whether a log is another one without its oldest epochs, and
// perhaps with more lines.
func (s *Snapshot) shortened(was, now *logFile) bool {
	if len(was.lines) == 0 || len(now.lines) == 0 || now.gen == was.gen || now.lines[0].Incomplete {
		return false
	}
	rest := kept(was.lines, now.lines[0].Epoch)
	if len(now.lines) < 1+len(rest) {
		return false
	}
	for i, e := range rest {
		e.offset = now.lines[1+i].offset
		if e != now.lines[1+i] {
			return false
		}
	}
	return true
}

// kept returns the lines, without the first one, that a log has when it begins
// with an epoch.
func kept(lines []entry, epoch uint64) (out []entry) {
	for _, e := range lines[1:] {
		if e.Epoch >= epoch {
			out = append(out, e)
		}
	}
	return out
}

// added returns the lines of log i that were added since s.logs were read.
func (s *Snapshot) added(i int, now *logFile) []entry { return now.lines[s.known(i, now):] }

// known returns how many lines of a log s.logs have.
func (s *Snapshot) known(i int, now *logFile) int {
	was := s.logs[i]
	if len(was.lines) == 0 || now.gen == was.gen {
		return len(was.lines)
	}
	return 1 + len(kept(was.lines, now.lines[0].Epoch))
}

// pin looks what all names lead to.
func (s *Snapshot) pin() error {
	p, err := s.plan(s.logs)
	if err != nil {
		return err
	}
	for i, l := range s.logs {
		r := s.o.Ranks[i]
		list, _, _, err := l.readNames()
		if err != nil {
			return err
		}
		names := make(map[named]bool)
		l.namesOf(l.lines, names)
		for _, n := range list {
			names[n] = true
		}
		for _, n := range slices.SortedFunc(maps.Keys(names), compareNames) {
			path := l.abs(n.path)
			if err := s.pinName(r, path); err != nil {
				return err
			}
			if n.tree {
				if err := s.pinTree(r, path); err != nil {
					return err
				}
			}
		}
		for _, path := range s.o.More[r] {
			if err := s.pinName(r, path); err != nil {
				return err
			}
		}
	}
	for i := range p.all {
		if e := &p.all[i]; e.undo && e.Op == opName && e.Kept != "" && !e.Copy {
			obj, err := s.pinFile(e.log.rank, e.log.keptPath(e.Kept))
			if err != nil && !missing(err) {
				return err
			}
			if err == nil && e.Ino != 0 && obj.ino != e.Ino { // the directory was copied, and a start has not undone the line yet
				return fmt.Errorf("%w: %s is not a link any more", ErrChanged, e.log.keptPath(e.Kept))
			}
		}
	}
	return nil
}

// maxNames bounds the names of a snapshot.
const maxNames = 1 << 22

// pinTree looks at everything in a directory.
func (s *Snapshot) pinTree(rank int, dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if missing(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return s.pinName(rank, path)
	})
}

func (s *Snapshot) own(rank int, path string) {
	if !slices.Contains(s.owners[path], rank) {
		s.owners[path] = append(s.owners[path], rank)
	}
}

// pinName looks what a name leads to.
func (s *Snapshot) pinName(rank int, path string) error {
	if path == "" {
		return nil
	}
	s.own(rank, path)
	if n, ok := s.names[path]; ok {
		if n.kind == isFile {
			n.obj.live.own(rank)
		}
		return nil
	}
	if len(s.names) >= maxNames {
		return fmt.Errorf("the program has changed more than %d files; more do not fit into a snapshot", maxNames)
	}
	step()
	st, err := os.Lstat(path)
	n := node{}
	switch {
	case missing(err):
	case errors.Is(err, fs.ErrPermission):
		n.kind = isDenied
	case err != nil:
		return err
	case st.IsDir():
		n = node{kind: isDir, mode: st.Mode().Perm()}
	case st.Mode()&fs.ModeSymlink != 0:
		n.kind = isLink
		if n.to, err = os.Readlink(path); err != nil {
			return fmt.Errorf("%w: %w", ErrChanged, err)
		}
	case st.Mode().IsRegular():
		n.kind = isFile
		if n.obj, err = s.pinFile(rank, path); missing(err) {
			return fmt.Errorf("%w: %w", ErrChanged, err)
		}
		if err != nil {
			return err
		}
	default:
		n.kind = isOther
	}
	s.names[path] = n
	return nil
}

// pinFile looks at a regular file.
func (s *Snapshot) pinFile(rank int, path string) (*object, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s", ErrChanged, path)
	}
	key := fileKey{device(st), inode(st)}
	obj := s.objects[key]
	if obj == nil {
		l := &Live{key: key}
		if s.open < maxOpen {
			f, err := openKey(path, key)
			switch {
			case errors.Is(err, fs.ErrPermission):
				l.Err = err
			case err != nil:
				return nil, err
			default:
				l.file = f
				s.open++
			}
		}
		obj = &object{live: l, ino: key.ino, mode: st.Mode().Perm(), time: st.ModTime()}
		s.objects[key] = obj
		s.inos[key.ino] = append(s.inos[key.ino], obj)
	}
	obj.live.paths = append(obj.live.paths, path)
	obj.live.own(rank)
	return obj, nil
}

func (l *Live) own(rank int) {
	if !slices.Contains(l.Ranks, rank) {
		l.Ranks = append(l.Ranks, rank)
	}
}

// openKey opens a file if it is the one with a number.
func openKey(path string, key fileKey) (*os.File, error) {
	f, err := openNoFollow(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && (!st.Mode().IsRegular() || key != fileKey{device(st), inode(st)}) {
		err = fmt.Errorf("%w: %s", ErrChanged, path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Live returns the files to read, in the order of their names.
func (s *Snapshot) Live() (out []*Live) {
	for _, obj := range s.objects {
		slices.Sort(obj.live.paths)
		out = append(out, obj.live)
	}
	slices.SortFunc(out, func(a, b *Live) int { return cmp.Compare(a.Path(), b.Path()) })
	return out
}

// Path returns a name of the file.
func (l *Live) Path() string { return l.paths[0] }

// IsOpen reports whether the file is kept open until the snapshot is closed.
// Otherwise the caller closes it.
func (l *Live) IsOpen() bool { return l.file != nil }

// Open opens the file for reading.
func (l *Live) Open() (*os.File, error) {
	if l.file != nil || l.Err != nil {
		return l.file, l.Err
	}
	f, err := openKey(l.Path(), l.key)
	if missing(err) {
		err = fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return f, err
}

// Close closes the files that are still open.
func (s *Snapshot) Close() {
	for _, obj := range s.objects {
		if obj.live.file != nil {
			obj.live.file.Close()
		}
	}
}

// SavedFile is a name in a snapshot.
type SavedFile struct {
	Path  string // absolute, without links
	Ranks []int  // that have it in their journals
	Mode  fs.FileMode
	Time  time.Time // of the last modification of a file
	To    string    // of a symbolic link
	// Gone says that there was nothing of that name.
	Gone bool
	// Pieces are the content of a file. File is the same for names that are
	// hard links to one file, from 1 on.
	Pieces []Piece
	File   int
	Size   int64
	Err    error // why it could not be read
}

// Base returns the directory that the program was started in.
func (s *Snapshot) Base() string {
	for _, l := range s.logs {
		if len(l.lines) > 0 {
			return l.base
		}
	}
	return s.o.Home
}

// Epoch returns the epoch that began with the checkpoint, and whether the rank
// has a journal.
func (s *Snapshot) Epoch(rank int) (epoch uint64, recorded bool) {
	for i, r := range s.o.Ranks {
		if l := s.logs[i]; r == rank && len(l.lines) > 0 {
			return l.epochOf(s.o.Index), true
		}
	}
	return 0, false
}

// Finish returns the files as they were at the checkpoint.
func (s *Snapshot) Finish() ([]SavedFile, error) {
	step()
	now, err := s.readLogs()
	if err != nil {
		return nil, err
	}
	if err := s.extends(now); err != nil {
		return nil, err
	}
	p, err := s.plan(now)
	if err != nil {
		return nil, err
	}
	u := &rewind{Snapshot: s, p: p}
	for i := range p.all {
		e := &p.all[i]
		r := slices.Index(now, e.log)
		known := s.known(r, e.log)
		if isNameChange(e.entry) && (e.index >= known || e.index == known-1 && s.pending[r]) {
			if err := u.replay(e); err != nil {
				return nil, err
			}
		}
	}
	for i := len(p.all) - 1; i >= 0; i-- {
		if p.all[i].undo {
			if err := u.undo(i); err != nil {
				return nil, err
			}
		}
	}
	s.logs = now
	return u.result()
}

// result returns the names, sorted.
func (u *rewind) result() ([]SavedFile, error) {
	for path, size := range u.o.Sizes {
		if n := u.names[path]; n.kind == isFile && n.obj.start().size() > size {
			n.obj.rope.truncate(size)
		}
	}
	var out []SavedFile
	numbers := make(map[*object]int)
	for _, path := range slices.Sorted(maps.Keys(u.names)) {
		n := u.names[path]
		f := SavedFile{Path: path, Ranks: u.owners[path], Mode: n.mode, To: n.to}
		switch n.kind {
		case isNothing:
			f.Gone = true
		case isDir:
			f.Mode |= fs.ModeDir
		case isLink:
			f.Mode |= fs.ModeSymlink
		case isFile:
			if numbers[n.obj] == 0 {
				numbers[n.obj] = len(numbers) + 1
			}
			r := n.obj.start()
			r.flush()
			f.Mode, f.Time, f.File, f.Pieces, f.Size = n.obj.mode, n.obj.time, numbers[n.obj], r.pieces, r.size()
			if n.obj.live != nil {
				f.Err = n.obj.live.Err
			}
			if errors.Is(f.Err, ErrChanged) {
				return nil, f.Err
			}
		case isDenied:
			f.Err = fs.ErrPermission
		case isForeign:
			continue
		case isOther:
			if st, err := os.Lstat(path); err == nil && !st.Mode().IsRegular() && !st.IsDir() {
				continue // a pipe, a device, a socket
			}
			return nil, fmt.Errorf("%w: %s", ErrChanged, path)
		}
		out = append(out, f)
	}
	return out, nil
}

// Begin makes an empty journal of a rank whose files are as they were at a
// checkpoint: the one that a Snapshot's Epoch is of. It replaces one that is
// there. names are the files that the program has changed.
func Begin(dir, home string, rank, ranks int, epoch, index uint64, names []string) error {
	l := &logFile{dir: dir, rank: rank, ranks: ranks, home: home, base: home}
	if err := l.remove(); err != nil {
		return err
	}
	list := make(map[named]bool)
	for _, name := range names {
		list[named{l.rel(name), false}] = true
	}
	if err := l.addNames(list, nil); err != nil {
		return err
	}
	l.sum = l.seed()
	err := l.add(l.first(epoch), entry{Op: opCheckpoint, Epoch: epoch, Checkpoint: index - 1})
	if err == nil {
		err = l.head.Sync()
	}
	l.close()
	return err
}

// cutName returns what follows a directory in a path, if it is not the
// directory itself.
func cutName(path, dir string) (string, bool) {
	rest, ok := cutDir(path, dir)
	return rest, ok && rest != "" && !strings.HasSuffix(dir, string(filepath.Separator))
}
