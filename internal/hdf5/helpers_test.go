package hdf5

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// builder makes files in the way Cairn does: raw chunks first, then the
// metadata.
type builder struct {
	t    testing.TB
	w    *Writer
	raw  []byte
	want map[string]want
}

// want is the expected content of a dataset.
type want struct {
	typ  string
	dims []uint64
	data []byte
}

func newBuilder(t testing.TB) *builder {
	return &builder{t: t, w: NewWriter(), raw: make([]byte, 4096), want: map[string]want{}}
}

func (b *builder) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func mustType(t testing.TB, s string) Type {
	t.Helper()
	typ, err := ParseType(s)
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

// plain adds a dataset that is not chunked.
func (b *builder) plain(path, typ string, dims []uint64, data []byte) {
	b.t.Helper()
	b.must(b.w.Dataset(path, DatasetSpec{Type: mustType(b.t, typ), Dims: dims, Data: data}))
	b.want[path] = want{typ, dims, data}
}

// chunked adds a chunked dataset. It omits the chunks for which skip reports
// true, and sets their bytes in data to zero.
func (b *builder) chunked(path, typ string, dims, chunk []uint64, filters []Filter, data []byte, skip func(i uint64) bool) {
	b.t.Helper()
	t := mustType(b.t, typ)
	spec := DatasetSpec{Type: t, Dims: dims, Chunk: chunk, Filters: filters}
	g := grid(dims, chunk)
	n, _ := elements(g)
	for i := range n {
		c := gather(data, t.Size, dims, chunk, g, i)
		if skip != nil && skip(i) {
			scatter(data, make([]byte, len(c)), t.Size, dims, chunk, g, i)
			continue
		}
		out, mask, err := EncodeChunk(filters, c, nil)
		b.must(err)
		for len(b.raw)%512 != 0 {
			b.raw = append(b.raw, 0)
		}
		spec.Chunks = append(spec.Chunks, Chunk{Index: i, Addr: uint64(len(b.raw)), Size: uint64(len(out)), Mask: mask})
		b.raw = append(b.raw, out...)
	}
	b.must(b.w.Dataset(path, spec))
	b.want[path] = want{typ, dims, data}
}

// eachElement calls visit with the offsets of all existing elements of chunk i:
// in the chunk and in the dataset, counted in elements. It is slow and simple.
func eachElement(dims, chunk, g []uint64, i uint64, visit func(in, out uint64)) {
	place := make([]uint64, len(g))
	for j := len(g) - 1; j >= 0; j-- {
		place[j] = i % g[j]
		i /= g[j]
	}
	n, _ := elements(chunk)
next:
	for in := range n {
		x, coord := in, make([]uint64, len(g))
		for j := len(g) - 1; j >= 0; j-- {
			coord[j] = place[j]*chunk[j] + x%chunk[j]
			x /= chunk[j]
			if coord[j] >= dims[j] {
				continue next
			}
		}
		out := uint64(0)
		for j := range g {
			out = out*dims[j] + coord[j]
		}
		visit(in, out)
	}
}

func gather(data []byte, size int, dims, chunk, g []uint64, i uint64) []byte {
	n, _ := elements(chunk)
	c := make([]byte, n*uint64(size))
	eachElement(dims, chunk, g, i, func(in, out uint64) {
		copy(c[in*uint64(size):][:size], data[out*uint64(size):])
	})
	return c
}

func scatter(data, c []byte, size int, dims, chunk, g []uint64, i uint64) {
	eachElement(dims, chunk, g, i, func(in, out uint64) {
		copy(data[out*uint64(size):][:size], c[in*uint64(size):])
	})
}

// bytes finishes the file.
func (b *builder) bytes() []byte {
	b.t.Helper()
	for len(b.raw)%4096 != 0 {
		b.raw = append(b.raw, 0)
	}
	super, meta, err := b.w.Finish(uint64(len(b.raw)))
	b.must(err)
	file := append(slices.Clone(b.raw), meta...)
	copy(file, super)
	return file
}

// file finishes the file and saves it.
func (b *builder) file(name string) string {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), name)
	b.must(os.WriteFile(path, b.bytes(), 0o666))
	return path
}

func openBytes(t testing.TB, file []byte) *File {
	t.Helper()
	f, err := Open(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func openPath(t testing.TB, path string) *File {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return openBytes(t, file)
}

// verify reads all datasets named in wants, as a whole and in pieces.
func verify(t testing.TB, f *File, wants map[string]want) {
	t.Helper()
	for path, w := range wants {
		d, err := f.Dataset(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if d.Type.String() != w.typ || !slices.Equal(d.Dims, w.dims) {
			t.Errorf("%s: is %s of %d, not %s of %d", path, d.Type, d.Dims, w.typ, w.dims)
		}
		got := make([]byte, len(w.data)+1)
		n, err := d.ReadAt(got, 0)
		if err != io.EOF || n != len(w.data) {
			t.Errorf("%s: read %d of %d bytes: %v", path, n, len(w.data), err)
		}
		if i := firstDiff(got[:n], w.data); i >= 0 {
			t.Errorf("%s: differs at byte %d of %d", path, i, n)
		}
		r := rand.New(rand.NewPCG(1, 2))
		for range 20 {
			if n == 0 {
				break
			}
			off := r.IntN(n)
			p := make([]byte, r.IntN(min(n-off, 5000))+1)
			k, err := d.ReadAt(p, int64(off))
			if err != nil || k != len(p) || !bytes.Equal(p, w.data[off:off+k]) {
				t.Errorf("%s: %d bytes at %d differ: %d, %v", path, len(p), off, k, err)
			}
		}
	}
}

func firstDiff(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	return -1
}

// pattern returns n bytes that compress, but not to nothing.
func pattern(n int) []byte {
	p := make([]byte, n)
	r := rand.New(rand.NewPCG(3, uint64(n)))
	for i := range p {
		p[i] = byte(i/8 + r.IntN(2))
	}
	return p
}

// random returns n bytes that do not compress.
func random(n int) []byte {
	p := make([]byte, n)
	r := rand.New(rand.NewPCG(5, uint64(n)))
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

// tool runs an HDF5 tool, which must succeed without output on stderr.
func tool(t testing.TB, name string, args ...string) string {
	t.Helper()
	exe, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed (Debian package hdf5-tools)", name)
	}
	cmd := exec.Command(exe, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, stderr.String(), tail(out))
	}
	return string(out)
}

func tail(b []byte) []byte { return b[max(0, len(b)-2000):] }

// interpreter returns a Python interpreter that has h5py.
var interpreter = sync.OnceValue(func() string {
	for _, p := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(p, "-c", "import h5py, numpy").Run() == nil {
			return p
		}
	}
	return ""
})

// python runs a script with h5py and returns its output.
func python(t testing.TB, script string, args ...string) string {
	t.Helper()
	exe := interpreter()
	if exe == "" {
		t.Skip("no python3 with h5py is installed (Debian package python3-h5py)")
	}
	cmd := exec.Command(exe, append([]string{"-W", "error", "-c", script}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("python: %v\n%s", err, tail(out))
	}
	return string(out)
}

// wrapped reports whether an error is of a documented kind.
func wrapped(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnsupported)
}

var allTypes = []string{
	"|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", ">i2", ">i4", ">i8", ">u2", ">u4", ">u8",
	"<f4", "<f8", ">f4", ">f8", "|b1", "S1", "S7", "S300", "[3]<i4", "[2,3]>f8", "[2][3]<u2",
	`{"r":0<f4,"i":4<f4}8`, `{"r":0<f8,"i":8<f8}16`, `{"x":0|i1}1`,
	`{"a":0<i4,"b":8[2,3]{"r":0>f4,"i":4>f4}8,"s":56S5,"z":61|b1}64`,
	`[4]{"ü":1|u1,"deep":8{"deeper":0{"v":0[2]|b1}300}300}400`,
}

// everything returns a file with everything that the Writer can write, except
// filters that the HDF5 library lacks.
func everything(t testing.TB) *builder {
	b := filterable(t)
	b.plain("/plain/empty", "<f8", []uint64{3, 0, 2}, nil)
	b.must(b.w.Dataset("/virtual", DatasetSpec{Type: mustType(t, "<u4"), Dims: []uint64{37, 21}, Virtual: []Mapping{
		{File: ".", Path: "/chunked/d2f0", Start: []uint64{0, 0}, Count: []uint64{8, 21}},
		{File: ".", Path: "/chunked/d2f0", Start: []uint64{10, 5}, Count: []uint64{27, 16}},
	}}))
	b.views("/chunked/d2f0")
	data := slices.Clone(b.want["/chunked/d2f0"].data)
	clear(data[8*21*4 : 10*21*4])
	for row := 10; row < 37; row++ {
		clear(data[row*21*4:][:5*4])
	}
	b.want["/virtual"] = want{"<u4", []uint64{37, 21}, data}
	return b
}

// views adds virtual datasets whose elements are elsewhere in their source, and
// have another shape there.
func (b *builder) views(path string) {
	whole := b.want[path].data // rows of 21 numbers of 4 bytes
	for _, v := range []struct {
		name string
		dims []uint64
		from Box
		at   int // the first number
	}{
		{"rows", []uint64{105}, Box{[]uint64{3, 0}, []uint64{5, 21}}, 63},
		{"cube", []uint64{3, 7, 5}, Box{[]uint64{3, 0}, []uint64{5, 21}}, 63},
		{"part", []uint64{7}, Box{[]uint64{2, 5}, []uint64{1, 7}}, 47},
		{"one", []uint64{1}, Box{[]uint64{36, 20}, []uint64{1, 1}}, 776},
	} {
		n, _ := elements(v.dims)
		b.must(b.w.Dataset("/views/"+v.name, DatasetSpec{Type: mustType(b.t, "<u4"), Dims: v.dims, Virtual: []Mapping{
			{File: ".", Path: path, Start: make([]uint64, len(v.dims)), Count: v.dims, From: &v.from},
		}}))
		b.want["/views/"+v.name] = want{"<u4", v.dims, whole[4*v.at:][:4*n]}
	}
}

// filterable returns the same without the datasets that h5repack 1.10 cannot
// repack with another layout or filter, whatever program wrote them: contiguous
// datasets without elements (an error) and virtual ones (it crashes).
func filterable(t testing.TB) *builder {
	b := newBuilder(t)
	for i, typ := range allTypes {
		size := mustType(t, typ).Size
		data := pattern(size * 6)
		if typ == "|b1" {
			data = []byte{1, 0, 0, 1, 1, 0}
		}
		if strings.Contains(typ, "|b1") && typ != "|b1" {
			clear(data)
		}
		if strings.Contains(typ, "f") {
			for j := range data {
				data[j] &= 0x3f // no NaN
			}
		}
		b.plain(fmt.Sprintf("/types/t%d", i), typ, []uint64{3, 2}, data)
		b.plain(fmt.Sprintf("/scalars/t%d", i), typ, nil, data[:size])
	}
	b.plain("/plain/contiguous", "<u2", []uint64{50, 40}, pattern(4000))
	b.chunked("/chunked/empty", "<f8", []uint64{0, 7}, []uint64{4, 4}, nil, nil, nil)
	b.chunked("/chunked/none", "<f8", []uint64{9, 7}, []uint64{4, 4}, nil, make([]byte, 9*7*8), func(uint64) bool { return true })
	for i, fs := range [][]Filter{nil, {Deflate(6)}, {Shuffle(4), Deflate(1)}, {Shuffle(4), Fletcher32()}, {Fletcher32(), Shuffle(4), Deflate(9)}} {
		third := func(c uint64) bool { return c%3 == 1 }
		b.chunked(fmt.Sprintf("/chunked/d1f%d", i), "<u4", []uint64{1001}, []uint64{100}, fs, pattern(4004), nil)
		b.chunked(fmt.Sprintf("/chunked/d2f%d", i), "<u4", []uint64{37, 21}, []uint64{8, 21}, fs, pattern(37*21*4), third)
		b.chunked(fmt.Sprintf("/chunked/d3f%d", i), ">i4", []uint64{11, 9, 10}, []uint64{4, 5, 3}, fs, pattern(11*9*10*4), third)
		b.chunked(fmt.Sprintf("/chunked/r%d", i), "<u4", []uint64{300}, []uint64{128}, fs, random(1200), nil)
	}
	b.chunked("/chunked/compound", allTypes[28], []uint64{5, 5}, []uint64{2, 3}, []Filter{Shuffle(64), Deflate(6)}, make([]byte, 25*64), nil)
	b.must(b.w.Group("/none/at/all"))
	for _, path := range []string{"/", "/types", "/chunked/d1f0"} {
		for _, a := range allAttrs {
			b.must(b.w.Attr(path, a.name, a.value))
		}
	}
	return b
}

var allAttrs = []struct {
	name        string
	value, back any
}{
	{"s", "hello wörld", "hello wörld"}, {"empty", "", ""}, {"ss", []string{"a", "", "abc"}, []string{"a", "", "abc"}},
	{"noss", []string{}, []string{}}, {"bool", true, true}, {"bools", []bool{true, false}, []bool{true, false}},
	{"i", -5, int64(-5)}, {"i8", int8(-5), int64(-5)}, {"i16s", []int16{-1, 2}, []int64{-1, 2}}, {"u", uint(7), uint64(7)},
	{"u64", ^uint64(0), ^uint64(0)}, {"u32s", []uint32{1, 1 << 31}, []uint64{1, 1 << 31}}, {"bytes", []byte{1, 2, 255}, []uint64{1, 2, 255}},
	{"f", 1.5, 1.5}, {"f32", float32(0.25), 0.25}, {"fs", []float64{1, -2.5}, []float64{1, -2.5}},
}
