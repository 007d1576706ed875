package hdf5

import (
	"fmt"
	"io"
	"slices"
	"sort"
)

// shape is the geometry of a chunked dataset in bytes. The bytes of an element
// form the last, fastest dimension. A dimension that a chunk spans completely
// is merged with the dimension before it.
type shape struct {
	dims   []uint64
	chunk  []uint64
	stride []uint64 // bytes of the dataset from one index to the next
	inner  []uint64 // the same within a chunk
	grid   []uint64 // chunks along each dimension
}

func newShape(dims, chunk []uint64, elem uint64) shape {
	s := shape{dims: append(slices.Clone(dims), elem), chunk: append(slices.Clone(chunk), elem)}
	for n := len(s.dims) - 1; n > 0 && s.dims[n] == s.chunk[n]; n-- {
		s.dims[n-1] *= s.dims[n]
		s.chunk[n-1] *= s.chunk[n]
		s.dims, s.chunk = s.dims[:n], s.chunk[:n]
	}
	n := len(s.dims)
	s.stride, s.inner = make([]uint64, n), make([]uint64, n)
	stride, inner := uint64(1), uint64(1)
	for i := n - 1; i >= 0; i-- {
		s.stride[i], s.inner[i] = stride, inner
		stride *= s.dims[i]
		inner *= s.chunk[i]
	}
	s.grid = grid(s.dims, s.chunk)
	return s
}

// ReadAt reads the bytes of the dataset, with its elements in row-major order,
// like io.ReaderAt. Elements that were never written have the fill value, zero
// by default. Bytes that the file stores without filters are read directly into
// p.
func (d *Dataset) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("dataset %q: %w: reading at offset %d", d.path, ErrUnsupported, off)
	}
	if uint64(off) >= d.bytes {
		return 0, io.EOF
	}
	var short error
	if uint64(len(p)) > d.bytes-uint64(off) {
		p, short = p[:d.bytes-uint64(off)], io.EOF
	}
	n := 0
	var err error
	switch l := &d.layout; l.class {
	case layoutCompact:
		n = copy(p, l.data[off:])
	case layoutContiguous:
		n = len(p)
		if l.addr == undef {
			d.blank(p, uint64(off))
		} else if err = d.f.readRaw(p, l.addr+uint64(off)); err != nil {
			n = 0
		}
	case layoutChunked:
		n, err = d.readChunked(p, uint64(off))
	default:
		n, err = d.readVirtual(p, uint64(off))
	}
	if err != nil {
		return n, fmt.Errorf("dataset %q: %w", d.path, err)
	}
	return n, short
}

// blank writes the fill value to p, which begins at off in the dataset.
func (d *Dataset) blank(p []byte, off uint64) {
	clear(p)
	if d.fill == nil {
		return
	}
	n := copy(p, d.fill[off%uint64(len(d.fill)):])
	for n < len(p) {
		n += copy(p[n:], d.fill)
	}
}

// readChunked divides the range into boxes. In one dimension a box has a range
// of indexes, in the dimensions before it a single index, in those after it all
// indexes. A few boxes suffice.
func (d *Dataset) readChunked(p []byte, off uint64) (int, error) {
	chunks, err := d.Chunks()
	if err != nil {
		return 0, err
	}
	s := &d.shape
	rank := len(s.dims)
	from, to := make([]uint64, rank), make([]uint64, rank)
	done := 0
	for done < len(p) {
		at, left := off+uint64(done), uint64(len(p)-done)
		k := 0
		for at%s.stride[k] != 0 || left < s.stride[k] {
			k++
		}
		rest := at
		for i := range rank {
			from[i], rest = rest/s.stride[i], rest%s.stride[i]
			to[i] = from[i] + 1
			if i > k {
				from[i], to[i] = 0, s.dims[i]
			}
		}
		to[k] = from[k] + min(left/s.stride[k], s.dims[k]-from[k])
		n := (to[k] - from[k]) * s.stride[k]
		if err := d.readBox(p[done:done+int(n)], at, from, to, chunks); err != nil {
			return done, err
		}
		done += int(n)
	}
	return done, nil
}

// readBox reads a box that is contiguous in the dataset, starting at byte off.
func (d *Dataset) readBox(p []byte, off uint64, from, to []uint64, chunks []Chunk) error {
	s := &d.shape
	rank := len(s.dims)
	place := make([]uint64, rank) // place of a chunk in the grid
	for i := range place {
		place[i] = from[i] / s.chunk[i]
	}
	lo, hi, at := make([]uint64, rank), make([]uint64, rank), make([]uint64, rank)
	for {
		index := uint64(0)
		for i, c := range place {
			index = index*s.grid[i] + c
			lo[i] = max(from[i], c*s.chunk[i])
			hi[i] = min(to[i], c*s.chunk[i]+s.chunk[i])
		}
		runs := uint64(1)
		for i := range rank - 1 {
			runs *= hi[i] - lo[i]
		}
		src, err := d.source(index, chunks, runs, hi[rank-1]-lo[rank-1])
		if err != nil {
			return err
		}
		// Copy one run of contiguous bytes after the other, like an odometer.
		copy(at, lo)
		for {
			var outer, inner uint64
			for i, v := range at {
				outer += v * s.stride[i]
				inner += (v - place[i]*s.chunk[i]) * s.inner[i]
			}
			run := p[outer-off:][:hi[rank-1]-lo[rank-1]]
			switch {
			case src.missing:
				d.blank(run, outer)
			case src.data != nil:
				copy(run, src.data[inner:])
			default:
				if err := d.f.readRaw(run, src.addr+inner); err != nil {
					return err
				}
			}
			i := rank - 2
			for ; i >= 0; i-- {
				if at[i]++; at[i] < hi[i] {
					break
				}
				at[i] = lo[i]
			}
			if i < 0 {
				break
			}
		}
		i := rank - 1
		for ; i >= 0; i-- {
			if place[i]++; place[i]*s.chunk[i] < to[i] {
				break
			}
			place[i] = from[i] / s.chunk[i]
		}
		if i < 0 {
			return nil
		}
	}
}

// source says where a chunk's bytes are: nowhere, in memory, or in the file.
type source struct {
	missing bool
	data    []byte
	addr    uint64
}

const (
	directRun  = 4096 // contiguous bytes that justify a read of their own
	directRuns = 8    // up to so many reads are better than reading the whole chunk
)

// source finds or decodes a chunk. The caller needs runs pieces of run bytes of
// it.
func (d *Dataset) source(index uint64, chunks []Chunk, runs, run uint64) (source, error) {
	i := sort.Search(len(chunks), func(i int) bool { return chunks[i].Index >= index })
	if i == len(chunks) || chunks[i].Index != index {
		return source{missing: true}, nil
	}
	c := chunks[i]
	plain := c.Mask == uint32(1<<len(d.Filters)-1)
	if plain && (run >= directRun || runs <= directRuns || c.Size > cacheBytes) {
		return source{addr: c.Addr}, nil
	}
	d.mu.Lock()
	data := d.cache.get(index)
	d.mu.Unlock()
	if data != nil {
		return source{data: data}, nil
	}
	bad := func(err error) error {
		return fmt.Errorf("chunk %d at offset %#x: %w", index, c.Addr, err)
	}
	if !decodable(d.Filters, c.Mask, c.Size, d.layout.size) {
		return source{}, bad(fmt.Errorf("%w: %d bytes cannot be %d", ErrCorrupt, c.Size, d.layout.size))
	}
	data = make([]byte, c.Size)
	if err := d.f.readRaw(data, c.Addr); err != nil {
		return source{}, err
	}
	if !plain {
		var err error
		if data, err = DecodeChunk(d.Filters, c.Mask, data, make([]byte, d.layout.size)); err != nil {
			return source{}, bad(err)
		}
	}
	d.mu.Lock()
	d.cache.put(index, data)
	d.mu.Unlock()
	return source{data: data}, nil
}

// chunkCache holds recently used decoded chunks, the latest last.
type chunkCache struct {
	index []uint64
	data  [][]byte
	bytes int
}

const (
	cacheBytes  = 32 << 20
	cacheChunks = 256
)

func (c *chunkCache) get(index uint64) []byte {
	i := slices.Index(c.index, index)
	if i < 0 {
		return nil
	}
	data := c.data[i]
	last := len(c.index) - 1
	if i != last {
		copy(c.index[i:], c.index[i+1:])
		copy(c.data[i:], c.data[i+1:])
		c.index[last], c.data[last] = index, data
	}
	return data
}

func (c *chunkCache) put(index uint64, data []byte) {
	if slices.Contains(c.index, index) {
		return
	}
	for len(c.index) > 0 && (len(c.index) >= cacheChunks || c.bytes+len(data) > cacheBytes) {
		c.bytes -= len(c.data[0])
		c.data[0] = nil
		c.index, c.data = c.index[1:], c.data[1:]
	}
	c.index, c.data = append(c.index, index), append(c.data, data)
	c.bytes += len(data)
}
