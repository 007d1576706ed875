package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt"
)

// crash is the value of a panic that simulates a kill of the process.
type crash struct{}

// world is a directory in which a program makes random changes, takes
// checkpoints and is killed.
type world struct {
	t      *testing.T
	j      *Journal
	rnd    *rand.Rand
	root   string // the program's files
	dir    string // checkpoints
	open   []*os.File
	copies bool // they behave as if they were on different file systems
	parted bool // several names of one file may have become separate files
	left   int  // steps until a crash; negative: none
	log    []string

	sets map[uint64]*snapshot // 0: the beginning
	next uint64

	observer *observer
}

// snapshot is the content of the files when a checkpoint was taken.
type snapshot struct {
	epoch   uint64
	noted   bool
	files   map[string]string
	handles []OpenFile
	sizes   map[string]int64
	lengths map[string]int64 // by the names without links
}

// tree returns the content of a directory.
func (w *world) tree() map[string]string {
	w.t.Helper()
	all := make(map[string]string)
	first := make(map[uint64]string)
	err := filepath.WalkDir(w.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		text := st.Mode().String() + " "
		switch {
		case st.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += strconv.Quote(string(b))
			if name := first[inode(st)]; name != "" && !w.parted {
				text += " is " + name
			} else {
				first[inode(st)] = path[len(w.root):]
			}
		case st.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += to
		}
		all[path[len(w.root):]] = text
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// dies calls f and reports whether it crashed.
func (w *world) dies(f func()) (died bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
			died = true
		}
	}()
	f()
	return false
}

func (w *world) say(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

// somewhere returns a name of a file or a directory that may exist or not.
func (w *world) somewhere() string {
	name := w.root
	for range w.rnd.IntN(3) {
		name = filepath.Join(name, string(rune('p'+w.rnd.IntN(3))))
	}
	return filepath.Join(name, string(rune('a'+w.rnd.IntN(4))))
}

// text returns something to write, of up to some blocks.
func (w *world) text() []byte {
	n := w.rnd.IntN(40)
	if w.rnd.IntN(3) == 0 {
		n = w.rnd.IntN(3 * block)
	}
	b := []byte(strconv.Itoa(w.rnd.IntN(1e6)))
	return bytes.Repeat(b, n/len(b)+1)[:n]
}

// change makes a random change. Most changes may fail, because the name does
// not exist or has another kind.
func (w *world) change() {
	a, b := w.somewhere(), w.somewhere()
	what := w.rnd.IntN(17)
	w.say("%d %s %s", what, a[len(w.root):], b[len(w.root):])
	switch what {
	case 0, 1:
		w.j.WriteFile(a, w.text(), 0o644)
	case 2:
		w.j.Remove(a)
	case 3:
		w.j.RemoveAll(filepath.Dir(a + "/x")) // of one or two parts
	case 4, 5:
		w.j.Rename(a, b)
	case 6:
		if !w.copies { // if files cannot be linked, there is one file for each name
			w.j.Link(a, b)
		}
	case 7:
		w.j.Symlink(filepath.Base(b), a)
	case 8:
		w.j.Mkdir(a, 0o755)
	case 9:
		w.j.MkdirAll(a, 0o755)
	case 10:
		w.j.Chmod(a, fs.FileMode(0o600+w.rnd.IntN(8)))
	case 11:
		w.j.Truncate(a, int64(w.rnd.IntN(2*block)))
	case 12:
		w.openFile(filepath.Join(w.root, "tmp"+strconv.Itoa(w.rnd.IntN(1e9))), os.O_RDWR|os.O_CREATE|os.O_EXCL)
	case 13, 14:
		flag := []int{os.O_RDWR, os.O_WRONLY, os.O_RDWR | os.O_CREATE, os.O_RDWR | os.O_TRUNC, os.O_WRONLY | os.O_APPEND | os.O_CREATE}[w.rnd.IntN(5)]
		w.openFile(a, flag)
	default:
		if len(w.open) > 0 {
			w.write(w.open[w.rnd.IntN(len(w.open))])
		}
	}
	step()
}

// openFile opens a file as package resume does.
func (w *world) openFile(name string, flag int) {
	if st, err := os.Stat(name); err == nil && !st.Mode().IsRegular() {
		return
	}
	path, err := w.j.Opening(name, flag)
	if err != nil {
		return
	}
	f, err := os.OpenFile(name, flag, 0o644)
	if err != nil {
		return
	}
	w.j.Track(f, name, path, flag)
	w.hold(f)
}

// hold keeps a file open, and closes another one if there are too many.
func (w *world) hold(f *os.File) {
	if w.open = append(w.open, f); len(w.open) > 4 {
		i := w.rnd.IntN(len(w.open))
		w.open[i].Close()
		w.open = slices.Delete(w.open, i, i+1)
	}
}

// write changes an open file, as package os does in programs that 'cairn build'
// has made.
func (w *world) write(f *os.File) {
	text, off := w.text(), int64(w.rnd.IntN(2*block))
	switch w.rnd.IntN(4) {
	case 0:
		if w.allowed(f, 'w', 0, int64(len(text))) {
			step()
			f.Write(text)
		}
	case 1:
		if w.allowed(f, 'a', off, int64(len(text))) {
			step()
			f.WriteAt(text, off)
		}
	case 2:
		if w.allowed(f, 't', off, 0) {
			step()
			f.Truncate(off)
		}
	case 3:
		if w.allowed(f, 's', off, io.SeekStart) {
			f.Seek(off, io.SeekStart)
		}
		if w.allowed(f, 'r', 0, 0) {
			step()
			f.ReadFrom(bytes.NewReader(text))
		}
	}
}

// allowed is the hook that package os calls first.
func (w *world) allowed(f *os.File, op byte, off, n int64) bool {
	done, err := w.j.beforeWrite(f, op, off, n)
	if done != nil {
		done()
	}
	return err == nil
}

// save takes a checkpoint, which may never be committed.
func (w *world) save() {
	if w.j.Blocked() != "" {
		return
	}
	epoch, recorded, err := w.j.BeginEpoch(slices.Max(slices.Collect(maps.Keys(w.sets))))
	if err != nil {
		w.t.Fatal(err)
	}
	now := &snapshot{epoch: epoch, noted: recorded, files: w.tree(), handles: w.j.OpenFiles(), sizes: make(map[string]int64), lengths: make(map[string]int64)}
	for _, h := range now.handles {
		if st, err := h.File.Stat(); err == nil && h.Flag&(os.O_RDWR|os.O_WRONLY) != 0 {
			now.sizes[h.Name] = st.Size()
			if path, err := resolve(h.Name); err == nil {
				now.lengths[path] = st.Size()
			}
		}
	}
	w.next++
	if w.rnd.IntN(4) == 0 {
		w.say("set %d fails", w.next)
		return
	}
	for range w.rnd.IntN(3) { // it is written while the program continues
		w.change()
	}
	dir := filepath.Join(w.dir, fmt.Sprintf("ckpt-%08d", w.next))
	if err := os.Mkdir(dir, 0o777); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "rank-0000.h5"), nil, 0o666); err != nil {
		w.t.Fatal(err)
	}
	w.sets[w.next] = now
	w.say("set %d, epoch %d", w.next, epoch)
	delete(w.sets, 0) // older changes are not needed any more
	step()
	for n := range w.sets {
		if n != 0 && n+2 <= w.next && len(w.sets) > 3 {
			w.lose(n)
		}
	}
}

// moves moves the program to another host, where its checkpoints are not. A
// restart brings them.
func (w *world) moves() {
	w.say("moved")
	w.observer.paused = true
	w.rename(w.dir, w.dir+".other")
}

// rename moves checkpoints to another directory.
func (w *world) rename(from, to string) {
	if err := os.MkdirAll(to, 0o777); err != nil {
		w.t.Fatal(err)
	}
	list, _ := filepath.Glob(filepath.Join(from, "ckpt-*"))
	for _, dir := range list {
		if err := os.Rename(dir, filepath.Join(to, filepath.Base(dir))); err != nil {
			w.t.Fatal(err)
		}
	}
}

// lose removes a checkpoint.
func (w *world) lose(n uint64) {
	for _, dir := range []string{w.dir, w.dir + ".other"} {
		if err := os.RemoveAll(filepath.Join(dir, fmt.Sprintf("ckpt-%08d", n))); err != nil {
			w.t.Fatal(err)
		}
	}
	delete(w.sets, n)
}

// restart starts the program again, and compares the files.
func (w *world) restart() {
	for _, f := range w.open {
		f.Close()
	}
	w.open = nil
	w.rename(w.dir+".other", w.dir)
	w.observer.paused = false
	if len(w.sets) > 1 && w.rnd.IntN(6) == 0 { // the newest checkpoint is damaged
		n := slices.Max(slices.Collect(maps.Keys(w.sets)))
		w.say("set %d is lost", n)
		w.lose(n)
	}
	switch w.rnd.IntN(10) {
	case 0:
		w.copy(w.dir)
	case 1:
		w.copy(filepath.Dir(w.root))
	case 2, 3:
		w.damage()
	}
	durable := w.tree()
	defer swap(&syncUndone, func(paths []string) error {
		w.markDurable(durable, paths)
		return ckpt.SyncChanged(paths)
	})()
	for tries, again := 1, true; again; tries++ {
		w.left = w.rnd.IntN(60 * tries)
		again = w.dies(w.begin)
		w.say("restart, died %v", again)
	}
	if now := w.tree(); syncing && !maps.Equal(now, durable) {
		w.t.Fatalf("a power cut would take back what was undone: %s\n%q", difference(now, durable), w.log)
	}
	n := slices.Max(slices.Collect(maps.Keys(w.sets)))
	was := w.sets[n]
	if err := w.j.Restored(was.epoch, was.noted); err != nil {
		w.t.Fatalf("set %d: %v\n%q", n, err, w.log)
	}
	for name, size := range was.sizes { // by the run
		if err := os.Truncate(name, size); err != nil {
			w.t.Fatalf("set %d: %v\n%q", n, err, w.log)
		}
	}
	now := w.tree()
	for name, text := range was.files {
		if now[name] != text {
			w.t.Fatalf("set %d: %s is\n%.200s\nand was\n%.200s\n%q", n, name, now[name], text, w.log)
		}
	}
	for name := range now {
		if _, ok := was.files[name]; !ok {
			w.t.Fatalf("set %d: there is %s\n%q", n, name, w.log)
		}
	}
	var again []OpenFile
	for _, h := range was.handles {
		f, err := os.OpenFile(h.Name, h.Flag&^(os.O_TRUNC|os.O_CREATE|os.O_EXCL), 0)
		if err != nil {
			w.t.Fatalf("set %d: %v\n%q", n, err, w.log)
		}
		again = append(again, OpenFile{f, h.Name, h.Flag})
		w.open = append(w.open, f)
	}
	w.j.Reopened(again)
	was.handles = again
}

// markDurable records the contents and names of files when these files and
// their directories are made durable.
func (w *world) markDurable(durable map[string]string, paths []string) {
	now := w.tree()
	for _, path := range paths {
		name := path[len(w.root):]
		file, err := os.Stat(path)
		for other := range mergedKeys(now, durable) {
			same := other == name || strings.HasPrefix(other, name+"/")
			if st, oerr := os.Lstat(w.root + other); err == nil && oerr == nil {
				same = same || os.SameFile(file, st)
			}
			// A hard link is described by its first name, which may have gone.
			was, _ := strings.CutSuffix(durable[other], " is "+name)
			same = same || was != durable[other] && was == alone(now[other])
			if text, ok := now[other]; same && ok {
				durable[other] = text
			} else if same {
				delete(durable, other)
			}
		}
	}
}

func mergedKeys(a, b map[string]string) map[string]bool {
	all := make(map[string]bool)
	for _, m := range []map[string]string{a, b} {
		for k := range m {
			all[k] = true
		}
	}
	return all
}

// difference describes a name in which two trees differ.
func difference(a, b map[string]string) string {
	for name := range mergedKeys(a, b) {
		if a[name] != b[name] {
			return fmt.Sprintf("%s is %.100s, and on disk %.100s", name, a[name], b[name])
		}
	}
	return "nothing"
}

// copy replaces a directory by a copy of it, so that all files are different
// ones.
func (w *world) copy(dir string) {
	w.say("%s is copied", dir)
	for _, argv := range [][]string{{"cp", "-a", dir, dir + ".new"}, {"rm", "-rf", dir}, {"mv", dir + ".new", dir}} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			w.t.Fatalf("%v: %v: %s", argv, err, out)
		}
	}
}

// damage damages something that is kept, starts the program, and undoes the
// damage if the start is refused. Then nothing else may have changed.
func (w *world) damage() {
	list, _ := filepath.Glob(filepath.Join(w.dir, keptName, "*"))
	if len(list) == 0 {
		return
	}
	w.observer.paused = true
	defer func() { w.observer.paused = false }()
	a, b := list[w.rnd.IntN(len(list))], list[w.rnd.IntN(len(list))]
	texts := make(map[string][]byte)
	for _, name := range []string{a, b} {
		text, err := os.ReadFile(name)
		if err != nil {
			w.t.Fatal(err)
		}
		texts[name] = text
	}
	// A kept file may be the program's own file, which is not damaged.
	aside := func(name string) string { return filepath.Join(filepath.Dir(w.root), filepath.Base(name)) }
	write := func(name string, text []byte) {
		os.Rename(name, aside(name))
		if err := os.WriteFile(name, text, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	what := w.rnd.IntN(4)
	switch text := bytes.Clone(texts[a]); {
	case what == 0 && a != b:
		write(a, texts[b])
		write(b, text)
	case what == 1 && len(text) > 0:
		text[w.rnd.IntN(len(text))] ^= 1 << w.rnd.IntN(8)
		write(a, text)
	case what == 2 && len(text) > 0:
		write(a, text[:w.rnd.IntN(len(text))])
	default:
		os.Rename(a, aside(a))
	}
	before := w.tree()
	w.left = -1
	_, err := Open(w.config())
	w.say("damage %d of %s and %s: %v", what, filepath.Base(a), filepath.Base(b), err)
	// Without an error, it was not needed, but may be needed for an older
	// checkpoint.
	if err != nil && !maps.Equal(before, w.tree()) {
		w.t.Fatalf("something was changed before it was refused\n%q", w.log)
	}
	if err == nil && !w.parted { // the file that was replaced may have been found by that name
		w.parted = true
		for _, s := range w.sets {
			for name, text := range s.files {
				s.files[name] = alone(text)
			}
		}
	}
	for name := range texts {
		os.Rename(aside(name), name)
	}
}

// alone returns what tree says about a file, without its other names.
func alone(text string) string {
	if i := strings.LastIndex(text, "\" is /"); i >= 0 {
		return text[:i+1]
	}
	return text
}

func (w *world) config() Config {
	return Config{Dir: w.dir, Home: w.root, Ranks: 1, Warn: func(string, ...any) {}, Fatal: func(format string, args ...any) { w.t.Errorf(format, args...) }}
}

// begin does what a process does first.
func (w *world) begin() {
	j, err := Open(w.config())
	if err != nil {
		w.t.Fatalf("%v\n%q", err, w.log)
	}
	w.j = j
	w.left = -1
}

// TestJournal_KilledAtEveryStep makes random changes to files and directories,
// with checkpoints in between. It kills at every step that changes anything,
// also while changes are undone, and compares the files after a restart with
// those when the checkpoint was taken.
func TestJournal_KilledAtEveryStep(t *testing.T) {
	if syscall.Getuid() < 0 {
		t.Skip("no such system calls")
	}
	seeds := uint64(20)
	if os.Getenv("CAIRN_LONG") != "" {
		seeds = 200
	}
	first := uint64(0)
	if text := os.Getenv("CAIRN_JOURNAL_SEEDS"); text != "" { // 5000, or 2000-5000
		if _, err := fmt.Sscanf(text, "%d-%d", &first, &seeds); err != nil {
			first = 0
			if _, err := fmt.Sscan(text, &seeds); err != nil {
				t.Fatalf("CAIRN_JOURNAL_SEEDS: %v", err)
			}
		}
	}
	t.Setenv(envOutside, "1")
	elsewhere := t.TempDir()
	t.Cleanup(swap(&overflowPlaces, func() []string { return []string{elsewhere} }))
	t.Cleanup(swap(&syncing, syncing))
	snapshots, changed = 0, 0
	for seed := first; seed < seeds; seed++ {
		syncing = seed%8 == 0 // it takes most of the time
		tryJournal(t, seed)
	}
	t.Logf("%d snapshots were compared, %d could not be taken", snapshots, changed)
	if first == 0 && (snapshots == 0 || changed == 0) {
		t.Error("one of the two cases did not occur")
	}
}

// snapshots is how many snapshots were compared, and changed how many could not
// be taken.
var snapshots, changed int

// swap sets a variable, and returns a function that restores it.
func swap[T any](p *T, v T) func() {
	old := *p
	*p = v
	return func() { *p = old }
}

func tryJournal(t *testing.T, seed uint64) {
	w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), left: -1, copies: seed%4 == 3, sets: make(map[uint64]*snapshot)}
	base := t.TempDir()
	w.root, w.dir = filepath.Join(base, "files"), filepath.Join(base, "ck")
	for _, dir := range []string{w.root, w.dir} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	w.j = new(Journal)
	defer func() {
		if w.j.log != nil {
			w.j.log.removeOverflow()
		}
		hook, step, link = nil, func() {}, os.Link
		checkSpace = func() error { return nil }
		for _, f := range w.open {
			f.Close()
		}
	}()
	w.observer = &observer{w: w, rnd: rand.New(rand.NewPCG(seed, 2))}
	defer w.observer.end()
	defer func() { snapshots, changed = snapshots+w.observer.done, changed+w.observer.changed }()
	step = func() {
		w.observer.step()
		if w.observer.yield != nil {
			return
		}
		if w.left > 0 {
			w.left--
		} else if w.left == 0 {
			panic(crash{})
		}
	}
	if w.copies {
		link = func(string, string) error { return errors.New("another file system") }
	}
	if seed%3 == 1 {
		checkSpace = func() error {
			if w.rnd.IntN(3) == 0 {
				return syscall.ENOSPC
			}
			return nil
		}
	}
	mover := rand.New(rand.NewPCG(seed, 3))
	w.say("seed %d", seed)
	for range 30 { // the content before that
		w.change()
	}
	for _, f := range w.open {
		f.Close()
	}
	w.open = nil
	w.sets[0] = &snapshot{files: w.tree()}
	w.observer.first = w.sets[0].files
	w.begin()
	for range 6 {
		w.left = w.rnd.IntN(250)
		if w.dies(func() {
			for {
				if mover.IntN(40) == 0 {
					w.moves()
				}
				if w.rnd.IntN(12) == 0 {
					w.save()
				} else {
					w.change()
				}
			}
		}) {
			w.restart()
		}
	}
}

// TestJournal_InodeUsedAgain removes a file that was kept as a copy. Then
// another file gets its inode, and is changed.
func TestJournal_InodeUsedAgain(t *testing.T) {
	t.Setenv(envOutside, "1")
	l := &logFile{dir: t.TempDir(), base: t.TempDir()}
	sum := make(map[string]string)
	if err := os.Mkdir(l.rankFile(keptName), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"1": "the removed one", "2": "the other"} {
		if err := os.WriteFile(l.keptPath(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var h hasher
		h.Write([]byte(text))
		sum[name] = h.String()
	}
	l.lines = []entry{
		{Op: opFirst},
		{Op: opName, Path: "removed", Was: "file", Mode: 0o644, Size: 15, Ino: 5, Kept: "1", Copy: true, Hash: sum["1"]},
		{Op: opData, Epoch: 1, Path: "other", Ino: 5, Kept: "2", Size: 9, Hash: sum["2"]},
	}
	p, err := planUndo(0, l)
	if err == nil {
		err = p.verify()
	}
	if err != nil {
		t.Error(err)
	}
}

// TestJournal_KeptFileReplaced replaces a kept file by another one. The digest
// cannot detect it, because a later line overwrites all of the content. The
// program's file must be restored nevertheless.
func TestJournal_KeptFileReplaced(t *testing.T) {
	t.Setenv(envOutside, "1")
	l := &logFile{dir: t.TempDir(), base: t.TempDir()}
	a, c := filepath.Join(l.base, "a"), filepath.Join(l.base, "c")
	if err := os.Mkdir(l.rankFile(keptName), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{a: "after", l.keptPath("1"): "other", l.keptPath("2"): "first"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	st, err := os.Stat(a)
	if err != nil {
		t.Fatal(err)
	}
	if inode(st) == 0 {
		t.Skip("files have no numbers here")
	}
	var h hasher
	h.Write([]byte("first"))
	if err := l.rewrite([]entry{
		l.first(0),
		{Op: opName, Path: "c", Was: "file", Mode: 0o600, Size: 5, Ino: inode(st), Kept: "1", Live: true, Hash: h.String()},
		{Op: opData, Path: keptPrefix + "1", Ino: inode(st), Kept: "2", Size: 5, Hash: h.String()},
	}); err != nil {
		t.Fatal(err)
	}
	defer l.close()
	p, err := planUndo(0, l)
	if err == nil {
		err = p.verify()
	}
	if err == nil {
		err = p.run(new(Journal))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{a, c} {
		if text, err := os.ReadFile(name); string(text) != "first" {
			t.Errorf("%s holds %q, %v", name, text, err)
		}
	}
	if !sameDir(a, c) {
		t.Error("the two names are not those of one file")
	}
}
