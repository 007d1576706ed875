package hdf5

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// File is an HDF5 file that is open for reading. It is safe for concurrent use
// if the io.ReaderAt is.
type File struct {
	// OpenSource opens the other files that hold bytes of virtual datasets.
	// name is the file's name as this file states it. OpenSource may be nil.
	// Set it before reading such a dataset.
	OpenSource func(name string) (*File, error)

	r    io.ReaderAt
	size uint64
	base uint64 // addresses in the file count from here
	osz  int
	lsz  int
	root uint64

	mu      sync.Mutex
	windows [maxWindows]window // parts of the file that were read recently
	reads   uint64
	groups  map[uint64]*links // groups by address
}

// Open reads the superblock of a file of the given size. The File never reads
// beyond size.
func Open(r io.ReaderAt, size int64) (*File, error) {
	if size < 0 {
		return nil, corrupt(0, "file of %d bytes", size)
	}
	f := &File{r: r, size: uint64(size), osz: 8, lsz: 8, groups: make(map[uint64]*links)}
	for at := uint64(0); f.size >= 8 && at <= f.size-8; at = max(2*at, 512) {
		b, err := f.read(at, 8)
		if err != nil {
			return nil, err
		}
		if string(b) == signature {
			return f, f.superblock(at)
		}
	}
	return nil, corrupt(0, "no HDF5 signature")
}

func (f *File) superblock(at uint64) error {
	b, err := f.read(at, min(128, f.size-at))
	if err != nil {
		return err
	}
	c := cursor{b: b, at: at, osz: 8, lsz: 8}
	c.skip(8)
	version := c.u8()
	switch version {
	case 0, 1:
		c.skip(4)
	case 2, 3:
	default:
		return unsupported(at, "superblock version %d", version)
	}
	f.osz, f.lsz = c.u8(), c.u8()
	c.skip(1) // reserved, or consistency flags
	for _, n := range []int{f.osz, f.lsz} {
		if n != 2 && n != 4 && n != 8 {
			return corrupt(at, "superblock has addresses or lengths of %d bytes", n)
		}
	}
	c.osz, c.lsz = f.osz, f.lsz
	if version < 2 {
		c.skip(8) // B-tree widths and flags
		if version == 1 {
			c.skip(4)
		}
	}
	base := c.uint(f.osz)
	c.addr() // address of the free space or of the superblock extension
	end := c.uint(f.osz)
	if version < 2 {
		c.addr()      // driver information
		c.uint(f.osz) // name of the root's symbol table entry
	}
	c.base = base
	f.root = c.addr()
	if version >= 2 {
		sum := lookup3(c.b[:c.pos])
		if want := c.u32(); !c.bad && sum != want {
			return corrupt(at, "superblock has checksum %#x and not %#x", sum, want)
		}
	}
	switch {
	case c.bad:
		return corrupt(at, "superblock cut short")
	case base > at:
		return corrupt(at, "base address %#x lies past the superblock", base)
	case end > f.size: // this address alone is absolute
		return corrupt(at, "file has %d bytes and should have %d", f.size, end)
	}
	f.base = base
	return nil
}

// A file with many datasets has their headers in several places. Readers
// alternate between these places.
const (
	windowSize = 1 << 16
	maxWindows = 16
)

// window is a part of the file. Its bytes are never overwritten.
type window struct {
	b    []byte
	at   uint64
	used uint64 // value of the read counter at the last use
}

// read returns n bytes at an absolute address. The caller must not change them.
func (f *File) read(at, n uint64) ([]byte, error) {
	if n > f.size || at > f.size-n {
		return nil, corrupt(at, "%d bytes lie outside the file's %d", n, f.size)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	oldest := &f.windows[0]
	for i := range f.windows {
		w := &f.windows[i]
		if at >= w.at && at+n <= w.at+uint64(len(w.b)) {
			w.used = f.reads
			return w.b[at-w.at:][:n:n], nil
		}
		if w.used < oldest.used {
			oldest = w
		}
	}
	start := at &^ (windowSize - 1)
	end := min(max(at+n, start+windowSize), f.size)
	buf := make([]byte, end-start)
	if err := f.readRaw(buf, start); err != nil {
		return nil, err
	}
	*oldest = window{buf, start, f.reads}
	return buf[at-start:][:n:n], nil
}

// readRaw fills p from an absolute address inside the file.
func (f *File) readRaw(p []byte, at uint64) error {
	n, err := f.r.ReadAt(p, int64(at))
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF { // the file is shorter than its stated size
		err = fmt.Errorf("%w: %w", ErrCorrupt, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("hdf5: reading %d bytes at offset %#x: %w", len(p), at, err)
}

// cursor reads n bytes at an absolute address and returns a cursor over them.
func (f *File) cursor(at, n uint64) (*cursor, error) {
	b, err := f.read(at, n)
	if err != nil {
		return nil, err
	}
	return f.over(b, at), nil
}

// upTo is like cursor, but returns fewer than n bytes if the file ends earlier.
func (f *File) upTo(at, n uint64) (*cursor, error) {
	if at < f.size {
		n = min(n, f.size-at)
	}
	return f.cursor(at, n)
}

// over returns a cursor over bytes that were read at address at.
func (f *File) over(b []byte, at uint64) *cursor {
	return &cursor{b: b, at: at, base: f.base, osz: f.osz, lsz: f.lsz}
}

// checked verifies the checksum at the end of the block of n bytes at address
// at. It returns a cursor over the bytes before the checksum.
func (f *File) checked(at, n uint64, what string) (*cursor, error) {
	c, err := f.cursor(at, n)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if n < 4 {
		return nil, corrupt(at, "%s of %d bytes", what, n)
	}
	sum, want := lookup3(c.b[:n-4]), le.Uint32(c.b[n-4:])
	if sum != want {
		return nil, corrupt(at, "%s has checksum %#x and not %#x", what, sum, want)
	}
	c.b = c.b[:n-4]
	return c, nil
}

const maxSoftLinks = 16 // maximum number of soft links in one path

// lookup returns the address of the object header for a path.
func (f *File) lookup(path string) (uint64, error) {
	at := f.root
	todo := strings.Split(path, "/")
	soft := 0
	for i := 0; i < len(todo); i++ {
		if todo[i] == "" || todo[i] == "." {
			continue
		}
		g, err := f.links(at)
		if err != nil {
			return 0, err
		}
		l, ok := g.find[todo[i]]
		switch {
		case !ok:
			return 0, fmt.Errorf("%w: no %q (group at offset %#x)", ErrNotFound, todo[i], at)
		case l.kind == linkHard:
			at = l.addr
		case l.kind == linkSoft:
			if soft++; soft > maxSoftLinks {
				return 0, fmt.Errorf("%w: too many soft links", ErrNotFound)
			}
			if strings.HasPrefix(l.target, "/") {
				at = f.root
			}
			todo, i = append(strings.Split(l.target, "/"), todo[i+1:]...), -1
		default:
			return 0, unsupported(at, "link %q of kind %d", todo[i], l.kind)
		}
	}
	return at, nil
}
