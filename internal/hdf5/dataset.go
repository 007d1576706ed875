package hdf5

import (
	"fmt"
	"slices"
	"sync"
)

// Dataset is a dataset of a File. It is safe for concurrent use; its fields
// must not be changed.
type Dataset struct {
	Type    Type
	Dims    []uint64  // nil: scalar
	Chunk   []uint64  // chunk dimensions; nil: not chunked
	Filters []Filter  // in order of application on write
	Virtual []Mapping // mappings of a virtual dataset

	f      *File
	path   string
	bytes  uint64 // total size
	layout layout
	fill   []byte // one element; nil: zeros
	shape  shape  // geometry, for ReadAt

	mu      sync.Mutex
	loaded  bool // chunks, or mappings of a virtual dataset, have been read
	chunks  []Chunk
	virtual []*part
	cache   chunkCache
}

const (
	layoutCompact    = 0
	layoutContiguous = 1
	layoutChunked    = 2
	layoutVirtual    = 3
)

// layout says where the bytes are stored.
type layout struct {
	class   int
	data    []byte // compact: the bytes
	addr    uint64 // contiguous: address of the bytes; chunked: of the index
	max     []uint64
	size    uint64 // size of a chunk
	index   int    // kind of the chunk index
	version int
	edges   bool   // partial edge chunks are not filtered
	stored  uint64 // single chunk with filters: its stored size
	mask    uint32 // single chunk with filters: its mask
}

// Dataset opens the dataset at a path.
func (f *File) Dataset(path string) (*Dataset, error) {
	at, err := f.lookup(path)
	var d *Dataset
	if err == nil {
		d, err = f.dataset(at)
	}
	if err != nil {
		return nil, fmt.Errorf("dataset %q: %w", path, err)
	}
	d.path = path
	return d, nil
}

func (f *File) dataset(at uint64) (*Dataset, error) {
	o, err := f.object(at)
	if err != nil {
		return nil, err
	}
	d := &Dataset{f: f}
	var msgs [msgPipeline + 1]message
	for _, typ := range []int{msgLayout, msgDatatype, msgDataspace, msgFill, msgPipeline} {
		m, ok := o.get(typ)
		if !ok && typ == msgLayout {
			return nil, fmt.Errorf("%w: not a dataset (offset %#x)", ErrNotFound, at)
		}
		if !ok && typ < msgFill {
			return nil, corrupt(at, "dataset without message %#x", typ)
		}
		if msgs[typ], err = f.resolve(m); err != nil {
			return nil, err
		}
	}
	if _, ok := o.get(msgExternal); ok {
		return nil, unsupported(at, "data in external files")
	}
	over := func(typ int) *cursor { return f.over(msgs[typ].data, msgs[typ].at) }

	var x textual
	if d.Type, x, err = decodeType(over(msgDatatype), 0); err != nil {
		return nil, err
	}
	if x.vlen {
		return nil, fmt.Errorf("%w: variable-length string (offset %#x)", ErrType, msgs[msgDatatype].at)
	}
	sp, err := f.dataspace(over(msgDataspace))
	if err != nil {
		return nil, err
	}
	if sp.none {
		return nil, unsupported(at, "null dataspace")
	}
	d.Dims = sp.dims
	n, ok := elements(d.Dims)
	if ok {
		n, ok = mul(n, uint64(d.Type.Size))
	}
	if !ok || n > maxBytes {
		return nil, unsupported(at, "dimensions %d are too large", d.Dims)
	}
	d.bytes = n
	if d.fill, err = fillValue(over(msgFill), d.Type.Size); err != nil {
		return nil, err
	}
	if d.Filters, err = pipeline(over(msgPipeline)); err != nil {
		return nil, err
	}
	d.layout.max = sp.max
	if d.layout.max == nil {
		d.layout.max = sp.dims
	}
	return d, d.parseLayout(over(msgLayout))
}

func fillValue(c *cursor, size int) ([]byte, error) {
	if len(c.b) == 0 {
		return nil, nil
	}
	version, flags := c.u8(), c.u8()
	defined := flags&0x20 != 0
	if version < 3 {
		c.skip(1)
		defined = c.u8() != 0
	}
	if !defined {
		return nil, nil
	}
	n := c.u32()
	b := c.bytes(uint64(n))
	switch {
	case n == 0 || int32(n) < 0:
		return nil, nil
	case c.bad || int(n) != size:
		return nil, corrupt(c.at, "fill value of %d bytes for elements of %d", n, size)
	case !slices.ContainsFunc(b, func(v byte) bool { return v != 0 }):
		return nil, nil
	}
	return slices.Clone(b), nil
}

func pipeline(c *cursor) ([]Filter, error) {
	if len(c.b) == 0 {
		return nil, nil
	}
	version, n := c.u8(), c.u8()
	if version == 1 {
		c.skip(6)
	}
	if version < 1 || version > 2 || n > 32 {
		return nil, unsupported(c.at, "filter pipeline version %d of %d filters", version, n)
	}
	var fs []Filter
	for range n {
		f := Filter{ID: uint16(c.u16())}
		name := 0
		if version == 1 || f.ID >= 256 {
			name = c.u16()
		}
		c.skip(2)
		params := c.u16()
		if version == 1 {
			name = (name + 7) &^ 7
		}
		c.skip(name)
		for range params {
			if c.bad {
				break
			}
			f.Params = append(f.Params, c.u32())
		}
		if version == 1 && params%2 == 1 {
			c.skip(4)
		}
		fs = append(fs, f)
	}
	if c.bad {
		return nil, corrupt(c.at, "filter pipeline message cut short")
	}
	return fs, nil
}

func (d *Dataset) parseLayout(c *cursor) error {
	l := &d.layout
	l.version, l.class = c.u8(), c.u8()
	if l.version != 3 && l.version != 4 {
		return unsupported(c.at, "layout message version %d", l.version)
	}
	switch l.class {
	case layoutCompact:
		l.data = slices.Clone(c.bytes(uint64(c.u16())))
		if uint64(len(l.data)) < d.bytes {
			return corrupt(c.at, "%d bytes are said to be %d", len(l.data), d.bytes)
		}
	case layoutContiguous:
		l.addr = c.addr()
		n := c.length()
		if c.bad || l.addr != undef && (n < d.bytes || n > d.f.size || l.addr > d.f.size-n) {
			return corrupt(c.at, "%d bytes at %#x are said to be %d", n, l.addr, d.bytes)
		}
	case layoutChunked:
		return d.parseChunked(c)
	case layoutVirtual:
		id := heapID{c.addr(), c.u32()}
		if c.bad {
			return corrupt(c.at, "layout message cut short")
		}
		return d.parseVirtual(id)
	default:
		return unsupported(c.at, "layout class %d", l.class)
	}
	if c.bad {
		return corrupt(c.at, "layout message cut short")
	}
	return nil
}

func (d *Dataset) parseChunked(c *cursor) error {
	l := &d.layout
	flags := 0
	if l.version == 4 {
		flags = c.u8()
		l.edges = flags&1 != 0
	}
	rank := c.u8() - 1
	width := 4
	if l.version == 4 {
		width = c.u8()
	} else {
		l.addr = c.addr()
	}
	if c.bad || rank != len(d.Dims) || rank == 0 || width < 1 || width > 8 {
		return corrupt(c.at, "chunks of %d dimensions for a dataset of %d", rank, len(d.Dims))
	}
	size, ok := uint64(d.Type.Size), true
	for range rank {
		n := c.uint(width)
		d.Chunk = append(d.Chunk, n)
		if ok {
			size, ok = mul(size, n)
		}
	}
	if elem := c.uint(width); c.bad || !ok || size == 0 || size > 1<<32-1 || elem != uint64(d.Type.Size) {
		return corrupt(c.at, "chunks of dimensions %d, elements of %d bytes", d.Chunk, elem)
	}
	l.size = size
	if n, ok := elements(grid(d.Dims, d.Chunk)); !ok || n > maxBytes {
		return unsupported(c.at, "dimensions %d are too large", d.Dims)
	}
	if l.version == 4 {
		l.index = c.u8()
		switch l.index {
		case indexSingle:
			l.stored = size
			if flags&2 != 0 {
				l.stored, l.mask = c.length(), c.u32()
			}
		case indexImplicit:
		case indexFixed:
			c.skip(1)
		case indexExtensible:
			c.skip(5)
		case indexTreeV2:
			c.skip(6)
		default:
			return unsupported(c.at, "chunk index of kind %d", l.index)
		}
		l.addr = c.addr()
	}
	if c.bad {
		return corrupt(c.at, "layout message cut short")
	}
	d.shape = newShape(d.Dims, d.Chunk, uint64(d.Type.Size))
	return nil
}

// Size returns the number of bytes that ReadAt can read.
func (d *Dataset) Size() int64 { return int64(d.bytes) }

// Chunks returns the chunks that are present, ordered by Index. The caller must
// not change the slice. It is empty for a dataset that is not chunked.
func (d *Dataset) Chunks() ([]Chunk, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.loaded && d.layout.class == layoutChunked {
		cs, err := d.loadChunks()
		if err != nil {
			return nil, fmt.Errorf("dataset %q: %w", d.path, err)
		}
		d.chunks, d.loaded = cs, true
	}
	return d.chunks, nil
}
