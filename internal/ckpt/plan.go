package ckpt

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"unsafe"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/hdf5"
	"github.com/cairnrun/cairn/internal/mem"
)

const (
	// BlockSize is the size that blocks have where element and row sizes allow.
	// Those of a dataset with more than manyBlocks of them are larger.
	BlockSize  = 64 << 10
	manyBlocks = 128 << 10
	// maxBlock bounds blocks whose size follows the rows of a matrix.
	maxBlock = 1 << 20
	// inlineSize is the largest dataset that is kept with the metadata.
	inlineSize = 4 << 10
	// page is what data in a file is aligned to.
	page = 4 << 10
)

// blob is a sequence of bytes in pieces of memory.
type blob struct {
	pieces [][]byte
	ends   []int64
	gather func(dst []byte, off int64) error // makes the bytes; there are no pieces then
}

func newBlob(pieces [][]byte) blob {
	b := blob{pieces: pieces}
	if len(pieces) > 1 {
		b.ends = make([]int64, len(pieces))
		var n int64
		for i, p := range pieces {
			n += int64(len(p))
			b.ends[i] = n
		}
	}
	return b
}

// each calls f for the pieces that make up n bytes from off on.
func (b *blob) each(off int64, n int, f func(p []byte)) {
	i := 0
	var start int64
	if len(b.pieces) > 1 {
		i = sort.Search(len(b.ends), func(i int) bool { return b.ends[i] > off })
		if i > 0 {
			start = b.ends[i-1]
		}
	}
	for n > 0 {
		p := b.pieces[i][off-start:]
		if len(p) > n {
			p = p[:n]
		}
		f(p)
		off += int64(len(p))
		n -= len(p)
		start += int64(len(b.pieces[i]))
		i++
	}
}

// view returns n bytes from off on as they lie in memory, if they lie in one piece.
func (b *blob) view(off int64, n int) ([]byte, bool) {
	if len(b.pieces) == 1 {
		return b.pieces[0][off : off+int64(n)], true
	}
	i := sort.Search(len(b.ends), func(i int) bool { return b.ends[i] > off })
	if i == len(b.ends) || b.ends[i]-off < int64(n) {
		return nil, false
	}
	p := b.pieces[i]
	o := off - (b.ends[i] - int64(len(p)))
	return p[o : o+int64(n)], true
}

// copyTo fills dst from off on.
func (b *blob) copyTo(dst []byte, off int64) {
	b.each(off, len(dst), func(p []byte) {
		mem.Copy(dst[:len(p)], p)
		dst = dst[len(p):]
	})
}

// read fills dst from off on, which may have to be made.
func (b *blob) read(dst []byte, off int64) error {
	if b.gather != nil {
		return b.gather(dst, off)
	}
	b.copyTo(dst, off)
	return nil
}

// zero reports whether n bytes from off on are all zero.
func (b *blob) zero(off int64, n int) bool {
	z := true
	b.each(off, n, func(p []byte) { z = z && mem.IsZero(p) })
	return z
}

// layout is a plan for a set: its datasets and where their bytes are now.
type layout struct {
	datasets []Dataset
	blobs    []blob
	remote   []bool // the pieces stand for memory elsewhere, see resolve
	blocks   int
	bytes    int64
}

func (l *layout) add(d Dataset, pieces [][]byte) {
	d.First = l.blocks
	l.blocks += d.blocks()
	l.bytes += d.Size
	l.datasets = append(l.datasets, d)
	l.blobs = append(l.blobs, newBlob(pieces))
	l.remote = append(l.remote, false)
}

func (l *layout) anyRemote() bool { return slices.Contains(l.remote, true) }

// addText adds a text as a scalar dataset.
func (l *layout) addText(path string, text []byte) {
	if len(text) == 0 {
		text = []byte{' '}
	}
	l.addArray(Dataset{Path: path, Pool: -1}, hdf5.Type{Class: hdf5.String, Size: len(text)}, nil, [][]byte{text})
}

func (l *layout) addJSON(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	l.addText(path, text)
	return nil
}

// description is what a set says of an image beside its values: texts, and
// where the pools are found. It is mostly the same from set to set.
type description struct {
	img                *graph.Image // without pieces
	vars, types, pools []byte
	paths              []string
}

// of describes img, anew only if it has to.
func (t *description) of(img *graph.Image) error {
	if t.img != nil && slices.Equal(t.img.Vars, img.Vars) && slices.Equal(t.img.Types, img.Types) && slices.EqualFunc(t.img.Pools, img.Pools, alike) {
		return nil
	}
	t.img = nil
	var err [3]error
	t.vars, err[0] = json.Marshal(img.Vars)
	t.types, err[1] = json.Marshal(img.Types)
	t.pools, err[2] = json.Marshal(img.Pools)
	if err := errors.Join(err[:]...); err != nil {
		return fmt.Errorf("Context: %w", err)
	}
	t.paths = poolPaths(img)
	t.img = &graph.Image{Vars: slices.Clone(img.Vars), Types: slices.Clone(img.Types), Pools: slices.Clone(img.Pools)}
	for i := range t.img.Pools {
		t.img.Pools[i].Pieces, t.img.Pools[i].Gather = nil, nil
	}
	return nil
}

// alike reports whether pools are described alike.
func alike(p, q graph.Pool) bool {
	f, g := &p.Form, &q.Form
	return p.Var == q.Var && p.Owner == q.Owner && p.Nth == q.Nth && p.Elem == q.Elem && p.Count == q.Count &&
		p.Text == q.Text && p.Pointers == q.Pointers && p.Remote == q.Remote && slices.Equal(p.Shape, q.Shape) &&
		f.Class == g.Class && f.Size == g.Size && f.Big == g.Big && f.Elem == g.Elem && slices.Equal(f.Dims, g.Dims) &&
		len(f.Fields) == len(g.Fields) && unsafe.SliceData(f.Fields) == unsafe.SliceData(g.Fields)
}

// planImage lays an image and the open files out as datasets. Small ones are
// brought from devices.
func planImage(img *graph.Image, files []FileEntry, t *description) (*layout, error) {
	l, err := planPools(img, files, t)
	if err != nil {
		return nil, err
	}
	for i := range l.datasets {
		if !l.remote[i] || l.datasets[i].Chunk != nil {
			continue
		}
		if err := l.fetch(i); err != nil {
			return nil, fmt.Errorf("%s: %w", l.datasets[i].Var, err)
		}
		l.remote[i] = false
	}
	return l, nil
}

// planPools is planImage without looking at memory elsewhere.
func planPools(img *graph.Image, files []FileEntry, t *description) (*layout, error) {
	l := &layout{}
	if err := t.of(img); err != nil {
		return nil, err
	}
	for _, f := range files {
		if err := l.addJSON(fmt.Sprintf("FileMap/%d", f.ID), f); err != nil {
			return nil, err
		}
	}
	l.addText("Context/Variables", t.vars)
	l.addText("Context/Types", t.types)
	l.addText("Context/Pools", t.pools)
	l.addArray(Dataset{Path: "Context/Regions", Pool: -1}, regionType, []uint64{uint64(len(img.Regions))}, [][]byte{encodeRegions(img.Regions)})

	for i, p := range img.Pools {
		if p.Form.Size == 0 {
			continue
		}
		d := Dataset{Path: t.paths[i], Var: img.Vars[p.Var].Name, Pool: i, Go: p.Elem}
		if p.Text && len(p.Pieces) == 1 && len(p.Pieces[0]) <= inlineSize {
			d.Go = "string"
			l.addArray(d, hdf5.Type{Class: hdf5.String, Size: len(p.Pieces[0])}, nil, p.Pieces)
			continue
		}
		l.addArray(d, p.Form, p.Shape, p.Pieces)
		l.remote[len(l.remote)-1] = p.Remote
		l.blobs[len(l.blobs)-1].gather = p.Gather
	}
	return l, nil
}

// fetch brings a small dataset from where it lies.
func (l *layout) fetch(i int) error {
	pieces := make([][]byte, len(l.blobs[i].pieces))
	for k, p := range l.blobs[i].pieces {
		r, at := mem.FindRemote(unsafe.Pointer(unsafe.SliceData(p)))
		if r == nil {
			return errors.New("its memory is gone: it was freed")
		}
		var err error
		if pieces[k], err = r.Host(at, at+int64(len(p))); err != nil {
			return err
		}
	}
	l.blobs[i] = newBlob(pieces)
	return nil
}

// addArray adds a dataset of elements of type t, choosing its blocks.
func (l *layout) addArray(d Dataset, t hdf5.Type, dims []uint64, pieces [][]byte) {
	count := uint64(1)
	for _, n := range dims {
		count *= n
	}
	d.Type, d.Dims, d.Size = t.String(), dims, int64(count)*int64(t.Size)
	d.Block = max(d.Size, 1)
	if d.Size > inlineSize && len(dims) > 0 && t.Size <= maxBlock {
		d.Chunk = chunkShape(dims, t.Size)
		if d.Chunk == nil { // rows too long to be a block: flatten
			d.Dims = []uint64{count}
			d.Chunk = chunkShape(d.Dims, t.Size)
		}
		d.Block = int64(t.Size)
		for _, n := range d.Chunk {
			d.Block *= int64(n)
		}
	}
	l.add(d, pieces)
}

// chunkShape chooses chunks that are consecutive bytes of the dataset, about
// BlockSize large, and whole pages if that can be had. It returns nil when
// there are none, which can't happen for one dimension.
func chunkShape(dims []uint64, elem int) []uint64 {
	size := uint64(elem)
	for _, n := range dims {
		size *= n
	}
	block := uint64(BlockSize)
	for size/block > manyBlocks && block < maxBlock {
		block *= 2
	}
	row := uint64(elem) // bytes of an index step in the first dimension
	for _, n := range dims[1:] {
		if row *= n; row > maxBlock {
			break
		}
	}
	if row > maxBlock {
		if len(dims) == 2 { // part of a row, if parts of one size fill it
			for k := (row + block - 1) / block; k < 4096; k++ {
				if dims[1]%k == 0 {
					return []uint64{1, dims[1] / k}
				}
			}
		}
		if len(dims) > 1 {
			return nil
		}
	}
	c := append([]uint64{0}, dims[1:]...)
	step := uint64(page) / gcd(page, row) // rows that make whole pages
	switch {
	case step*row <= block:
		c[0] = block / (step * row) * step
	case step*row <= maxBlock/2:
		c[0] = step
	default:
		c[0] = max(1, block/row)
	}
	c[0] = min(c[0], dims[0])
	return c
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// poolPaths names the datasets of the pools: MemBlocks/x for the values of
// variable x if they are in one pool, else MemBlocks/x/<element type>; the
// tables of references are under Context/Pointers. What a variable has on
// devices is its value; all else of it is under Context/State then.
func poolPaths(img *graph.Image) []string {
	plain := make(map[int]int) // variable → its pools without pointers
	far := make(map[int]int)   // … → those on devices
	for _, p := range img.Pools {
		if !p.Pointers && p.Form.Size > 0 {
			plain[p.Var]++
			if p.Remote {
				far[p.Var]++
			}
		}
	}
	out := make([]string, len(img.Pools))
	used := make(map[string]bool)
	for i, p := range img.Pools {
		name := img.Vars[p.Var].Name
		switch {
		case p.Pointers:
			out[i] = "Context/Pointers/" + name + "/" + linkName(p.Elem)
		case far[p.Var] > 0 && !p.Remote:
			out[i] = "Context/State/" + name + "/" + linkName(p.Elem)
		case plain[p.Var] == 1 || far[p.Var] == 1:
			out[i] = "MemBlocks/" + name
		default:
			out[i] = "MemBlocks/" + name + "/" + linkName(p.Elem)
		}
		for base, n := out[i], 2; used[out[i]]; n++ {
			out[i] = fmt.Sprintf("%s#%d", base, n)
		}
		used[out[i]] = true
	}
	return out
}

// linkName makes a Go type name fit to be the name of an HDF5 link.
func linkName(s string) string {
	s = strings.ReplaceAll(s, "/", "∕")
	if r := []rune(s); len(r) > 60 {
		s = string(r[:59]) + "…"
	}
	if s == "" || s == "." {
		s = "value"
	}
	return s
}

// regionType is a row of Context/Regions.
var regionType = hdf5.Type{Class: hdf5.Compound, Size: 24, Fields: []hdf5.Field{
	{Name: "pool", Offset: 0, Type: hdf5.Type{Class: hdf5.Uint, Size: 4}},
	{Name: "repeat", Offset: 4, Type: hdf5.Type{Class: hdf5.Uint, Size: 4}},
	{Name: "start", Offset: 8, Type: hdf5.Type{Class: hdf5.Uint, Size: 8}},
	{Name: "count", Offset: 16, Type: hdf5.Type{Class: hdf5.Uint, Size: 8}},
}}

// encodeRegions gives three numbers per row of regions.
func encodeRegions(rs []graph.Region) []byte {
	out := make([]byte, 0, 24*len(rs))
	for i := range rs {
		for _, v := range graph.PackRegions(rs[i : i+1]) {
			out = binary.LittleEndian.AppendUint64(out, v)
		}
	}
	return out
}
