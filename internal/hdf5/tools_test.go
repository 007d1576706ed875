package hdf5

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTools_ReadEveryDataset shows that h5ls, h5stat and h5dump find the
// datasets, types, filters and values that we write.
func TestTools_ReadEveryDataset(t *testing.T) {
	b := everything(t)
	path := b.file("all.h5")
	ls := tool(t, "h5ls", "-r", path)
	for p, w := range b.want {
		dims := "SCALAR"
		if w.dims != nil {
			dims = strings.Trim(strings.ReplaceAll(fmt.Sprint(w.dims), " ", ", "), "[]")
		}
		found := false
		for line := range strings.Lines(ls) {
			f := strings.Fields(line)
			found = found || len(f) > 1 && f[0] == p && strings.TrimSpace(line[len(f[0]):]) == "Dataset {"+dims+"}"
		}
		if !found {
			t.Errorf("h5ls does not show %s with {%s}:\n%s", p, dims, ls)
		}
	}
	stat := tool(t, "h5stat", path)
	for _, s := range []string{fmt.Sprintf("# of unique datasets: %d\n", len(b.want)), "# of objects with 10 - 99 attributes: 3\n"} {
		if !strings.Contains(stat, s) {
			t.Errorf("h5stat does not say %q:\n%s", s, stat)
		}
	}
	head := tool(t, "h5dump", "-H", "-p", path)
	for _, s := range []string{`H5T_ARRAY { [2][3] H5T_IEEE_F64BE }`, "COMPRESSION DEFLATE { LEVEL 1 }", "PREPROCESSING SHUFFLE",
		"CHECKSUM FLETCHER32", "CHUNKED ( 4, 5, 3 )", `H5T_STD_U16BE`, "VALUE  H5D_FILL_VALUE_DEFAULT"} {
		if !strings.Contains(head, s) {
			t.Errorf("h5dump does not say %q", s)
		}
	}
	tool(t, "h5dump", path)
	if out := tool(t, "h5dump", "-d", "/types/t1", "-y", "-w", "0", path); !strings.Contains(out, littleShorts(b.want["/types/t1"].data)) {
		t.Errorf("h5dump gives other values than %s:\n%s", littleShorts(b.want["/types/t1"].data), out)
	}
}

// littleShorts formats 3 by 2 numbers of 16 bits like h5dump.
func littleShorts(p []byte) string {
	v := func(i int) int16 { return int16(le.Uint16(p[2*i:])) }
	return fmt.Sprintf("%d, %d,\n      %d, %d,\n      %d, %d\n", v(0), v(1), v(2), v(3), v(4), v(5))
}

// TestTools_Repack reads files again that h5repack has rewritten in other
// layouts and with other filters.
func TestTools_Repack(t *testing.T) {
	b := filterable(t)
	path := b.file("all.h5")
	for _, args := range [][]string{nil, {"-L"}, {"-l", "CONTI"}, {"-L", "-l", "CONTI"}, {"-l", "COMPA"}, {"-f", "GZIP=6"}, {"-L", "-f", "SHUF", "-f", "GZIP=6"},
		{"-l", "/chunked/d2f0,/plain/contiguous:CHUNK=7x4"}, {"-L", "-l", "/chunked/d2f0,/plain/contiguous:CHUNK=7x4", "-f", "FLET"},
		{"-L", "-l", "/chunked/d1f0:CHUNK=1001"}, {"-L", "-l", "/chunked/d3f1:CHUNK=1x1x2", "-f", "/chunked/d3f1:NONE"}, {"-S", "PAGE"}} {
		out := filepath.Join(t.TempDir(), "out.h5")
		tool(t, "h5repack", append(args, path, out)...)
		f := openPath(t, out)
		verify(t, f, b.want)
		if got, err := f.Attr("/types", "s"); err != nil || got != "hello wörld" {
			t.Errorf("%v: attribute is %q, %v", args, got, err)
		}
		if t.Failed() {
			t.Fatalf("after h5repack %s", strings.Join(args, " "))
		}
	}
}

// TestTools_Diff shows that h5diff finds no difference after h5repack.
func TestTools_Diff(t *testing.T) {
	b := newBuilder(t)
	b.chunked("x", "<u4", []uint64{37, 21}, []uint64{8, 21}, []Filter{Shuffle(4), Deflate(1)}, pattern(37*21*4), nil)
	b.plain("g/y", "<u4", []uint64{100}, pattern(400))
	path := b.file("a.h5")
	out := filepath.Join(t.TempDir(), "out.h5")
	tool(t, "h5repack", "-L", path, out)
	tool(t, "h5diff", path, out)
}

// TestTools_LargeFile shows that the tools read a file with many datasets and
// many chunks.
func TestTools_LargeFile(t *testing.T) {
	b := newBuilder(t)
	for i := range 2000 {
		b.plain(fmt.Sprintf("/many/dataset number %d", i), "<u4", nil, []byte{byte(i), byte(i >> 8), 0, 0})
	}
	b.chunked("/chunks", "|u1", []uint64{10_000}, []uint64{2}, nil, pattern(10_000), func(i uint64) bool { return i%10 == 3 })
	path := b.file("large.h5")
	if n := strings.Count(tool(t, "h5ls", "-r", path), "SCALAR"); n != 2000 {
		t.Errorf("h5ls shows %d datasets", n)
	}
	out := filepath.Join(t.TempDir(), "out.h5")
	tool(t, "h5repack", "-L", path, out)
	verify(t, openPath(t, out), b.want)
	tool(t, "h5diff", path, out)
}

// manifest saves the expected datasets for a script.
func manifest(t *testing.T, wants map[string]want) string {
	m := map[string]map[string]any{}
	for path, w := range wants {
		m[path] = map[string]any{"dims": w.dims, "hex": hex.EncodeToString(w.data)}
	}
	p, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "manifest")
	if err := os.WriteFile(path, p, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestH5py_ReadsEveryDataset lets h5py read a file with all kinds of datasets.
func TestH5py_ReadsEveryDataset(t *testing.T) {
	b := everything(t)
	for i := range 300 {
		b.plain(fmt.Sprintf("/many/ü%d", i), "<u4", nil, []byte{byte(i), byte(i >> 8), 0, 0})
	}
	out := python(t, `
import sys, json, h5py, numpy as np
f = h5py.File(sys.argv[1], 'r')
with open(sys.argv[2]) as m: want = json.load(m)
for path, w in want.items():
    d = f[path]
    assert list(d.shape[:len(w['dims'] or [])]) == (w['dims'] or []), (path, d.shape)
    if d.size:
        if d.shape == (): # numpy scalars have native order and no trailing NULs
            got = np.zeros((), ('V%d' % d.id.get_type().get_size()))
            d.id.read(h5py.h5s.ALL, h5py.h5s.ALL, got, mtype=d.id.get_type())
        else:
            got = d[()]
        got = got.tobytes().hex()
        assert got == w['hex'], (path, d.dtype, got, w['hex'])
kinds = [str(f['/types/t%d' % i].dtype) for i in range(len(f['/types']))]
assert kinds[:19] == 'int8 int16 int32 int64 uint8 uint16 uint32 uint64 >i2 >i4 >i8 >u2 >u4 >u8 float32 float64 >f4 >f8 bool'.split(), kinds
assert kinds[25:27] == ['complex64', 'complex128'], kinds
a = f['/types'].attrs
assert len(a) == 16 and a['s'].decode() == 'hello w\u00f6rld' and a['empty'] == b'' and list(a['ss']) == [b'a', b'', b'abc']
assert a['noss'].shape == (0,) and a['bool'] == True and a['bool'].dtype == bool and a['i'] == -5 and a['u64'] == 2**64-1
assert list(a['fs']) == [1, -2.5] and list(a['bytes']) == [1, 2, 255] and a['f32'].dtype == np.float32
v, s = f['/virtual'][()], f['/chunked/d2f0'][()]
assert (v[:8] == s[:8]).all() and (v[10:,5:] == s[10:,5:]).all() and not v[8:10].any() and not v[10:,:5].any()
assert list(f['/none/at/all']) == [] and len(f['/many']) == 300
f.close()
with h5py.File(sys.argv[1], 'r+') as f: # it can be changed, too
    f['/types/t0'][0, 0] = 5
    for i in range(20): f['/types/new%d' % i] = i
    f['/many/new'] = np.arange(5)
    f['/chunked/d2f0'][8:16] = 7
    f.attrs['new'] = 'x'
    del f['/scalars/t3']
with h5py.File(sys.argv[1], 'r') as f:
    assert f['/types/t0'][0, 0] == 5 and f['/many/new'][4] == 4 and f['/types/new19'][()] == 19 and f['/chunked/d2f0'][8, 3] == 7
print('fine')
`, b.file("all.h5"), manifest(t, b.want))
	if out != "fine\n" {
		t.Error(out)
	}
}

// TestVirtual_AcrossFiles reads datasets whose parts are in other files, and
// lets the tools read them.
func TestVirtual_AcrossFiles(t *testing.T) {
	dir := t.TempDir()
	data := pattern(40 * 8)
	dims := []uint64{10, 4}
	save := func(b *builder, name string) string {
		path := filepath.Join(dir, name)
		b.must(os.WriteFile(path, b.bytes(), 0o666))
		return path
	}
	var maps []Mapping
	for i, rows := range [][2]uint64{{0, 4}, {4, 6}} {
		b := newBuilder(t)
		b.chunked("/g/x", "<f8", dims, []uint64{2, 4}, []Filter{Deflate(1)}, append([]byte{}, data...), func(c uint64) bool { return c < rows[0]/2 || c >= (rows[0]+rows[1])/2 })
		name := fmt.Sprintf("part%d.h5", i)
		save(b, name)
		maps = append(maps, Mapping{File: name, Path: "/g/x", Start: []uint64{rows[0], 0}, Count: []uint64{rows[1], 4}})
	}
	b := newBuilder(t)
	b.must(b.w.Dataset("/g/x", DatasetSpec{Type: mustType(t, "<f8"), Dims: dims, Virtual: maps}))
	wide := []Mapping{{File: "part0.h5", Path: "/g/x", Start: []uint64{5}, Count: []uint64{1 << 32}}}
	b.must(b.w.Dataset("/g/wide", DatasetSpec{Type: mustType(t, "<f8"), Dims: []uint64{1 << 33}, Virtual: wide}))
	for i := range 1000 { // enough for several collections
		b.must(b.w.Dataset(fmt.Sprintf("/v/%d", i), DatasetSpec{Type: mustType(t, "<f8"), Dims: dims, Virtual: maps}))
	}
	path := save(b, "all.h5")
	out := python(t, `
import sys, h5py
f = h5py.File(sys.argv[1], 'r')
for path in ['/g/x', '/v/0', '/v/500', '/v/999']:
    assert f[path][()].tobytes().hex() == sys.argv[2], path
assert f['/g/wide'].virtual_sources()[0].vspace.get_select_bounds() == ((5,), (2**32+4,))
print('fine')
`, path, hex.EncodeToString(data))
	if out != "fine\n" {
		t.Error(out)
	}
	if dump := tool(t, "h5dump", "-p", "-d", "/g/x", path); !strings.Contains(dump, `FILE "part1.h5"`) {
		t.Errorf("h5dump does not show the mapping:\n%s", dump)
	}
	f := openPath(t, path)
	wants := map[string]want{"/g/x": {"<f8", dims, data}, "/v/500": {"<f8", dims, data}}
	d, err := f.Dataset("/g/x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.ReadAt(make([]byte, 1), 0); !errors.Is(err, ErrUnsupported) {
		t.Errorf("other files cannot be opened, but reading gave %v", err)
	}
	f.OpenSource = func(name string) (*File, error) { return openPath(t, filepath.Join(dir, name)), nil }
	verify(t, f, wants)
	d, err = f.Dataset("/g/wide")
	if err != nil || fmt.Sprint(d.Virtual) != fmt.Sprint(wide) {
		t.Errorf("%+v, %v", d, err)
	}
}
