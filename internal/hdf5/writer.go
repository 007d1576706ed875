package hdf5

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Writer builds the metadata of one file: everything except the bytes of the
// chunks, which the caller writes. It does no I/O. The same calls give the same
// bytes. A Writer is not safe for concurrent use.
type Writer struct {
	root *node
}

type node struct {
	name  string
	data  *DatasetSpec // nil: a group
	kids  []*node
	find  map[string]*node
	attrs []attribute
}

// DatasetSpec describes a dataset to write. It is chunked (Chunk is set),
// virtual (Virtual is set), or neither (Data holds all its bytes). The Writer
// keeps the slices; they must not change until Finish.
type DatasetSpec struct {
	Type    Type
	Dims    []uint64  // nil: scalar; a dimension may be 0
	Chunk   []uint64  // chunk dimensions, none larger than the dataset's (unless that is 0)
	Filters []Filter  // filters of a chunked dataset, in order of application on write
	Chunks  []Chunk   // the chunks that are present, ordered by Index; others read as zeros
	Data    []byte    // bytes of a dataset that is not chunked; they become part of the metadata
	Virtual []Mapping // where the parts of a virtual dataset are
}

// Chunk says where one chunk is stored.
type Chunk struct {
	Index uint64 // linear, row-major over the chunk grid
	Addr  uint64 // file offset
	Size  uint64 // stored bytes
	Mask  uint32 // bit i set: filter i was not applied
}

// Mapping is one part of a virtual dataset: a box of it, and the box of the
// source that has its elements.
type Mapping struct {
	File  string // "." is the file itself; otherwise relative to its directory
	Path  string // path of the dataset in File
	Start []uint64
	Count []uint64
	From  *Box // in the source; nil: at the same place
}

// Box is a part of a dataset, which may have another rank than the mapping's,
// and as many elements.
type Box struct{ Start, Count []uint64 }

// source returns the box in the source.
func (m *Mapping) source() Box {
	if m.From != nil {
		return *m.From
	}
	return Box{m.Start, m.Count}
}

// NewWriter returns a Writer for a file that has only a root group.
func NewWriter() *Writer { return &Writer{root: &node{}} }

// Group adds a group, and its parents if they do not exist yet.
func (w *Writer) Group(path string) error {
	_, err := w.group(path)
	return err
}

// Attr adds an attribute to an existing group or dataset. The value may be a
// string, a bool, an integer, a float, or a slice of any of these.
func (w *Writer) Attr(path, name string, value any) error {
	n := w.root
	for part := range parts(path) {
		if n = n.find[part]; n == nil {
			return fmt.Errorf("hdf5: attribute %q of %q: %w", name, path, ErrNotFound)
		}
	}
	a, err := newAttribute(name, value)
	for _, b := range n.attrs {
		if err == nil && b.name == name {
			err = errors.New("already there")
		}
	}
	if err != nil {
		return fmt.Errorf("hdf5: attribute %q of %q: %w", name, path, err)
	}
	n.attrs = append(n.attrs, a)
	return nil
}

// Dataset adds a dataset, and its parents if they do not exist yet.
func (w *Writer) Dataset(path string, d DatasetSpec) error {
	err := d.check()
	if err == nil {
		err = w.dataset(path, &d)
	}
	if err != nil {
		return fmt.Errorf("hdf5: dataset %q: %w", path, err)
	}
	return nil
}

func (w *Writer) dataset(path string, d *DatasetSpec) error {
	path = strings.TrimRight(path, "/")
	dir, name := "", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir, name = path[:i], path[i+1:]
	}
	if err := checkName(name); err != nil {
		return err
	}
	g, err := w.group(dir)
	if err != nil {
		return err
	}
	if g.find[name] != nil {
		return errors.New("already there")
	}
	g.add(name, d)

	return nil
}

func (w *Writer) group(path string) (*node, error) {
	n := w.root
	for part := range parts(path) {
		kid := n.find[part]
		if kid == nil {
			if err := checkName(part); err != nil {
				return nil, fmt.Errorf("hdf5: group %q: %w", path, err)
			}
			kid = n.add(part, nil)
		}
		if n = kid; n.data != nil {
			return nil, fmt.Errorf("hdf5: group %q: %q is a dataset", path, part)
		}
	}
	return n, nil
}

func (n *node) add(name string, d *DatasetSpec) *node {
	kid := &node{name: name, data: d}
	if n.find == nil {
		n.find = make(map[string]*node)
	}
	n.find[name] = kid
	n.kids = append(n.kids, kid)
	return kid
}

// parts yields the components of a path.
func parts(path string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for part := range strings.SplitSeq(path, "/") {
			if part != "" && !yield(part) {
				return
			}
		}
	}
}

func checkName(s string) error {
	switch {
	case s == "" || s == ".":
		return fmt.Errorf("%q is no name for a link", s)
	case strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s):
		return fmt.Errorf("name %q is not UTF-8 without NUL", s)
	}
	return nil
}

// elements returns the product of the dimensions, 1 for a scalar.
func elements(dims []uint64) (uint64, bool) {
	n := uint64(1)
	if slices.Contains(dims, 0) {
		return 0, true
	}
	for _, d := range dims {
		product, ok := mul(n, d)
		if !ok {
			return 0, false
		}
		n = product
	}
	return n, true
}

// maxBytes bounds the size of a dataset: offsets into it are int64.
const maxBytes = 1<<63 - 1

func (d *DatasetSpec) check() error {
	if err := d.Type.check(); err != nil {
		return fmt.Errorf("%w: %v", ErrType, err)
	}
	n, ok := elements(d.Dims)
	if ok {
		n, ok = mul(n, uint64(d.Type.Size))
	}
	if !ok || n > maxBytes {
		return fmt.Errorf("%w: dimensions %d are too large", ErrUnsupported, d.Dims)
	}
	if len(d.Dims) > maxRank {
		return fmt.Errorf("%w: %d dimensions", ErrUnsupported, len(d.Dims))
	}
	switch {
	case d.Virtual != nil:
		if d.Chunk != nil || d.Data != nil || d.Filters != nil {
			return errors.New("a virtual dataset has no storage of its own")
		}
		return d.checkVirtual()
	case d.Chunk != nil:
		if d.Data != nil {
			return errors.New("a chunked dataset has no Data")
		}
		return d.checkChunks()
	case d.Filters != nil || d.Chunks != nil:
		return errors.New("filters and chunks need chunk dimensions")
	case uint64(len(d.Data)) != n:
		return fmt.Errorf("%d bytes of data for %d", len(d.Data), n)
	}
	return nil
}

func (d *DatasetSpec) checkVirtual() error {
	for _, m := range d.Virtual {
		if len(d.Dims) == 0 || len(m.Start) != len(d.Dims) || len(m.Count) != len(d.Dims) {
			return fmt.Errorf("mapping of %q has another rank", m.Path)
		}
		if m.File == "" || m.Path == "" || strings.IndexByte(m.File+m.Path, 0) >= 0 {
			return fmt.Errorf("mapping of %q in %q: not such names", m.Path, m.File)
		}
		for i, dim := range d.Dims {
			if m.Count[i] == 0 || m.Count[i] > dim || m.Start[i] > dim-m.Count[i] {
				return fmt.Errorf("mapping of %q lies outside", m.Path)
			}
		}
		from := m.source()
		here, ok1 := elements(m.Count)
		there, ok2 := elements(from.Count)
		if !ok1 || !ok2 || here != there || len(from.Start) != len(from.Count) || len(from.Start) == 0 {
			return fmt.Errorf("mapping of %q has another size than its source", m.Path)
		}
	}
	return nil
}

func (d *DatasetSpec) checkChunks() error {
	if len(d.Chunk) != len(d.Dims) || len(d.Dims) == 0 {
		return fmt.Errorf("%d chunk dimensions for %d dimensions", len(d.Chunk), len(d.Dims))
	}
	size := uint64(d.Type.Size)
	for i, c := range d.Chunk {
		ok := c > 0 && c <= 1<<32-1
		if ok {
			size, ok = mul(size, c)
		}
		if !ok || size > 1<<32-1 {
			return fmt.Errorf("chunk dimensions %d: a chunk is 1 byte to 4 GiB", d.Chunk)
		}
		if d.Dims[i] != 0 && c > d.Dims[i] {
			return fmt.Errorf("chunk dimensions %d exceed the dataset's %d", d.Chunk, d.Dims)
		}
	}
	if len(d.Filters) > 32 {
		return fmt.Errorf("%d filters", len(d.Filters))
	}
	n, _ := elements(grid(d.Dims, d.Chunk))
	for i, c := range d.Chunks {
		if c.Index >= n || i > 0 && c.Index <= d.Chunks[i-1].Index {
			return fmt.Errorf("chunk %d is out of range or order", c.Index)
		}
		plain := c.Mask == 1<<len(d.Filters)-1
		if c.Mask>>len(d.Filters) != 0 || plain && c.Size != size || c.Size == 0 || c.Size > 1<<32-1 {
			return fmt.Errorf("chunk %d: %d bytes stored with mask %#x", c.Index, c.Size, c.Mask)
		}
	}
	return nil
}

// grid returns the number of chunks along each dimension.
func grid(dims, chunk []uint64) []uint64 {
	g := make([]uint64, len(dims))
	for i, d := range dims {
		g[i] = d / chunk[i]
		if d%chunk[i] != 0 {
			g[i]++
		}
	}
	return g
}
