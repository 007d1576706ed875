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
	// BlockSize is the usual size of a block, if elements and rows allow it.
	// Datasets with more than manyBlocks blocks have larger ones.
	BlockSize  = 64 << 10
	manyBlocks = 128 << 10
	// MaxBlock bounds the size of blocks.
	MaxBlock = 1 << 20
	// inlineSize is the size up to which a dataset is stored with the metadata.
	inlineSize = 4 << 10
	// page is the alignment of data in a file.
	page = 4 << 10
)

// Memory is where the bytes of a dataset are: pieces of memory, one after the
// other.
type Memory struct {
	Pieces [][]byte
	ends   []int64
	gather func(dst []byte, off int64) error // produces the bytes, from this process; there are no pieces then
}

// NewMemory returns the Memory of these pieces.
func NewMemory(pieces [][]byte) Memory {
	b := Memory{Pieces: pieces}
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

// Each calls f for the pieces that have the n bytes from off on.
func (b *Memory) Each(off int64, n int, f func(p []byte)) {
	i := 0
	var start int64
	if len(b.Pieces) > 1 {
		i = sort.Search(len(b.ends), func(i int) bool { return b.ends[i] > off })
		if i > 0 {
			start = b.ends[i-1]
		}
	}
	for n > 0 {
		p := b.Pieces[i][off-start:]
		if len(p) > n {
			p = p[:n]
		}
		f(p)
		off += int64(len(p))
		n -= len(p)
		start += int64(len(b.Pieces[i]))
		i++
	}
}

// View returns the n bytes from off on, if they are in one piece.
func (b *Memory) View(off int64, n int) ([]byte, bool) {
	if len(b.Pieces) == 1 {
		return b.Pieces[0][off : off+int64(n)], true
	}
	i := sort.Search(len(b.ends), func(i int) bool { return b.ends[i] > off })
	if i == len(b.ends) || b.ends[i]-off < int64(n) {
		return nil, false
	}
	p := b.Pieces[i]
	o := off - (b.ends[i] - int64(len(p)))
	return p[o : o+int64(n)], true
}

// CopyTo copies the bytes from off on to dst.
func (b *Memory) CopyTo(dst []byte, off int64) {
	b.Each(off, len(dst), func(p []byte) {
		mem.Copy(dst[:len(p)], p)
		dst = dst[len(p):]
	})
}

// read is CopyTo, or gathers the bytes.
func (b *Memory) read(dst []byte, off int64) error {
	if b.gather != nil {
		return b.gather(dst, off)
	}
	b.CopyTo(dst, off)
	return nil
}

// zero reports whether the n bytes from off on are zero.
func (b *Memory) zero(off int64, n int) bool {
	z := true
	b.Each(off, n, func(p []byte) { z = z && mem.IsZero(p) })
	return z
}

// Layout says which datasets a checkpoint has, and where their bytes are.
type Layout struct {
	Datasets []Dataset
	Memory   []Memory
	Remote   []bool   // the pieces stand for memory elsewhere; see Resolve
	Copies   [][]byte // the dataset's bytes, if nothing changes them until they are saved; else nil
	blocks   int
	Bytes    int64
}

// Add adds a dataset.
func (l *Layout) Add(d Dataset, pieces [][]byte) {
	d.First = l.blocks
	l.blocks += d.NumBlocks()
	l.Bytes += d.Size
	l.Datasets = append(l.Datasets, d)
	l.Memory = append(l.Memory, NewMemory(pieces))
	l.Remote = append(l.Remote, false)
	l.Copies = append(l.Copies, nil)
}

func (l *Layout) anyRemote() bool { return slices.Contains(l.Remote, true) }

// addText adds a text as a scalar dataset.
func (l *Layout) addText(path string, text []byte) {
	if len(text) == 0 {
		text = []byte{' '}
	}
	l.addArray(Dataset{Path: path, Pool: -1}, hdf5.Type{Class: hdf5.String, Size: len(text)}, nil, [][]byte{text})
}

func (l *Layout) addJSON(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	l.addText(path, text)
	return nil
}

// Description is what a checkpoint says about an image besides its values. It
// seldom changes from checkpoint to checkpoint, and is reused.
type Description struct {
	img                *graph.Image // without pieces
	Vars, Types, Pools []byte
	paths              []string
}

// of describes img.
func (t *Description) of(img *graph.Image) error {
	if t.img != nil && slices.Equal(t.img.Vars, img.Vars) && slices.Equal(t.img.Types, img.Types) && slices.EqualFunc(t.img.Pools, img.Pools, alike) {
		return nil
	}
	t.img = nil
	var err [3]error
	t.Vars, err[0] = json.Marshal(img.Vars)
	t.Types, err[1] = json.Marshal(img.Types)
	t.Pools, err[2] = json.Marshal(img.Pools)
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

// alike reports whether two pools have the same description.
func alike(p, q graph.Pool) bool {
	f, g := &p.Form, &q.Form
	return p.Var == q.Var && p.Owner == q.Owner && p.Nth == q.Nth && p.Elem == q.Elem && p.Count == q.Count &&
		p.Text == q.Text && p.Pointers == q.Pointers && p.Remote == q.Remote && slices.Equal(p.Shape, q.Shape) &&
		f.Class == g.Class && f.Size == g.Size && f.Big == g.Big && f.Elem == g.Elem && slices.Equal(f.Dims, g.Dims) &&
		len(f.Fields) == len(g.Fields) && unsafe.SliceData(f.Fields) == unsafe.SliceData(g.Fields)
}

// planImage lays out an image and the open files as datasets. It brings small
// datasets from devices to the host.
func planImage(img *graph.Image, files []FileEntry, t *Description) (*Layout, error) {
	l, err := PlanPools(img, files, t)
	if err != nil {
		return nil, err
	}
	for i := range l.Datasets {
		if !l.Remote[i] || l.Datasets[i].Chunk != nil {
			continue
		}
		if err := l.Fetch(i); err != nil {
			return nil, fmt.Errorf("%s: %w", l.Datasets[i].Var, err)
		}
		l.Remote[i] = false
	}
	return l, nil
}

// PlanPools is planImage without access to devices.
func PlanPools(img *graph.Image, files []FileEntry, t *Description) (*Layout, error) {
	l := &Layout{}
	if err := t.of(img); err != nil {
		return nil, err
	}
	for _, f := range files {
		if err := l.addJSON(fmt.Sprintf("FileMap/%d", f.ID), f); err != nil {
			return nil, err
		}
	}
	l.addText("Context/Variables", t.Vars)
	l.addText("Context/Types", t.Types)
	l.addText("Context/Pools", t.Pools)
	l.addArray(Dataset{Path: "Context/Regions", Pool: -1}, regionType, []uint64{uint64(len(img.Regions))}, [][]byte{EncodeRegions(img.Regions)})

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
		last := len(l.Datasets) - 1
		l.Remote[last], l.Copies[last] = p.Remote && p.Copy == nil, p.Copy
		l.Memory[last].gather = p.Gather
	}
	return l, nil
}

// Fetch brings a dataset from devices to the host.
func (l *Layout) Fetch(i int) error {
	pieces := make([][]byte, len(l.Memory[i].Pieces))
	for k, p := range l.Memory[i].Pieces {
		r, at := mem.FindRemote(unsafe.Pointer(unsafe.SliceData(p)))
		if r == nil {
			return errors.New("its memory is gone: it was freed")
		}
		var err error
		if pieces[k], err = r.Host(at, at+int64(len(p))); err != nil {
			return err
		}
	}
	l.Memory[i] = NewMemory(pieces)
	return nil
}

// addArray adds a dataset of elements of type t, and chooses its blocks.
func (l *Layout) addArray(d Dataset, t hdf5.Type, dims []uint64, pieces [][]byte) {
	count := uint64(1)
	for _, n := range dims {
		count *= n
	}
	d.Type, d.Dims, d.Size = t.String(), dims, int64(count)*int64(t.Size)
	d.Block = max(d.Size, 1)
	if d.Size > inlineSize && len(dims) > 0 && t.Size <= MaxBlock {
		d.Chunk = chunkShape(dims, t.Size)
		if d.Chunk == nil { // rows are too long for a block: flatten
			d.Dims = []uint64{count}
			d.Chunk = chunkShape(d.Dims, t.Size)
		}
		d.Block = int64(t.Size)
		for _, n := range d.Chunk {
			d.Block *= int64(n)
		}
	}
	l.Add(d, pieces)
}

// chunkShape chooses chunks that are consecutive bytes of the dataset, of about
// BlockSize bytes, and of whole pages if possible. It returns nil if there are
// none, which happens only with several dimensions.
func chunkShape(dims []uint64, elem int) []uint64 {
	size := uint64(elem)
	for _, n := range dims {
		size *= n
	}
	block := uint64(BlockSize)
	for size/block > manyBlocks && block < MaxBlock {
		block *= 2
	}
	row := uint64(elem) // bytes for one index of the first dimension
	for _, n := range dims[1:] {
		if row *= n; row > MaxBlock {
			break
		}
	}
	if row > MaxBlock {
		if len(dims) == 2 { // equal parts of a row
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
	step := uint64(page) / gcd(page, row) // rows that fill whole pages
	switch {
	case step*row <= block:
		c[0] = block / (step * row) * step
	case step*row <= MaxBlock/2:
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

// poolPaths returns the paths of the pools' datasets: MemBlocks/x for the
// values of variable x if they are in one pool, else MemBlocks/x/<element
// type>. Tables of references are under Context/Pointers. If a variable has
// arrays on devices, these are its values, and its other pools are under
// Context/State.
func poolPaths(img *graph.Image) []string {
	plain := make(map[int]int)  // variable → number of its pools without pointers
	device := make(map[int]int) // variable → number of its pools on devices
	for _, p := range img.Pools {
		if !p.Pointers && p.Form.Size > 0 {
			plain[p.Var]++
			if p.Remote {
				device[p.Var]++
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
		case device[p.Var] > 0 && !p.Remote:
			out[i] = "Context/State/" + name + "/" + linkName(p.Elem)
		case plain[p.Var] == 1 || device[p.Var] == 1:
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

// linkName turns the name of a Go type into the name of an HDF5 link.
func linkName(s string) string {
	s = strings.ReplaceAll(s, "/", "∕")
	s = strings.Replace(s, ".cairn_frame_", ".", 1) // the frame of a function
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

// EncodeRegions returns the rows of /Context/Regions.
func EncodeRegions(rs []graph.Region) []byte {
	out := make([]byte, 0, 24*len(rs))
	for i := range rs {
		for _, v := range graph.PackRegions(rs[i : i+1]) {
			out = binary.LittleEndian.AppendUint64(out, v)
		}
	}
	return out
}

// DecodeRegions is the inverse of EncodeRegions.
func DecodeRegions(p []byte) ([]graph.Region, error) {
	words := make([]uint64, len(p)/8)
	for k := range words {
		words[k] = binary.LittleEndian.Uint64(p[8*k:])
	}
	return graph.UnpackRegions(words)
}
