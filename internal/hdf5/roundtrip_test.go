package hdf5

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestRoundTrip(t *testing.T) {
	b := everything(t)
	b.chunked("/zstd/a", "<f8", []uint64{100, 33}, []uint64{16, 10}, []Filter{Zstd(3)}, pattern(26400), nil)
	b.chunked("/zstd/b", "<f8", []uint64{100, 33}, []uint64{16, 10}, []Filter{Shuffle(8), Zstd(1), Fletcher32()}, pattern(26400), nil)
	file := b.bytes()
	f := openBytes(t, file)
	verify(t, f, b.want)

	got, err := f.List("/")
	if err != nil || !slices.Equal(got, []string{"chunked", "none", "plain", "scalars", "types", "views", "virtual", "zstd"}) {
		t.Errorf("List(/) = %q, %v", got, err)
	}
	for _, path := range []string{"", "/", "/types", "chunked/d1f0"} {
		for _, a := range allAttrs {
			got, err := f.Attr(path, a.name)
			if err != nil || !reflect.DeepEqual(got, a.back) {
				t.Errorf("attribute %s of %s = %#v, %v", a.name, path, got, err)
			}
		}
	}
	if names, err := f.Attrs("/types"); err != nil || len(names) != len(allAttrs) {
		t.Errorf("Attrs = %q, %v", names, err)
	}
	d, err := f.Dataset("/virtual")
	if err != nil || len(d.Virtual) != 2 || !reflect.DeepEqual(d.Virtual[1], Mapping{".", "/chunked/d2f0", []uint64{10, 5}, []uint64{27, 16}, nil}) {
		t.Errorf("virtual dataset: %+v, %v", d, err)
	}
	d, err = f.Dataset("/plain/contiguous")
	if err != nil {
		t.Fatal(err)
	}
	if at, ok := d.Contiguous(); !ok || !bytes.Equal(file[at:at+4000], b.want["/plain/contiguous"].data) {
		t.Errorf("contiguous at %d, %v", at, ok)
	}
	d, err = f.Dataset("/chunked/d2f2")
	if err != nil || !reflect.DeepEqual(d.Filters, []Filter{Shuffle(4), Deflate(1)}) || !slices.Equal(d.Chunk, []uint64{8, 21}) {
		t.Errorf("%+v, %v", d, err)
	}
	if cs, err := d.Chunks(); err != nil || len(cs) != 3 || cs[1].Index != 2 || cs[2].Index != 3 {
		t.Errorf("chunks %v, %v", cs, err)
	}
	for name, call := range map[string]func() error{
		"dataset":   func() error { _, err := f.Dataset("/types/nope"); return err },
		"group":     func() error { _, err := f.Dataset("/types"); return err },
		"list":      func() error { _, err := f.List("/types/t0"); return err },
		"below":     func() error { _, err := f.Dataset("/types/t0/x"); return err },
		"attribute": func() error { _, err := f.Attr("/types", "nope"); return err },
	} {
		if err := call(); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v is not ErrNotFound", name, err)
		}
	}
}

func TestWriter_Deterministic(t *testing.T) {
	if !bytes.Equal(everything(t).bytes(), everything(t).bytes()) {
		t.Error("the same calls gave different bytes")
	}
}

func TestRoundTrip_ManyChunks(t *testing.T) {
	const n = 200_000
	w := NewWriter()
	spec := DatasetSpec{Type: mustType(t, "|u1"), Dims: []uint64{4, n}, Chunk: []uint64{1, 2}}
	for i := range uint64(n) {
		spec.Chunks = append(spec.Chunks, Chunk{Index: 2*i + i%2, Addr: 4096 + 2*i, Size: 2})
	}
	if err := w.Dataset("x", spec); err != nil {
		t.Fatal(err)
	}
	super, meta, err := w.Finish(4096 + 2*n)
	if err != nil {
		t.Fatal(err)
	}
	file := append(append(super, make([]byte, 4096+2*n-len(super))...), meta...)
	d, err := openBytes(t, file).Dataset("x")
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.Chunks()
	if err != nil || !slices.Equal(got, spec.Chunks) {
		t.Fatalf("%d chunks, %v", len(got), err)
	}
}

func TestRoundTrip_ManyLinks(t *testing.T) {
	w := NewWriter()
	var names []string
	for i := range 20_000 {
		name := fmt.Sprintf("ü%s%d", strings.Repeat("n", i%240), i*7919%20_000)
		names = append(names, name)
		if err := w.Dataset("many/"+name, DatasetSpec{Type: mustType(t, "<u4"), Data: []byte{byte(i), byte(i >> 8), 0, 0}}); err != nil {
			t.Fatal(err)
		}
	}
	super, meta, err := w.Finish(4096)
	if err != nil {
		t.Fatal(err)
	}
	f := openBytes(t, append(append(super, make([]byte, 4096-len(super))...), meta...))
	for i, name := range names {
		d, err := f.Dataset("/many/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var p [4]byte
		if _, err := d.ReadAt(p[:], 0); err != nil || p != [4]byte{byte(i), byte(i >> 8)} {
			t.Fatalf("%s: %v %v", name, p, err)
		}
	}
	slices.Sort(names)
	if got, err := f.List("many"); err != nil || !slices.Equal(got, names) {
		t.Errorf("%d names, %v", len(got), err)
	}
}

func TestWriter_SmallTreesForSmallDatasets(t *testing.T) {
	b := newBuilder(t)
	for i := range 1000 {
		b.chunked(fmt.Sprintf("d%d", i), "|u1", []uint64{8}, []uint64{8}, nil, pattern(8), nil)
	}
	verify(t, openBytes(t, b.bytes()), b.want)
	if _, meta, _ := b.w.Finish(1 << 20); len(meta) > 500_000 {
		t.Errorf("%d bytes of metadata for 1000 chunks", len(meta))
	}
}

func TestReadAt_Concurrent(t *testing.T) {
	b := newBuilder(t)
	b.chunked("x", "<u4", []uint64{64, 64}, []uint64{10, 10}, []Filter{Deflate(1)}, pattern(64*64*4), nil)
	f := openBytes(t, b.bytes())
	d, err := f.Dataset("x")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			p := make([]byte, d.Size())
			if _, err := d.ReadAt(p, 0); err != nil || !bytes.Equal(p, b.want["x"].data) {
				t.Errorf("read differs: %v", err)
			}
			verify(t, f, b.want)
		})
	}
	wg.Wait()
}

func TestWriter_Refuses(t *testing.T) {
	u1 := mustType(t, "|u1")
	var big Type
	big.Class = Compound
	for i := range 3000 {
		big.Fields = append(big.Fields, Field{fmt.Sprintf("member number %d", i), i, u1})
	}
	big.Size = 3000
	one := []uint64{1}
	for name, c := range map[string]struct {
		path string
		d    DatasetSpec
	}{
		"data too short":     {"x", DatasetSpec{Type: u1, Dims: []uint64{2}, Data: []byte{1}}},
		"data missing":       {"x", DatasetSpec{Type: u1}},
		"bad type":           {"x", DatasetSpec{Type: Type{Class: Int, Size: 3}, Data: make([]byte, 3)}},
		"chunk too large":    {"x", DatasetSpec{Type: u1, Dims: []uint64{3}, Chunk: []uint64{4}}},
		"chunk zero":         {"x", DatasetSpec{Type: u1, Dims: []uint64{3}, Chunk: []uint64{0}}},
		"chunk rank":         {"x", DatasetSpec{Type: u1, Dims: []uint64{3}, Chunk: []uint64{1, 1}}},
		"chunk of 4 GiB":     {"x", DatasetSpec{Type: u1, Dims: []uint64{1 << 33}, Chunk: []uint64{1 << 32}}},
		"chunk order":        {"x", DatasetSpec{Type: u1, Dims: []uint64{3}, Chunk: one, Chunks: []Chunk{{1, 4096, 1, 0}, {0, 4097, 1, 0}}}},
		"chunk range":        {"x", DatasetSpec{Type: u1, Dims: []uint64{3}, Chunk: one, Chunks: []Chunk{{3, 4096, 1, 0}}}},
		"chunk size":         {"x", DatasetSpec{Type: u1, Dims: []uint64{3}, Chunk: one, Chunks: []Chunk{{0, 4096, 2, 0}}}},
		"chunk mask":         {"x", DatasetSpec{Type: u1, Dims: []uint64{3}, Chunk: one, Chunks: []Chunk{{0, 4096, 1, 1}}}},
		"dims overflow":      {"x", DatasetSpec{Type: u1, Dims: []uint64{1 << 40, 1 << 40}, Chunk: []uint64{1, 1}}},
		"filters unchunked":  {"x", DatasetSpec{Type: u1, Filters: []Filter{Deflate(1)}, Data: []byte{1}}},
		"name empty":         {"/", DatasetSpec{Type: u1, Data: []byte{1}}},
		"name dot":           {"/a/.", DatasetSpec{Type: u1, Data: []byte{1}}},
		"name NUL":           {"a\x00", DatasetSpec{Type: u1, Data: []byte{1}}},
		"name UTF-8":         {"a\xff", DatasetSpec{Type: u1, Data: []byte{1}}},
		"name taken":         {"taken", DatasetSpec{Type: u1, Data: []byte{1}}},
		"dataset as group":   {"taken/x", DatasetSpec{Type: u1, Data: []byte{1}}},
		"mapping outside":    {"x", DatasetSpec{Type: u1, Dims: []uint64{3}, Virtual: []Mapping{{File: ".", Path: "y", Start: []uint64{2}, Count: []uint64{2}}}}},
		"virtual with bytes": {"x", DatasetSpec{Type: u1, Dims: []uint64{3}, Data: []byte{1, 2, 3}, Virtual: []Mapping{{File: ".", Path: "y", Start: []uint64{0}, Count: []uint64{1}}}}},
	} {
		w := NewWriter()
		if err := w.Dataset("taken", DatasetSpec{Type: u1, Data: []byte{1}}); err != nil {
			t.Fatal(err)
		}
		if err := w.Dataset(c.path, c.d); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	w := NewWriter()
	if err := w.Dataset("x", DatasetSpec{Type: big, Data: make([]byte, 3000)}); err == nil {
		if _, _, err = w.Finish(4096); err == nil {
			t.Error("a type of more than 64 KiB was accepted")
		}
	}
	w = NewWriter()
	if err := w.Dataset("x", DatasetSpec{Type: u1, Dims: one, Chunk: one, Chunks: []Chunk{{0, 8192, 1, 0}}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Finish(8192); err == nil {
		t.Error("a chunk past the metadata was accepted")
	}
	for name, v := range map[string]any{"large": strings.Repeat("x", 66000), "many": make([]int64, 9000), "map": map[string]int{},
		"nil": nil, "NUL": "a\x00", "nested": [][]int{{1}}} {
		if err := w.Attr("/", name, v); err == nil {
			t.Errorf("attribute %s was accepted", name)
		}
	}
	if err := w.Attr("/none", "a", 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("attribute of nothing: %v", err)
	}
	if err := w.Attr("/", "twice", 1); err != nil {
		t.Error(err)
	}
	if err := w.Attr("/", "twice", 1); err == nil {
		t.Error("an attribute was accepted twice")
	}
	if err := w.Attr("/", "largest", make([]byte, 65000)); err != nil {
		t.Error(err)
	}
}

func TestParseType(t *testing.T) {
	for _, s := range allTypes {
		typ, err := ParseType(s)
		if err != nil || typ.String() != s {
			t.Errorf("%s: %s, %v", s, typ, err)
		}
		c := &cursor{b: appendType(nil, typ), osz: 8, lsz: 8}
		back, _, err := decodeType(c, 0)
		if err != nil || !back.Equal(typ) || c.left() != 0 {
			t.Errorf("%s came back as %s, %v", s, back, err)
		}
	}
	for _, s := range []string{"", "<", "<i", "<i3", "<i1", "|i2", "<f2", "<b1", "|b2", "S", "S0", "S007", "S99999999999", "[]<i4", "[0]<i4",
		"[3<i4", "[3]", "{}0", `{"a":0<i4}3`, `{"a":0<i4,"a":4<i4}8`, `{"a":0<i4,"b":2<i4}8`, "{`a`:0<i4}4", `{"":0|i1}1`,
		"<i4x", "[65536,65536]|i1", strings.Repeat("[1]", 100) + "|i1", "?", "<x4", "< 4"} {
		if typ, err := ParseType(s); !errors.Is(err, ErrType) || !errors.Is(err, ErrUnsupported) {
			t.Errorf("%q: %v, %v", s, typ, err)
		}
	}
}

// TestFilters encodes and decodes with all combinations of filters. A filter
// that makes a chunk larger is left out.
func TestFilters(t *testing.T) {
	for _, fs := range [][]Filter{nil, {Deflate(6)}, {Shuffle(8)}, {Shuffle(3), Deflate(1)}, {Zstd(3)}, {Shuffle(4), Zstd(9), Fletcher32()},
		{Fletcher32(), Zstd(1)}, {Fletcher32(), Shuffle(2), Deflate(1), Zstd(1)}, {Shuffle(16), Shuffle(5), Zstd(1)}} {
		for _, src := range [][]byte{pattern(100_001), random(5000), pattern(7), {1}} {
			orig := slices.Clone(src)
			out, mask, err := EncodeChunk(fs, src, make([]byte, 0, 1000))
			if err != nil || !bytes.Equal(src, orig) {
				t.Fatalf("%v: %v", fs, err)
			}
			all := uint32(1<<len(fs) - 1)
			if len(out) > len(src) || mask != 0 && mask != all || mask == all && !bytes.Equal(out, src) {
				t.Errorf("%v: %d bytes became %d with mask %#x", fs, len(src), len(out), mask)
			}
			stored := slices.Clone(out)
			back, err := DecodeChunk(fs, mask, stored, make([]byte, len(src)))
			if err != nil || !bytes.Equal(back, src) {
				t.Errorf("%v: chunk of %d bytes differs: %v", fs, len(src), err)
			}
			if len(src) < 100 || mask != 0 {
				continue
			}
			for _, n := range []int{len(src) - 1, len(src) + 1, 10, 0} {
				if _, err := DecodeChunk(fs, mask, stored, make([]byte, n)); !errors.Is(err, ErrCorrupt) {
					t.Errorf("%v: decoding to %d bytes: %v", fs, n, err)
				}
			}
			for _, n := range []int{len(stored) - 1, len(stored) / 2, 1, 0} {
				if _, err := DecodeChunk(fs, mask, stored[:n], make([]byte, len(src))); !errors.Is(err, ErrCorrupt) {
					t.Errorf("%v: decoding %d of %d bytes: %v", fs, n, len(stored), err)
				}
			}
			if slices.ContainsFunc(fs, func(f Filter) bool { return f.ID == FilterFletcher32 || f.ID == FilterDeflate }) {
				stored[len(stored)/2] ^= 4
				if _, err := DecodeChunk(fs, mask, stored, make([]byte, len(src))); !errors.Is(err, ErrCorrupt) {
					t.Errorf("%v: a flipped bit was not noticed: %v", fs, err)
				}
			}
		}
	}
	if _, err := DecodeChunk([]Filter{{ID: 999}}, 0, []byte{1}, make([]byte, 1)); !errors.Is(err, ErrUnsupported) {
		t.Errorf("unknown filter: %v", err)
	}
	if out, err := DecodeChunk([]Filter{{ID: 999}}, 1, []byte{1}, make([]byte, 1)); err != nil || out[0] != 1 {
		t.Errorf("unknown filter, masked: %v %v", out, err)
	}
}

// TestChecksums compares checksums with published values.
func TestChecksums(t *testing.T) {
	// The expected values were published with the algorithm, or computed by
	// hand.
	if got := lookup3([]byte("Four score and seven years ago")); got != 0x17770551 {
		t.Errorf("lookup3 = %#x", got)
	}
	if got := lookup3(nil); got != 0xdeadbeef {
		t.Errorf("lookup3 of nothing = %#x", got)
	}
	if got := fletcher32([]byte{1, 2, 3}); got != 0x0504_0402 {
		t.Errorf("fletcher32 = %#x", got)
	}
}
