package hdf5

import (
	"fmt"
	"io"
	"slices"
	"sort"
)

// part is a mapping of a virtual dataset and its source, divided into rows of
// bytes that are contiguous in both.
type part struct {
	m    Mapping
	src  *Dataset
	rows uint64
	row  uint64 // size of a row in bytes
	k    int    // a row extends along dimension k and contains all of the dimensions after it
	here []uint64
	far  []uint64 // bytes from one index to the next, in the virtual dataset and the source

	at, from uint64 // where the bytes of a flatPart begin, in both
}

// strides returns, for each dimension, the number of bytes from one index to
// the next.
func strides(dims []uint64, elem int) []uint64 {
	s := make([]uint64, len(dims))
	n := uint64(elem)
	for i := len(dims) - 1; i >= 0; i-- {
		s[i] = n
		n *= dims[i]
	}
	return s
}

// offset returns where row r begins, for the strides of the dataset or of its
// source.
func (p *part) offset(r uint64, strides []uint64) uint64 {
	off := p.m.Start[p.k] * strides[p.k]
	for i := p.k - 1; i >= 0; i-- {
		off += (p.m.Start[i] + r%p.m.Count[i]) * strides[i]
		r /= p.m.Count[i]
	}
	return off
}

// parts opens the sources of a virtual dataset. It does so once.
func (d *Dataset) parts() ([]*part, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loaded {
		return d.virtual, nil
	}
	type name struct{ file, path string }
	sources := map[name]*Dataset{}
	var parts []*part
	for _, m := range d.Virtual {
		n := name{m.File, m.Path}
		src := sources[n]
		if src == nil {
			f := d.f
			if m.File != "." {
				if d.f.OpenSource == nil {
					return nil, fmt.Errorf("%w: a virtual dataset with bytes in %q", ErrUnsupported, m.File)
				}
				var err error
				if f, err = d.f.OpenSource(m.File); err != nil {
					return nil, fmt.Errorf("source file %q: %w", m.File, err)
				}
			}
			var err error
			if src, err = f.Dataset(m.Path); err != nil {
				return nil, fmt.Errorf("source file %q: %w", m.File, err)
			}
			sources[n] = src
		}
		switch {
		case src.layout.class == layoutVirtual:
			return nil, fmt.Errorf("%w: %q, source of a virtual dataset, is one itself", ErrUnsupported, m.Path)
		case !src.Type.Equal(d.Type) || len(src.Dims) != len(m.source().Start):
			return nil, fmt.Errorf("%w: %q in %q is %s of %d", ErrUnsupported, m.Path, m.File, src.Type, src.Dims)
		}
		from := m.source()
		for i, n := range src.Dims {
			if from.Start[i] > n || from.Count[i] > n-from.Start[i] {
				return nil, fmt.Errorf("%w: %q in %q is %s of %d: too small", ErrCorrupt, m.Path, m.File, src.Type, src.Dims)
			}
		}
		if m.From != nil {
			p, err := flatPart(d, src, m)
			if err != nil {
				return nil, err
			}
			parts = append(parts, p)
			continue
		}
		p := &part{m: m, src: src, here: strides(d.Dims, d.Type.Size), far: strides(src.Dims, src.Type.Size)}
		p.k = len(d.Dims) - 1
		for p.k > 0 && m.Count[p.k] == d.Dims[p.k] && m.Count[p.k] == src.Dims[p.k] {
			p.k--
		}
		p.rows, _ = elements(m.Count[:p.k]) // at most the elements of d
		p.row = m.Count[p.k] * p.here[p.k]
		if slices.Contains(m.Count, 0) {
			continue
		}
		parts = append(parts, p)
	}
	d.virtual, d.loaded = parts, true
	return parts, nil
}

// flatPart is a mapping between different places, as one row. Elements must be
// consecutive in both.
func flatPart(d, src *Dataset, m Mapping) (*part, error) {
	at, n, ok := run(d.Dims, Box{m.Start, m.Count})
	from, n2, ok2 := run(src.Dims, *m.From)
	if !ok || !ok2 || n != n2 {
		return nil, fmt.Errorf("%w: %q: a mapping between boxes of different shapes", ErrUnsupported, m.Path)
	}
	size := uint64(d.Type.Size)
	m.Start, m.Count = []uint64{0}, []uint64{n}
	return &part{m: m, src: src, rows: 1, row: n * size, at: at * size, from: from * size, here: []uint64{size}, far: []uint64{size}}, nil
}

// run returns the first element of a box and their number, if they are
// consecutive in a dataset with these dimensions.
func run(dims []uint64, b Box) (at, n uint64, ok bool) {
	n, ok = elements(b.Count)
	whole := true // all dimensions after this one are in the box as a whole
	for i := len(dims) - 1; i >= 0; i-- {
		if !whole && b.Count[i] != 1 {
			return 0, 0, false
		}
		whole = whole && b.Count[i] == dims[i]
	}
	for i, s := range b.Start {
		at = at*dims[i] + s
	}
	return at, n, ok
}

func (d *Dataset) readVirtual(p []byte, off uint64) (int, error) {
	parts, err := d.parts()
	if err != nil {
		return 0, err
	}
	d.blank(p, off)
	end := off + uint64(len(p))
	for _, v := range parts {
		first := sort.Search(int(v.rows), func(r int) bool { return v.at+v.offset(uint64(r), v.here)+v.row > off })
		for r := uint64(first); r < v.rows; r++ {
			at := v.at + v.offset(r, v.here)
			if at >= end {
				break
			}
			lo, hi := max(at, off), min(at+v.row, end)
			src := v.from + v.offset(r, v.far) + lo - at
			if _, err := v.src.ReadAt(p[lo-off:hi-off], int64(src)); err != nil && err != io.EOF {
				return 0, fmt.Errorf("source file %q: %w", v.m.File, err)
			}
		}
	}
	return len(p), nil
}
