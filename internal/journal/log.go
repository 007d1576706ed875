package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/internal/mem"
)

// The files of a journal. store.Clear removes them together with the
// checkpoints.
const (
	journalName    = "journal.json"
	headName       = "journal.head"
	incompleteName = "journal.lost"
	namesName      = "journal.names"
	keptName       = "journal.kept"
	lockName       = "journal.lock"
)

// logFile is the log of one rank.
//
// Every line ends with a digest of itself and of all lines before it. A second
// file, the head, has the number of lines. A line is valid when the head counts
// it, and the program makes its change only after that. So readLog finds out
// whether the log was changed, lost, replaced or truncated, before anything is
// undone. It drops a line that was being written when the process was killed.
//
// Several ranks share one checkpoint directory. On a restart, one rank of each
// host undoes the logs of all ranks of that host.
type logFile struct {
	dir         string // the checkpoint directory
	rank, ranks int
	home        string // the directory that the program was started in
	base        string // relative paths are relative to this directory

	lines    []entry // all lines, until dropLines is called
	sums     []string
	count    int      // of lines
	sum      string   // the digest after the last line
	size     int64    // bytes of the lines that count
	reserved int64    // bytes that are allocated on the disk
	gen      int      // how often the file was rewritten
	undos    int      // odd while lines are undone, and larger each time
	file     *os.File // for writing; nil: not open
	head     *os.File
}

// rankName is the name of a rank's file in the checkpoint directory.
func rankName(name string, rank, ranks int) string {
	if ranks > 1 {
		ext := filepath.Ext(name)
		name = fmt.Sprintf("%s-%04d%s", name[:len(name)-len(ext)], rank, ext)
	}
	return name
}

func (l *logFile) rankFile(name string) string {
	return filepath.Join(l.dir, rankName(name, l.rank, l.ranks))
}

func (l *logFile) path() string { return l.rankFile(journalName) }

// keptPath returns the path of a kept file.
func (l *logFile) keptPath(name string) string {
	path := filepath.Join(l.rankFile(keptName), name)
	if _, err := os.Lstat(path); err != nil {
		if other, ok := l.findOverflow(name); ok {
			return other
		}
	}
	return path
}

// damagedError says that the journal is not what was written.
type damagedError struct{ path, what string }

func (d *damagedError) Error() string {
	return fmt.Sprintf("cannot restore files: %s is damaged: %s. Nothing was changed. Bring it back, or start with --fresh", d.path, d.what)
}

// Lasting marks an error that another start does not repair: see
// cairn.Run.Refuse.
func (d *damagedError) Lasting() {}

// incompleteError says that a change was not recorded.
type incompleteError string

func (l incompleteError) Error() string {
	return fmt.Sprintf("the checkpoints cannot be used: after the last one the program changed files, and could not keep their old content in %s, which was full or failed. Nothing was changed now. Start with --fresh", filepath.Dir(string(l)))
}

// Lasting marks an error that another start does not repair.
func (l incompleteError) Lasting() {}

// seed begins the digest of the first line.
func (l *logFile) seed() string {
	return fmt.Sprintf("cairn files 2, rank %d of %d", l.rank, l.ranks)
}

func digestOf(parts ...[]byte) string {
	d := mem.Digest(bytes.Join(parts, nil))
	return fmt.Sprintf("%016x", d.Lo^d.Hi)
}

// sumKey precedes the digest of a line, which is its last field.
const sumKey = `,"sum":"`

// encode returns a line and the digest after it.
func encode(e *entry, before string) (line []byte, sum string, err error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, "", err
	}
	sum = digestOf([]byte(before), text)
	return append(text[:len(text)-1], sumKey+sum+"\"}\n"...), sum, nil
}

// decode reads a line.
func decode(line []byte, before string) (e entry, sum string, ok bool) {
	n := len(line) - len(sumKey) - len("0123456789abcdef\"}\n")
	if n < 1 || !bytes.HasPrefix(line[n:], []byte(sumKey)) || line[len(line)-1] != '\n' {
		return e, "", false
	}
	text := append(bytes.Clone(line[:n]), '}')
	sum = string(line[n+len(sumKey) : len(line)-3])
	return e, sum, sum == digestOf([]byte(before), text) && json.Unmarshal(text, &e) == nil
}

// readLog reads the journal of a rank, and changes nothing. A damaged journal
// is an error.
func (j *Journal) readLog(rank int) (*logFile, error) {
	l := &logFile{dir: j.Dir, rank: rank, ranks: j.Ranks, home: j.Home, base: j.Home}
	gen, count, sum, known := l.readHead() // first: lines may be added meanwhile, see Snapshot
	text, err := os.ReadFile(l.path())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if _, lerr := os.Lstat(l.rankFile(incompleteName)); err != nil && lerr == nil {
		return nil, incompleteError(l.rankFile(incompleteName))
	}
	at := l.seed()
	bad := 0
	for line := range bytes.Lines(text) {
		e, next, ok := decode(line, at)
		if !ok {
			bad = len(l.lines) + 1
			break
		}
		if len(l.lines) == 0 {
			l.gen = e.Gen
		}
		if err := l.valid(&e, len(l.lines) == 0); err != nil {
			return nil, err
		}
		e.offset = l.size
		l.size += int64(len(line))
		l.lines, l.sums = append(l.lines, e), append(l.sums, next)
		at = next
	}
	n := len(l.lines)
	l.count, l.sum = n, at
	switch {
	case n == 0 && bad > 0 && len(text) > 0 && (known && count > 0 || !known):
		return nil, &damagedError{l.path(), "line 1 was changed"}
	case !known || l.gen > gen && n > 0:
		if tail := text[l.size:]; bad > 0 && bytes.Contains(tail[:max(0, len(tail)-1)], []byte("\n")) {
			return nil, &damagedError{l.path(), fmt.Sprintf("line %d was changed", bad)}
		}
	case l.gen < gen || n < count:
		what := fmt.Sprintf("it has %d lines, not %d", n, count)
		if bad > 0 {
			what = fmt.Sprintf("line %d was changed", bad)
		}
		if n == 0 && bad == 0 {
			what = "it is gone"
		}
		return nil, &damagedError{l.path(), what}
	case count > 0 && l.sums[count-1] != sum:
		return nil, &damagedError{l.path(), "it is not the one that was written last"}
	}
	if n > 0 {
		l.base = l.basePlace(&l.lines[0])
	}
	return l, nil
}

// valid checks the fields of a line that are not checked elsewhere.
func (l *logFile) valid(e *entry, first bool) error {
	switch e.Op {
	case opCheckpoint, opName, opSize, opData, opMode, opMove, opGrow, opPut:
		if first {
			return &damagedError{l.path(), "its first line is missing"}
		}
	case opFirst:
		if !first {
			return &damagedError{l.path(), "it begins twice"}
		}
	default:
		return fmt.Errorf("%s was written by another version of Cairn: it has a line of the unknown kind %q; start with --fresh, or move the checkpoint directory away", l.path(), e.Op)
	}
	name, ok := strings.CutPrefix(e.Path, keptPrefix)
	for _, name := range []string{e.Kept, name} {
		if _, err := strconv.ParseUint(name, 10, 64); name != "" && (ok || name == e.Kept) && err != nil {
			return &damagedError{l.path(), fmt.Sprintf("it names the kept file %q", name)}
		}
	}
	return nil
}

// readHead reads the head. A missing or damaged head is not ok.
func (l *logFile) readHead() (gen, count int, sum string, ok bool) {
	text, err := os.ReadFile(l.rankFile(headName))
	if err != nil {
		return 0, 0, "", false
	}
	var own string
	line, more, _ := strings.Cut(string(text), "\n")
	if _, err := fmt.Sscanf(line, "%d %d %s %s", &gen, &count, &sum, &own); err != nil {
		return 0, 0, "", false
	}
	fmt.Sscanf(more, "%d", &l.undos)
	return gen, count, sum, string(text) == headText(gen, count, sum, l.undos)
}

// headText is the content of the head. It never gets shorter.
func headText(gen, count int, sum string, undos int) string {
	text := fmt.Sprintf("%10d %12d %16s ", gen, count, sum)
	text += digestOf([]byte(text)) + "\n"
	if undos > 0 {
		text += fmt.Sprintf("%10d\n", undos)
	}
	return text
}

// writeHead writes how many lines count.
func (l *logFile) writeHead() (err error) {
	if l.head == nil {
		if l.head, err = os.OpenFile(l.rankFile(headName), os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
			return err
		}
	}
	sum := l.sum
	if l.count == 0 {
		sum = "-"
	}
	_, err = l.head.WriteAt([]byte(headText(l.gen, l.count, sum, l.undos)), 0)
	return err
}

// dropLines frees the lines in memory. readLog reads them again.
func (l *logFile) dropLines() { l.lines, l.sums = nil, nil }

// open opens the log for writing and reserves room for some lines.
func (l *logFile) open() (err error) {
	if l.file == nil {
		if l.count == 0 {
			l.sum = l.seed()
			if err := l.writeHead(); err != nil {
				return err
			}
		}
		if l.file, err = os.OpenFile(l.path(), os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			err = errors.Join(l.truncate(), syncDir(l.dir))
		}
		if err != nil {
			l.close()
			return err
		}
		l.reserved = max(l.reserved, l.size)
	}
	if l.reserved-l.size < reserve/2 && allocate(l.file, l.size+reserve) == nil {
		l.reserved = l.size + reserve
	}
	return nil
}

// add writes lines.
func (l *logFile) add(list ...entry) (err error) {
	if err := l.open(); err != nil {
		return err
	}
	was := *l
	var text []byte
	for i := range list {
		line, sum, err := encode(&list[i], l.sum)
		if err != nil {
			l.sum = was.sum
			return err
		}
		list[i].offset = l.size + int64(len(text))
		text, l.sum = append(text, line...), sum
		if l.lines != nil {
			l.lines, l.sums = append(l.lines, list[i]), append(l.sums, sum)
		}
	}
	step()
	// In one write: the first lines must not be missing.
	if _, err = l.file.WriteAt(text, l.size); err == nil && syncing {
		err = l.file.Sync()
	}
	if err == nil {
		l.count, l.size = l.count+len(list), l.size+int64(len(text))
		step()
		err = l.writeHead()
		step()
	}
	if err != nil {
		*l = was
		l.truncate()
	}
	return err
}

// retract removes the line that was added last: its change has failed. If the
// line stays, an undo finds nothing to do, and a snapshot may not know that.
func (l *logFile) retract(before *logFile) {
	if before.count == 0 || l.gen != before.gen { // it came with the first lines
		return
	}
	l.count, l.size, l.sum = before.count, before.size, before.sum
	if l.lines != nil {
		l.lines, l.sums = l.lines[:l.count], l.sums[:l.count]
	}
	if l.writeHead() == nil && l.truncate() == nil {
		l.reserved = l.size
		l.open() // reserves room again
	}
}

// truncate removes what follows the last valid line. It does not touch a file
// that is short enough, which would lose its reserved room.
func (l *logFile) truncate() error {
	st, err := l.file.Stat()
	if err != nil || st.Size() <= l.size {
		return err
	}
	return l.file.Truncate(l.size)
}

// cut removes the line with index from and all later ones. If the process is
// killed meanwhile, lines remain that the next undo undoes again.
func (l *logFile) cut(from int) error {
	if from >= len(l.lines) {
		return nil
	}
	l.size, l.count, l.sum = l.lines[from].offset, from, l.seed()
	if from > 0 {
		l.sum = l.sums[from-1]
	}
	l.lines, l.sums = l.lines[:from], l.sums[:from]
	step()
	if err := errors.Join(l.writeHead(), l.head.Sync()); err != nil { // before the file is truncated
		return err
	}
	step()
	return os.Truncate(l.path(), l.size)
}

// rewrite replaces all lines. The first one is of kind opFirst.
func (l *logFile) rewrite(lines []entry) error {
	next := &logFile{dir: l.dir, rank: l.rank, ranks: l.ranks, home: l.home, base: l.base, gen: l.gen + 1, undos: l.undos, lines: lines}
	lines[0].Gen = next.gen
	var text []byte
	sum := next.seed()
	for i := range lines {
		line, after, err := encode(&lines[i], sum)
		if err != nil {
			return err
		}
		lines[i].offset = int64(len(text))
		text, sum, next.sums = append(text, line...), after, append(next.sums, after)
	}
	next.count, next.sum, next.size = len(lines), sum, int64(len(text))
	tmp := l.path() + ".tmp"
	err := writeAndSync(tmp, text)
	if err == nil && l.reserved > l.size { // the new file must have reserved room, too
		next.reserved, err = reserveIn(tmp, next.size)
	}
	if err != nil {
		os.Remove(tmp)
		return err
	}
	step()
	if err := errors.Join(os.Rename(tmp, l.path()), syncDir(l.dir)); err != nil {
		return err
	}
	step()
	l.close()
	*l = *next
	return l.writeHead()
}

// renumber replaces the inodes in all lines if the program's files, or the
// journal alone, were copied. The old inodes name no file any more, and new
// files may get them. Lines about one file keep a common number. If a hard link
// to the file is kept, the number is that of the copied link: later changes are
// recorded with it.
func (l *logFile) renumber() error {
	st, err := os.Stat(l.base)
	if err != nil || len(l.lines) == 0 {
		return nil
	}
	now, was := inode(st), l.lines[0]
	copied := make(map[uint64]uint64)
	var names map[uint64]string
	for _, e := range l.lines {
		if e.Op != opName || e.Copy || e.Kept == "" || e.Ino == 0 || copied[e.Ino] != 0 {
			continue
		}
		st, err := os.Lstat(l.keptPath(e.Kept))
		if err != nil || inode(st) == e.Ino {
			continue
		}
		if names == nil {
			names = namesIn(l.base)
		}
		if now != was.Home || names[e.Ino] == "" {
			copied[e.Ino] = inode(st)
		}
	}
	if now == was.Home && len(copied) == 0 {
		return nil
	}
	const none = 1 << 63 // no file has such a number
	lines := slices.Clone(l.lines)
	lines[0].Home = now
	for i := range lines[1:] {
		if e := &lines[1+i]; copied[e.Ino] != 0 {
			e.Ino = copied[e.Ino]
		} else if e.Ino != 0 && e.Ino < none && now != was.Home {
			h := fnv.New64a()
			fmt.Fprint(h, e.Ino, was.Home)
			e.Ino = h.Sum64() | none
		}
	}
	return l.rewrite(lines)
}

// reserveIn allocates room in a file. An error says that the disk is full.
func reserveIn(name string, size int64) (room int64, err error) {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := allocate(f, size+reserve); isFull(err) {
		return 0, err
	} else if err != nil {
		return 0, nil
	}
	return size + reserve, nil
}

// writeAndSync writes a file and makes it durable.
func writeAndSync(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// remove removes the log and the kept files.
func (l *logFile) remove() error {
	l.close()
	for _, name := range []string{headName, journalName, incompleteName, namesName} {
		if err := os.Remove(l.rankFile(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	l.lines, l.sums, l.count, l.size = nil, nil, 0, 0
	l.removeOverflow()
	return os.RemoveAll(l.rankFile(keptName))
}

// close closes the files. add opens them again.
func (l *logFile) close() {
	for _, f := range []*os.File{l.file, l.head} {
		if f != nil {
			f.Close()
		}
	}
	l.file, l.head = nil, nil
}

// Paths below the directory that the program was started in are relative to it,
// as "./a", so that a run can be moved or copied with its directory. A kept
// file is "kept:17".
const keptPrefix = "kept:"

// rel returns a path as it is written in the log.
func (l *logFile) rel(path string) string {
	if name, ok := strings.CutPrefix(path, l.rankFile(keptName)+string(filepath.Separator)); ok {
		return keptPrefix + name
	}
	if l.base == "" {
		return path
	}
	if rest, ok := cutDir(path, l.base); ok {
		return "." + string(filepath.Separator) + strings.TrimPrefix(rest, string(filepath.Separator))
	}
	return path
}

// abs returns the path that the log has written.
func (l *logFile) abs(path string) string {
	if name, ok := strings.CutPrefix(path, keptPrefix); ok {
		return l.keptPath(name)
	}
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(l.base, path)
}

// basePlace returns the directory to which relative paths refer now. It is the
// old one if the checkpoint directory is where it was. If both were moved or
// copied together, it is the new place of the old one. Otherwise it is the
// directory that the program was started in.
func (l *logFile) basePlace(first *entry) string {
	base, was := first.Path, first.To
	if was == l.dir || sameDir(was, l.dir) {
		return base
	}
	rel, err := filepath.Rel(base, was)
	if err == nil && filepath.IsLocal(rel) {
		if rel == "." {
			return l.dir
		}
		if at, ok := strings.CutSuffix(l.dir, string(filepath.Separator)+rel); ok {
			return at
		}
	}
	return l.home
}

func sameDir(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// first returns the first line of a log that begins now.
func (l *logFile) first(epoch uint64) entry {
	e := entry{Op: opFirst, Epoch: epoch, Path: l.base, To: l.dir, Gen: l.gen}
	if st, err := os.Stat(l.dir); err == nil {
		e.Ino = inode(st)
	}
	if st, err := os.Stat(l.base); err == nil {
		e.Home = inode(st)
	}
	return e
}

// copies returns the lines by which epochs begin.
func (l *logFile) copies() (out []entry) {
	for _, e := range l.lines {
		if e.Op == opCheckpoint {
			out = append(out, e)
		}
	}
	return out
}
