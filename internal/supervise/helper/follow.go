//go:build linux

package helper

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cairnrun/cairn/internal/vfs"
)

const outputChunk = 32 << 10

// watch informs followers that files in a directory were written to (inotify).
type watch struct {
	f    *os.File
	mu   sync.Mutex
	kick map[string][]chan struct{}
}

func newWatch(dir string) (*watch, error) {
	err := vfs.OS().Mkdir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MODIFY); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("inotify_add_watch", err)
	}
	w := &watch{f: os.NewFile(uintptr(fd), "inotify"), kick: make(map[string][]chan struct{})}
	go w.work()
	return w, nil
}

func (w *watch) close() { w.f.Close() }

// on returns a channel that has a value when the file may have changed.
func (w *watch) on(path string) chan struct{} {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	name := filepath.Base(path)
	w.kick[name] = append(w.kick[name], ch)
	w.mu.Unlock()
	return ch
}

// off ends the effect of on.
func (w *watch) off(path string, ch chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := filepath.Base(path)
	w.kick[name] = slices.DeleteFunc(w.kick[name], func(x chan struct{}) bool { return x == ch })
}

func (w *watch) work() {
	buf := make([]byte, 64<<10)
	for {
		n, err := w.f.Read(buf)
		if err != nil {
			return
		}
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&buf[at]))
			name := buf[at+unix.SizeofInotifyEvent:][:e.Len]
			at += unix.SizeofInotifyEvent + int(e.Len)
			w.ring(cString(name), e.Mask&unix.IN_Q_OVERFLOW != 0)
		}
	}
}

// ring wakes the followers of a file, or all.
func (w *watch) ring(name string, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, list := range w.kick {
		if !all && k != name {
			continue
		}
		for _, ch := range list {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	}
}

func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// follower passes on what is appended to a file, piece by piece: it sends the
// next piece when the last one was taken. send without data says that the file
// was cut.
type follower struct {
	ready chan struct{} // closed when the file can be followed
	taken chan struct{} // a piece was taken
	last  chan struct{} // closed when nothing more will be written
	gone  chan struct{} // closed when nothing takes the pieces any more
	done  chan struct{}
	at    int64 // offset up to which the file was passed on; valid when done
}

// follow begins when ready is closed: a rank that restores appends its first
// output to its old output, and then cuts it off.
func follow(w *watch, path string, at int64, ready, gone chan struct{}, send func(offset int64, data []byte)) *follower {
	f := &follower{ready: ready, taken: make(chan struct{}, 1), last: make(chan struct{}), gone: gone, done: make(chan struct{}), at: at}
	changed := w.on(path)
	go func() {
		defer close(f.done)
		defer w.off(path, changed)
		file, err := os.Open(path)
		if err != nil {
			return
		}
		defer file.Close()
		select {
		case <-ready:
			f.work(file, changed, send)
		case <-gone:
		case <-f.last:
			select { // both may have happened
			case <-ready:
				f.work(file, changed, send)
			default:
			}
		}
	}()
	return f
}

func (f *follower) work(file *os.File, changed chan struct{}, send func(int64, []byte)) {
	final := false
	wait := func() bool {
		select {
		case <-f.taken:
			return true
		case <-f.gone:
			return false
		}
	}
	for {
		// A cut followed by new output between two checks is not seen here. The
		// files that are written from these pieces are corrected when the run
		// ends.
		if st, err := file.Stat(); err == nil && st.Size() < f.at {
			f.at = st.Size()
			send(f.at, nil)
			if !wait() {
				return
			}
		}
		data := make([]byte, outputChunk)
		n, err := file.ReadAt(data, f.at)
		if n > 0 {
			send(f.at, data[:n])
			f.at += int64(n)
			if !wait() {
				return
			}
			continue
		}
		if err != io.EOF || final {
			return
		}
		select {
		case <-changed:
		case <-f.last:
			final = true // check once more
		case <-f.gone:
			return
		}
	}
}

// more says that the last piece was taken.
func (f *follower) more() {
	select {
	case f.taken <- struct{}{}:
	default:
	}
}

// finish passes on what is left and waits until it was taken.
func (f *follower) finish() {
	close(f.last)
	<-f.done
}
