package ckpt

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/hdf5"
)

// Difference describes how a dataset differs in two checkpoints, or an array in
// it that has a name.
type Difference struct {
	Path   string
	Var    string      // the variable, or the name of the array
	Name   *graph.Name // nil: the dataset
	Detail string      // why the values cannot be compared; the rest is 0 then
	Values int64       // numbers compared
	Differ int64       // how many of them differ
	First  int64       // position of the first that differs, in the dataset or array
	MaxAbs float64     // largest absolute difference
	MaxRel float64     // largest difference relative to the larger magnitude
}

// Diff compares the datasets of two checkpoints and returns those that differ.
// It verifies both first; damage is an error. It does not compare metadata. If
// progress is not nil, Diff calls it with the number of bytes done so far: the
// state of each checkpoint once, then that of the first again.
func Diff(ctx context.Context, a, b *File, progress func(done int64)) ([]Difference, error) {
	done := int64(0)
	for _, s := range []*File{a, b} {
		damage, err := s.Verify(ctx, func(n int64) {
			if progress != nil {
				progress(done + n)
			}
		})
		done += s.State()
		if err != nil {
			return nil, err
		}
		if len(damage) > 0 {
			return nil, fmt.Errorf("%s: %w", s.Path, damage[0].Err)
		}
	}
	var out []Difference
	inB := make(map[string]int)
	for i := range b.Header.Datasets {
		inB[b.Header.Datasets[i].Path] = i
	}
	for i := range a.Header.Datasets {
		d := &a.Header.Datasets[i]
		j, ok := inB[d.Path]
		delete(inB, d.Path)
		if d.Pool < 0 {
			continue
		}
		if !ok {
			out = append(out, Difference{Path: d.Path, Var: d.Var, First: -1, Detail: "only in the first checkpoint"})
			continue
		}
		c := comparison{all: Difference{Path: d.Path, Var: d.Var, First: -1}}
		c.findNames(&a.Header, &b.Header, i, j)
		err := c.compare(ctx, a, b, i, j, func(n int64) {
			if progress != nil {
				progress(done + n)
			}
		})
		if err != nil {
			return out, fmt.Errorf("/%s: %w", d.Path, err)
		}
		for k := range c.arrays {
			if d := c.arrays[k].Difference; d.Differ > 0 {
				out = append(out, d)
			}
		}
		if c.all.Differ > 0 || c.all.Detail != "" {
			out = append(out, c.all)
		}
		done += d.Size
	}
	for i := range b.Header.Datasets {
		d := &b.Header.Datasets[i]
		if _, left := inB[d.Path]; left && d.Pool >= 0 {
			out = append(out, Difference{Path: d.Path, Var: d.Var, First: -1, Detail: "only in the second checkpoint"})
		}
	}
	return out, nil
}

// comparison is that of a dataset. What differs in an array with a name counts
// for the array, the rest for the dataset.
type comparison struct {
	all    Difference
	arrays []namedArray // ordered by Name.Start; they do not overlap
	others []namedArray // those of the second checkpoint
}

// namedArray is an array that has a name. If moved is not nil, it is where the
// array is in the second checkpoint: at another place of the dataset.
type namedArray struct {
	Difference
	moved *graph.Name
}

// findNames finds the arrays in dataset i of a, and j of b, that have names.
func (c *comparison) findNames(a, b *Header, i, j int) {
	c.arrays, c.others = namedArrays(a, i), namedArrays(b, j)
	second := make(map[string]*graph.Name)
	for k := range c.others {
		second[c.others[k].Name.Name] = c.others[k].Name
	}
	resized := a.Datasets[i].Count() != b.Datasets[j].Count()
	for k := range c.arrays {
		x := &c.arrays[k]
		n := second[x.Name.Name]
		if n != nil && (resized || n.Start != x.Name.Start) && slices.Equal(n.Dims, x.Name.Dims) {
			x.moved = n
		}
	}
}

// namedArrays returns the arrays in dataset i that have names. Of those that
// overlap, it returns the first.
func namedArrays(h *Header, i int) (out []namedArray) {
	for k := range h.Names {
		n := &h.Names[k]
		if at, count := h.NameOf(n); at == i {
			out = append(out, namedArray{Difference: Difference{Path: NamePath(n), Var: n.Name, Name: n, First: -1, Values: int64(count)}})
		}
	}
	slices.SortStableFunc(out, func(a, b namedArray) int { return cmp.Compare(a.Name.Start, b.Name.Start) })
	end := int64(0)
	return slices.DeleteFunc(out, func(d namedArray) bool {
		start := int64(d.Name.Start)
		if start < end {
			return true
		}
		end = start + d.Values
		return false
	})
}

// arrayAt returns the array that has element x, or nil. Elements have n
// numbers.
func arrayAt(arrays []namedArray, x, n int64) *namedArray {
	i := sort.Search(len(arrays), func(i int) bool { return int64(arrays[i].Name.Start) > x }) - 1
	if i >= 0 && x-int64(arrays[i].Name.Start) < arrays[i].Values/n {
		return &arrays[i]
	}
	return nil
}

// note records that number l of element x differs in the two datasets. Elements
// have n numbers. Arrays that have moved are compared by themselves.
func (c *comparison) note(x, l, n int64, a, b float64) {
	switch d := arrayAt(c.arrays, x, n); {
	case d != nil && d.moved == nil:
		d.note((x-int64(d.Name.Start))*n+l, a, b)
	case d == nil && arrayAt(c.others, x, n) == nil:
		c.all.note(x*n+l, a, b)
	}
}

// compareMoved compares an array that has moved.
func (d *namedArray) compareMoved(a, b *File, i, j int, la, lb []leaf) error {
	first, second := &a.Header.Datasets[i], &b.Header.Datasets[j]
	sizeA, sizeB := first.Size/int64(first.Count()), second.Size/int64(second.Count())
	perElem := int64(len(la))
	count := d.Values / perElem
	step := max(1, first.Block/sizeA)
	for at := int64(0); at < count; at += step {
		n := min(step, count-at)
		bytesA, err := a.readBytes(i, (int64(d.Name.Start)+at)*sizeA, n*sizeA)
		if err != nil {
			return err
		}
		bytesB, err := b.readBytes(j, (int64(d.moved.Start)+at)*sizeB, n*sizeB)
		if err != nil {
			return err
		}
		for x := range n {
			for l := range la {
				if va, vb := la[l].get(bytesA[x*sizeA:]), lb[l].get(bytesB[x*sizeB:]); va != vb {
					d.note((at+x)*perElem+int64(l), la[l].float(va), lb[l].float(vb))
				}
			}
		}
	}
	return nil
}

func (c *comparison) compare(ctx context.Context, a, b *File, i, j int, progress func(int64)) error {
	d, e := &a.Header.Datasets[i], &b.Header.Datasets[j]
	ta, err := hdf5.ParseType(d.Type)
	if err != nil {
		return err
	}
	tb, err := hdf5.ParseType(e.Type)
	if err != nil {
		return err
	}
	la, lb := leaves(ta, 0, nil), leaves(tb, 0, nil)
	if !sameKinds(la, lb) {
		c.all.Detail = fmt.Sprintf("type %s in the first checkpoint, %s in the second", d.Type, e.Type)
		return nil
	}
	perElem := int64(len(la))
	c.all.Values = d.Size / int64(ta.Size) * perElem
	for k := range c.others {
		c.others[k].Values *= perElem
	}
	for k := range c.arrays {
		x := &c.arrays[k]
		x.Values *= perElem
		c.all.Values -= x.Values
		if x.moved == nil {
			continue
		}
		if err := x.compareMoved(a, b, i, j, la, lb); err != nil {
			return err
		}
	}
	if d.Size/int64(ta.Size) != e.Size/int64(tb.Size) {
		c.all.Detail = fmt.Sprintf("shape %v in the first checkpoint, %v in the second", d.Dims, e.Dims)
		return nil
	}
	same := d.SameLayout(e)
	bufA, bufB := make([]byte, 0, d.Block), []byte(nil)
	for k := range d.NumBlocks() {
		if err := ctx.Err(); err != nil {
			return err
		}
		progress(int64(k) * d.Block)
		if same && a.Blocks[d.First+k].Digest == b.Blocks[e.First+k].Digest {
			continue
		}
		bufA = bufA[:d.BlockLen(k)]
		if err := a.ReadBlock(i, k, bufA); err != nil {
			return err
		}
		if err := a.check(i, k, bufA); err != nil {
			return err
		}
		first := int64(k) * d.Block / int64(ta.Size) // index of the first element
		n := int64(len(bufA)) / int64(ta.Size)
		if bufB, err = b.readBytes(j, first*int64(tb.Size), n*int64(tb.Size)); err != nil {
			return err
		}
		for x := range n {
			for l := range la {
				va := la[l].get(bufA[x*int64(ta.Size):])
				vb := lb[l].get(bufB[x*int64(tb.Size):])
				if va != vb {
					c.note(first+x, int64(l), perElem, la[l].float(va), lb[l].float(vb))
				}
			}
		}
	}
	return nil
}

func (diff *Difference) note(at int64, a, b float64) {
	if diff.Differ == 0 {
		diff.First = at
	}
	diff.Differ++
	if abs := math.Abs(a - b); abs > diff.MaxAbs || math.IsNaN(abs) && diff.MaxAbs == 0 {
		diff.MaxAbs = abs
	}
	if rel := math.Abs(a-b) / math.Max(math.Abs(a), math.Abs(b)); rel > diff.MaxRel {
		diff.MaxRel = rel
	}
}

// readBytes reads and checks the blocks that have the n bytes from off on.
func (s *File) readBytes(i int, off, n int64) ([]byte, error) {
	d := &s.Header.Datasets[i]
	out := make([]byte, 0, n)
	buf := make([]byte, d.Block)
	for k := int(off / d.Block); n > 0; k++ {
		p := buf[:d.BlockLen(k)]
		if err := s.ReadBlock(i, k, p); err != nil {
			return nil, err
		}
		if err := s.check(i, k, p); err != nil {
			return nil, err
		}
		p = p[off-int64(k)*d.Block:]
		p = p[:min(int64(len(p)), n)]
		out = append(out, p...)
		off += int64(len(p))
		n -= int64(len(p))
	}
	return out, nil
}

// leaf is a number inside an element.
type leaf struct {
	off int
	t   hdf5.Type
}

// leaves lists the numbers in an element of type t. A text counts as bytes.
func leaves(t hdf5.Type, off int, out []leaf) []leaf {
	switch t.Class {
	case hdf5.Compound:
		for _, f := range t.Fields {
			out = leaves(f.Type, off+f.Offset, out)
		}
	case hdf5.Array:
		for o := 0; o < t.Size; o += t.Elem.Size {
			out = leaves(*t.Elem, off+o, out)
		}
	case hdf5.String:
		for o := range t.Size {
			out = append(out, leaf{off + o, hdf5.Type{Class: hdf5.Uint, Size: 1}})
		}
	default:
		out = append(out, leaf{off, t})
	}
	return out
}

func sameKinds(a, b []leaf) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].t.Class != b[i].t.Class || a[i].t.Size != b[i].t.Size {
			return false
		}
	}
	return true
}

// get returns the bits of the number in element p.
func (l *leaf) get(p []byte) uint64 {
	var order binary.ByteOrder = binary.LittleEndian
	if l.t.Big {
		order = binary.BigEndian
	}
	p = p[l.off:]
	switch l.t.Size {
	case 1:
		return uint64(p[0])
	case 2:
		return uint64(order.Uint16(p))
	case 4:
		return uint64(order.Uint32(p))
	}
	return order.Uint64(p)
}

func (l *leaf) float(v uint64) float64 {
	switch {
	case l.t.Class == hdf5.Float && l.t.Size == 4:
		return float64(math.Float32frombits(uint32(v)))
	case l.t.Class == hdf5.Float:
		return math.Float64frombits(v)
	case l.t.Class == hdf5.Int:
		shift := 64 - 8*l.t.Size
		return float64(int64(v<<shift) >> shift)
	}
	return float64(v)
}
