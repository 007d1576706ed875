package vfstest

import (
	"bytes"
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/vfs"
)

// Mem is a file system in memory that also knows what a power failure would
// leave of it. The root directory "/" exists.
type Mem struct {
	mu   sync.Mutex
	root *node
}

// node is a file or a directory.
type node struct {
	dir     bool
	data    []byte
	entries map[string]*node

	syncedData    []byte           // content at the last Sync
	syncedEntries map[string]*node // entries at the last SyncDir
	locked        bool
}

// NewMem returns an empty file system.
func NewMem() *Mem { return &Mem{root: newDir()} }

func newDir() *node {
	return &node{dir: true, entries: map[string]*node{}, syncedEntries: map[string]*node{}}
}

// Loss says what a power failure takes away.
type Loss int

const (
	// LoseAll takes everything that was not synced, including directory
	// entries.
	LoseAll Loss = iota
	// LoseData keeps directory entries, and takes content that was not synced:
	// a renamed file exists, but is old or empty.
	LoseData
	// Torn keeps directory entries and every other page of content that was not
	// synced.
	Torn
)

// Crash returns what a power failure at this moment would leave. m itself does
// not change.
func (m *Mem) Crash(l Loss) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[*node]*node{} // hard links stay links
	return &Mem{root: m.root.survive(l, seen)}
}

func (n *node) survive(l Loss, seen map[*node]*node) *node {
	if c := seen[n]; c != nil {
		return c
	}
	c := &node{dir: n.dir}
	seen[n] = c
	if n.dir {
		from := n.entries
		if l == LoseAll {
			from = n.syncedEntries
		}
		c.entries, c.syncedEntries = map[string]*node{}, map[string]*node{}
		for name, e := range from {
			s := e.survive(l, seen)
			c.entries[name], c.syncedEntries[name] = s, s
		}
		return c
	}
	c.data = slices.Clone(n.syncedData)
	if l == Torn {
		c.data = slices.Clone(n.data)
		for o := 0; o < len(c.data); o += 2 * vfs.Align {
			page := c.data[o:min(o+vfs.Align, len(c.data))]
			clear(page)
			if o < len(n.syncedData) {
				copy(page, n.syncedData[o:])
			}
		}
	}
	c.syncedData = slices.Clone(c.data)
	return c
}

// Corrupt flips a bit of the byte at off of a file. A crash does not undo that.
func (m *Mem) Corrupt(name string, off int64, bit uint) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("corrupt", name)
	if err != nil {
		return err
	}
	if off >= int64(len(n.data)) {
		return pathError("corrupt", name, io.EOF)
	}
	n.data[off] ^= 1 << bit
	n.syncedData = slices.Clone(n.data)
	return nil
}

func pathError(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

func split(name string) []string {
	name = path.Clean("/" + filepath.ToSlash(name))
	if name == "/" {
		return nil
	}
	return strings.Split(name[1:], "/")
}

func (m *Mem) find(op, name string) (*node, error) {
	n := m.root
	for _, s := range split(name) {
		if n = n.entries[s]; n == nil {
			return nil, pathError(op, name, fs.ErrNotExist)
		}
	}
	return n, nil
}

// place finds the directory that name is or would be in.
func (m *Mem) place(op, name string) (dir *node, base string, err error) {
	parts := split(name)
	if len(parts) == 0 {
		return nil, "", pathError(op, name, fs.ErrInvalid)
	}
	dir, err = m.find(op, strings.Join(parts[:len(parts)-1], "/"))
	if err == nil && !dir.dir {
		err = pathError(op, name, fs.ErrInvalid)
	}
	return dir, parts[len(parts)-1], err
}

func (m *Mem) Open(name string) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("open", name)
	if err != nil {
		return nil, err
	}
	if n.dir {
		return nil, pathError("open", name, fs.ErrInvalid)
	}
	return &memFile{m: m, n: n, name: name}, nil
}

func (m *Mem) add(op, name string, n *node) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.place(op, name)
	if err != nil {
		return err
	}
	if dir.entries[base] != nil {
		return pathError(op, name, fs.ErrExist)
	}
	dir.entries[base] = n
	return nil
}

func (m *Mem) Create(name string) (vfs.File, error) {
	n := &node{}
	if err := m.add("create", name, n); err != nil {
		return nil, err
	}
	return &memFile{m: m, n: n, name: name}, nil
}

func (m *Mem) Mkdir(name string) error { return m.add("mkdir", name, newDir()) }

func (m *Mem) Link(from, to string) error {
	m.mu.Lock()
	n, err := m.find("link", from)
	m.mu.Unlock()
	if err != nil {
		return err
	}
	return m.add("link", to, n)
}

func (m *Mem) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	fd, fb, err := m.place("rename", from)
	if err != nil {
		return err
	}
	td, tb, err := m.place("rename", to)
	if err != nil {
		return err
	}
	n := fd.entries[fb]
	if n == nil {
		return pathError("rename", from, fs.ErrNotExist)
	}
	if old := td.entries[tb]; old != nil && (old.dir || n.dir) {
		return pathError("rename", to, fs.ErrExist)
	}
	td.entries[tb] = n
	delete(fd.entries, fb)
	return nil
}

func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.place("remove", name)
	if err != nil {
		return err
	}
	n := dir.entries[base]
	if n == nil {
		return pathError("remove", name, fs.ErrNotExist)
	}
	if n.dir && len(n.entries) > 0 {
		return pathError("remove", name, vfs.ErrNotEmpty)
	}
	delete(dir.entries, base)
	return nil
}

func (m *Mem) ReadDir(name string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("readdir", name)
	if err != nil {
		return nil, err
	}
	if !n.dir {
		return nil, pathError("readdir", name, syscall.ENOTDIR)
	}
	var out []fs.DirEntry
	for base, e := range n.entries {
		out = append(out, fs.FileInfoToDirEntry(memInfo{base, int64(len(e.data)), e.dir}))
	}
	slices.SortFunc(out, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return out, nil
}

func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("stat", name)
	if err != nil {
		return nil, err
	}
	return memInfo{path.Base(name), int64(len(n.data)), n.dir}, nil
}

func (m *Mem) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("syncdir", name)
	if err != nil {
		return err
	}
	n.syncedEntries = make(map[string]*node, len(n.entries))
	maps.Copy(n.syncedEntries, n.entries)
	return nil
}

func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.place("lock", name)
	if err != nil {
		return nil, err
	}
	n := dir.entries[base]
	if n == nil {
		n = &node{}
		dir.entries[base] = n
	}
	if n.locked {
		return nil, pathError("lock", name, vfs.ErrLocked)
	}
	n.locked = true
	return &memLock{m, n}, nil
}

type memLock struct {
	m *Mem
	n *node
}

func (l *memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.n.locked = false
	return nil
}

type memInfo struct {
	name string
	size int64
	dir  bool
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) IsDir() bool        { return i.dir }
func (i memInfo) ModTime() time.Time { return time.Time{} }
func (i memInfo) Sys() any           { return nil }
func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o777
	}
	return 0o666
}

type memFile struct {
	m    *Mem
	n    *node
	name string
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return bytes.NewReader(f.n.data).ReadAt(p, off)
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if off < 0 {
		return 0, pathError("write", f.name, fs.ErrInvalid)
	}
	f.n.resize(max(int64(len(f.n.data)), off+int64(len(p))))
	return copy(f.n.data[off:], p), nil
}

func (n *node) resize(size int64) {
	if size <= int64(len(n.data)) {
		n.data = n.data[:size]
		return
	}
	n.data = append(n.data, make([]byte, size-int64(len(n.data)))...)
}

func (f *memFile) WriteV(bufs [][]byte, off int64) error {
	for _, b := range bufs {
		n, err := f.WriteAt(b, off)
		if err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

func (f *memFile) Allocate(int64) error { return nil }

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.resize(size)
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return int64(len(f.n.data)), nil
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.syncedData = slices.Clone(f.n.data)
	return nil
}

func (f *memFile) Close() error { return nil }
