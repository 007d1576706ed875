package hdf5

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

// writeScript writes a file with every structure that h5py's library can be
// made to write, and a manifest of it.
const writeScript = `
import sys, json, h5py, numpy as np
out, mode, manifest = sys.argv[1:4]
opts = dict(default={}, latest=dict(libver='latest'), v108=dict(libver=('earliest', 'v108')), block=dict(userblock_size=1024))[mode] if mode != 'narrow' else None
if opts is None: # addresses and lengths of 4 bytes
    fcpl = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    fcpl.set_sizes(4, 4)
    f = h5py.File(h5py.h5f.create(out.encode(), h5py.h5f.ACC_TRUNC, fcpl))
else:
    f = h5py.File(out, 'w', **opts)
m = {}
def note(path, typ):
    d = f[path]
    m[path] = dict(type=typ, dims=list(d.shape), hex=d[()].tobytes().hex() if d.size else '')
def holes(path, size, at, n, chunk, **kw): # h5py takes seconds to read so many chunks
    d = f.create_dataset(path, (size,), '|i1', chunks=(chunk,), **kw)
    a = np.zeros(size, '|i1'); a[at:at + n] = 5; d[at:at + n] = 5
    m[path] = dict(type='|i1', dims=[size], hex=a.tobytes().hex())
rng = np.random.default_rng(1)
def some(shape, dtype):
    return rng.integers(0, 100, shape).astype(dtype)

for dt, typ in dict(i1='|i1', u1='|u1', b1='|b1', S7='S7').items():
    f['types/' + dt] = some((3, 2), dt); note('types/' + dt, typ)
for o in '<>':
    for dt in 'i2 i4 i8 u2 u4 u8 f4 f8'.split():
        f['types/' + o + dt] = some((3, 2), o + dt); note('types/' + o + dt, o + dt)
f['types/c8'] = some(5, 'c8'); note('types/c8', '{"r":0<f4,"i":4<f4}8')
f['types/c16'] = some(5, 'c16'); note('types/c16', '{"r":0<f8,"i":8<f8}16')
dt = np.dtype(dict(names=['a', 'b', 's', 'z'], formats=['<i4', ('>f4', (2, 3)), 'S5', '?'], offsets=[0, 8, 56, 61], itemsize=64))
a = np.zeros((2, 2), dt); a['a'] = some((2, 2), 'i4'); a['b'] = 1.5; a['s'] = b'hello'; a['z'][0, 1] = True
f['types/compound'] = a; note('types/compound', '{"a":0<i4,"b":8[2,3]>f4,"s":56S5,"z":61|b1}64')
dt = np.dtype([('in', [('x', '<u2'), ('y', '<u2')]), ('q', '<i8')])
a = np.zeros(3, dt); a['in']['y'] = 7; a['q'] = -1
f['types/nested'] = a; note('types/nested', '{"in":0{"x":0<u2,"y":2<u2}4,"q":4<i8}12')
f['types/scalar'] = np.float64(2.5); note('types/scalar', '<f8')
f['types/empty'] = np.zeros((0, 3), '<i4'); note('types/empty', '<i4')
f['types/utf8'] = np.array([b'abc', b'defgh'], h5py.string_dtype('utf-8', 5)); note('types/utf8', 'S5')
f['named'] = np.dtype('<i4')
f.create_dataset('types/committed', data=some(4, '<i4'), dtype=f['named']); note('types/committed', '<i4')

def chunked(name, shape, chunks, typ='<i4', **kw):
    d = f.create_dataset('chunks/' + name, shape, typ, chunks=chunks, **kw)
    d[...] = some(shape, typ)
    note('chunks/' + name, typ)
chunked('single', (7, 5), (7, 5))
chunked('singlez', (70, 50), (70, 50), compression=6, shuffle=True)
chunked('fixed', (33, 21), (4, 5))
chunked('fixedz', (33, 21), (4, 5), compression=1, shuffle=True, fletcher32=True)
chunked('paged', (5000,), (2,))
chunked('pagedz', (40, 40), (1, 1), typ='<i8', compression=1)
chunked('ext', (33, 21), (4, 5), maxshape=(None, 21))
chunked('ext2', (13, 31), (4, 5), maxshape=(13, None))
chunked('extlong', (8000,), (2,), maxshape=(None,))
chunked('extz', (3000,), (20,), maxshape=(None,), compression=4)
chunked('ext3', (7, 9, 11), (2, 3, 4), maxshape=(7, None, 30))
chunked('tree', (33, 21), (4, 5), maxshape=(None, None))
chunked('treez', (63, 51), (4, 5), maxshape=(None, None), compression=2, shuffle=True)
chunked('treelong', (80, 150), (1, 2), maxshape=(None, None))
chunked('limited', (33, 21), (4, 5), maxshape=(100, 50))
chunked('lzf', (9,), (3,), fletcher32=True)
d = f.create_dataset('chunks/holes', (50, 50), '<f8', chunks=(7, 8), fillvalue=1.25); d[3:9, 20:30] = 9; note('chunks/holes', '<f8')
holes('chunks/pagedholes', 100000, 60000, 100, 2)
holes('chunks/extholes', 100000, 60000, 100, 2, maxshape=(None,))
holes('chunks/extpaged', 300000, 250000, 50, 1, maxshape=(None,))
d = f.create_dataset('chunks/shrunk', (100, 10), '<i2', chunks=(10, 10), maxshape=(None, 10)); d[...] = 3; d.resize((55, 10)); note('chunks/shrunk', '<i2')
d = f.create_dataset('unwritten', (5, 5), '<i4', fillvalue=7); note('unwritten', '<i4')
def low(name, setup, typ='<i4', shape=(33, 21)):
    p = h5py.h5p.create(h5py.h5p.DATASET_CREATE); setup(p)
    t = h5py.h5t.py_create(np.dtype(typ))
    h5py.h5d.create(f['chunks'].id, name.encode(), t, h5py.h5s.create_simple(shape), p)
    f['chunks/' + name][...] = some(shape, typ); note('chunks/' + name, typ)
def implicit(p): p.set_chunk((4, 5)); p.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
low('implicit', implicit)
def compact(p): p.set_layout(h5py.h5d.COMPACT)
low('compact', compact)

for i in range(300): f['links/many%d' % i] = np.int32(i)
for i in range(7): f.create_group('links/few/g%d' % i)
f['links/soft'] = h5py.SoftLink('/types/i1')
f['links/relative'] = h5py.SoftLink('few/g3')
f['links/circle'] = h5py.SoftLink('/links/circle')
f['links/external'] = h5py.ExternalLink('other.h5', '/x')
f['hard'] = f['types/i1']; note('hard', '|i1')

d = f.create_group('attrs')
for i in range(200): d.attrs['attribute number %d' % i] = i
d = f['types/i1']
d.attrs['text'] = 'w\u00f6rld'; d.attrs['texts'] = ['a', '', 'bcd']; d.attrs['fixed'] = np.bytes_('abc')
d.attrs['ints'] = np.array([[1, -2], [3, 4]], '>i2'); d.attrs['f'] = np.float32(0.5); d.attrs['u'] = np.uint64(2**64 - 1)
d.attrs['bool'] = np.bool_(True); d.attrs['none'] = h5py.Empty('f8'); d.attrs['complex'] = 1 + 2j
d.attrs.create('named', 5, dtype=f['named'])
if mode == 'latest':
    f['attrs'].attrs['large'] = np.arange(20000)
f['bad/vlen'] = ['a', 'b']
f['bad/half'] = np.float16(1)
f['bad/enum'] = np.zeros(3, h5py.enum_dtype(dict(A=1, B=2), 'i4'))
f['bad/null'] = h5py.Empty('f8')
f.close()
with open(manifest, 'w') as o: json.dump(m, o)
`

// TestH5py_FilesAreRead reads files that h5py has written, with its various
// settings.
func TestH5py_FilesAreRead(t *testing.T) {
	modes := []string{"default", "latest"}
	if os.Getenv("CAIRN_LONG") != "" {
		modes = append(modes, "v108", "block", "narrow")
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, list := filepath.Join(dir, "x.h5"), filepath.Join(dir, "manifest")
			python(t, writeScript, path, mode, list)
			p, err := os.ReadFile(list)
			if err != nil {
				t.Fatal(err)
			}
			var m map[string]struct {
				Type, Hex string
				Dims      []uint64
			}
			if err := json.Unmarshal(p, &m); err != nil {
				t.Fatal(err)
			}
			wants := map[string]want{}
			for path, w := range m {
				data, err := hex.DecodeString(w.Hex)
				if err != nil {
					t.Fatal(err)
				}
				wants[path] = want{w.Type, w.Dims, data}
			}
			file, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			f := openBytes(t, file)
			checkPython(t, f, wants, mode)
			if mode == "latest" {
				checkKinds(t, f, file)
			}
		})
	}
}

func checkPython(t *testing.T, f *File, wants map[string]want, mode string) {
	if len(wants) < 50 {
		t.Fatalf("only %d datasets", len(wants))
	}
	verify(t, f, wants)
	names, err := f.List("/links")
	if err != nil || len(names) != 305 || !slices.Contains(names, "many299") {
		t.Errorf("links %q, %v", names, err)
	}
	for i := range 300 {
		d, err := f.Dataset(fmt.Sprintf("/links/many%d", i))
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 4)
		if _, err := d.ReadAt(p, 0); err != nil || int(le.Uint32(p)) != i {
			t.Errorf("many%d: %v %v", i, p, err)
		}
		if v, err := f.Attr("attrs", fmt.Sprintf("attribute number %d", i)); i < 200 && (err != nil || v != int64(i)) {
			t.Errorf("attribute number %d is %v, %v", i, v, err)
		}
	}
	verify(t, f, map[string]want{"/links/soft": wants["types/i1"]})
	if names, err := f.List("/links/relative"); err != nil || len(names) != 0 {
		t.Errorf("soft link: %q, %v", names, err)
	}
	for name, want := range map[string]any{"text": "wörld", "texts": []string{"a", "", "bcd"}, "fixed": "abc", "ints": []int64{1, -2, 3, 4},
		"f": 0.5, "u": ^uint64(0), "bool": true, "named": int64(5)} {
		if got, err := f.Attr("types/i1", name); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("attribute %s is %#v, %v", name, got, err)
		}
	}
	if mode == "latest" {
		v, err := f.Attr("attrs", "large")
		if a, ok := v.([]int64); !ok || len(a) != 20000 || a[19999] != 19999 {
			t.Errorf("large attribute: %v", err)
		}
	}
	for _, path := range []string{"bad/vlen", "bad/half", "bad/enum", "bad/null", "links/external"} {
		if _, err := f.Dataset(path); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, name := range []string{"none", "complex"} {
		if _, err := f.Attr("types/i1", name); !errors.Is(err, ErrUnsupported) {
			t.Errorf("attribute %s: %v", name, err)
		}
	}
	if _, err := f.Dataset("links/circle"); !errors.Is(err, ErrNotFound) {
		t.Errorf("circle of soft links: %v", err)
	}
}

// checkKinds makes sure that the library chose the expected chunk indexes.
// Otherwise the test would cover less than it claims.
func checkKinds(t *testing.T, f *File, file []byte) {
	for name, kind := range map[string]int{"single": indexSingle, "singlez": indexSingle, "implicit": indexImplicit, "fixed": indexFixed,
		"pagedz": indexFixed, "extlong": indexExtensible, "treelong": indexTreeV2} {
		d, err := f.Dataset("chunks/" + name)
		if err != nil || d.layout.version != 4 || d.layout.index != kind {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	for _, sig := range []string{"FRHP", "FHDB", "FHIB", "BTHD", "BTLF", "BTIN", "FAHD", "FADB", "EAHD", "EAIB", "EASB", "EADB", "OCHK", "GCOL"} {
		if !bytes.Contains(file, []byte(sig)) {
			t.Errorf("no %s in the file", sig)
		}
	}
}
