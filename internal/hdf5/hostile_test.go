package hdf5

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
)

// walk reads everything in a file, within bounds, and returns all errors.
func walk(r *bytes.Reader) (errs []error) {
	f, err := Open(r, r.Size())
	if err != nil {
		return []error{err}
	}
	objects := 0
	buf := make([]byte, 4096)
	var visit func(path string, depth int)
	visit = func(path string, depth int) {
		if objects++; objects > 200 || depth > 8 {
			return
		}
		attrs, err := f.Attrs(path)
		errs = append(errs, err)
		for _, a := range attrs[:min(len(attrs), 50)] {
			_, err := f.Attr(path, a)
			errs = append(errs, err)
		}
		names, err := f.List(path)
		if err == nil {
			for _, name := range names[:min(len(names), 100)] {
				visit(path+"/"+name, depth+1)
			}
			return
		}
		d, err2 := f.Dataset(path)
		if err2 != nil {
			errs = append(errs, err, err2)
			return
		}
		cs, err := d.Chunks()
		errs = append(errs, err)
		if n := uint64(r.Size()); uint64(len(cs)) > n {
			panic(fmt.Sprintf("%d chunks in %d bytes", len(cs), n))
		}
		for _, off := range []int64{0, d.Size() / 2, max(0, d.Size()-4096)} {
			n, err := d.ReadAt(buf, off)
			if err == nil && n != len(buf) {
				panic("short read without error")
			}
			if off+int64(n) != d.Size() {
				errs = append(errs, err)
			}
		}
	}
	visit("", 0)
	return errs
}

// small returns a small file with one of each structure.
func small(t testing.TB) []byte {
	b := newBuilder(t)
	b.raw = b.raw[:64]
	spec := DatasetSpec{Type: mustType(t, "<u2"), Dims: []uint64{5, 3}, Chunk: []uint64{2, 3}}
	spec.Filters = []Filter{Shuffle(2), Deflate(1)}
	for i := range uint64(3) {
		out, mask, err := EncodeChunk(spec.Filters, make([]byte, 12), nil)
		b.must(err)
		spec.Chunks = append(spec.Chunks, Chunk{i, uint64(len(b.raw)), uint64(len(out)), mask})
		b.raw = append(b.raw, out...)
	}
	for len(b.raw)%8 != 0 {
		b.raw = append(b.raw, 0)
	}
	b.must(b.w.Dataset("g/c", spec))
	b.plain("g/p", `{"a":0[2]<f4,"b":8|b1}9`, []uint64{2}, make([]byte, 18))
	b.must(b.w.Attr("g/c", "s", []string{"x", "yz"}))
	super, meta, err := b.w.Finish(uint64(len(b.raw)))
	b.must(err)
	file := append(b.raw, meta...)
	copy(file, super)
	return file
}

func checkErrors(t *testing.T, what string, errs []error) {
	for _, err := range errs {
		if err != nil && !wrapped(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestRead_FlippedBits flips every bit of a file, one at a time. Errors must be
// those of the package, and most flips must be noticed.
func TestRead_FlippedBits(t *testing.T) {
	file := small(t)
	for _, err := range walk(bytes.NewReader(file)) {
		if err != nil {
			t.Fatal(err)
		}
	}
	noticed := 0
	for i := range 8 * len(file) {
		file[i/8] ^= 1 << (i % 8)
		errs := walk(bytes.NewReader(file))
		checkErrors(t, fmt.Sprintf("bit %d of byte %d", i%8, i/8), errs)
		if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
			noticed++
		}
		file[i/8] ^= 1 << (i % 8)
	}
	t.Logf("%d of %d flipped bits were noticed", noticed, 8*len(file))
	if noticed < 8*len(file)/2 {
		t.Error("that is too few: all headers have checksums")
	}
}

// TestOpen_Truncated truncates a file at every length.
func TestOpen_Truncated(t *testing.T) {
	file := small(t)
	for n := range len(file) {
		_, err := Open(bytes.NewReader(file[:n]), int64(n))
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d of %d bytes: %v", n, len(file), err)
		}
	}
	// The file may also be shorter than its stated size.
	f, err := Open(bytes.NewReader(file[:len(file)/2]), int64(len(file)))
	if err == nil {
		_, err = f.List("/")
	}
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("half a file was taken for a whole one: %v", err)
	}
}

// reseal corrects all lookup3 checksums, so that the reader does not stop at
// them.
func reseal(file []byte) {
	if len(file) >= 48 {
		le.PutUint32(file[44:], lookup3(file[:44]))
	}
	for at := 0; at+8 < len(file); at++ {
		if string(file[at:at+4]) != "OHDR" {
			continue
		}
		c := cursor{b: file[at:], osz: 8, lsz: 8}
		c.skip(5)
		flags := c.u8()
		if flags&0x20 != 0 {
			c.skip(16)
		}
		n := c.uint(1 << (flags & 3))
		if end := uint64(c.pos) + n; !c.bad && n < uint64(len(file)) && uint64(at)+end+4 <= uint64(len(file)) {
			le.PutUint32(file[uint64(at)+end:], lookup3(file[at:uint64(at)+end]))
		}
	}
}

// TestRead_ChangesWithValidChecksums changes every byte behind the first 48,
// and makes the checksums fit.
func TestRead_ChangesWithValidChecksums(t *testing.T) {
	orig := small(t)
	for i := 48; i < len(orig); i++ {
		for _, v := range []byte{0x00, 0xff, orig[i] + 1, orig[i] ^ 0x80} {
			file := slices.Clone(orig)
			file[i] = v
			reseal(file)
			checkErrors(t, fmt.Sprintf("byte %d set to %#x", i, v), walk(bytes.NewReader(file)))
		}
	}
}

// TestRead_CraftedFiles reads files with valid checksums whose structures are
// circles, appear twice, or ask for too much memory.
func TestRead_CraftedFiles(t *testing.T) {
	u1 := mustType(t, "|u1")
	base := func() ([]byte, func(string) int) {
		w := NewWriter()
		spec := DatasetSpec{Type: u1, Dims: []uint64{1 << 62}, Chunk: []uint64{1 << 31}, Filters: []Filter{Deflate(1)}}
		for i := range uint64(100) {
			spec.Chunks = append(spec.Chunks, Chunk{Index: i, Addr: 48 + i, Size: 1})
		}
		if err := w.Dataset("x", spec); err != nil {
			t.Fatal(err)
		}
		super, meta, err := w.Finish(4096)
		if err != nil {
			t.Fatal(err)
		}
		file := append(append(super, make([]byte, 4096-len(super))...), meta...)
		return file, func(s string) int {
			i := bytes.LastIndex(file, []byte(s))
			if i < 0 {
				t.Fatalf("no %s", s)
			}
			return i
		}
	}
	open := func(file []byte) (*Dataset, []Chunk, error) {
		reseal(file)
		d, err := openBytes(t, file).Dataset("x")
		if err != nil {
			return nil, nil, err
		}
		cs, err := d.Chunks()
		return d, cs, err
	}
	file, _ := base()
	d, cs, err := open(file)
	if err != nil || len(cs) != 100 {
		t.Fatal(len(cs), err)
	}
	// A chunk of 2 GiB cannot decode from one byte: nothing may be allocated
	// for it.
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = d.ReadAt(make([]byte, 10), 0)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrCorrupt) || after.TotalAlloc-before.TotalAlloc > 1<<20 {
		t.Errorf("%v, %d bytes allocated", err, after.TotalAlloc-before.TotalAlloc)
	}
	// Far beyond the stored chunks, the dataset reads as zeros, at once.
	p := bytes.Repeat([]byte{1}, 1000)
	if n, err := d.ReadAt(p, 1<<61); n != 1000 || err != nil || !bytes.Equal(p, make([]byte, 1000)) {
		t.Errorf("%d, %v", n, err)
	}

	// An inner B-tree node that has itself as a child.
	file, find := base()
	root := find("TREE")
	if file[root+5] == 0 {
		t.Fatal("the B-tree has no inner node")
	}
	le.PutUint64(file[root+24+24:], uint64(root))
	if _, _, err := open(file); !errors.Is(err, ErrCorrupt) {
		t.Errorf("B-tree in a circle: %v", err)
	}
	// The same leaf twice.
	file, find = base()
	root = find("TREE")
	le.PutUint64(file[root+24+24+32:], le.Uint64(file[root+24+24:]))
	if _, _, err := open(file); !errors.Is(err, ErrCorrupt) {
		t.Errorf("B-tree leaf twice: %v", err)
	}
	// A continuation that leads back.
	at := uint64(4096)
	h := header{}
	h.add(msgContinue, 0, le.AppendUint64(le.AppendUint64(nil, at), 34))
	h.add(msgContinue, 0, le.AppendUint64(le.AppendUint64(nil, at), 1<<63))
	e := emitter{at: at}
	e.header(&h)
	f := openBytes(t, append(slices.Clone(file[:4096]), append(e.meta, make([]byte, len(file))...)...))
	f.root = at
	if _, err := f.List("/"); !errors.Is(err, ErrCorrupt) {
		t.Errorf("continuation in a circle: %v", err)
	}
}

// TestRead_DamagedLibraryFiles does random damage to files of the library, with
// all its structures; see testdata/seed.py.
func TestRead_DamagedLibraryFiles(t *testing.T) {
	for _, mode := range []string{"default", "latest"} {
		orig, err := os.ReadFile("testdata/" + mode + ".h5")
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range walk(bytes.NewReader(orig)) {
			if err != nil {
				t.Fatal(err)
			}
		}
		noise := random(len(orig))
		start := time.Now()
		for i := 0; time.Since(start) < time.Second/2 && i < len(orig); i++ {
			at := i * 7919 % len(orig)
			file := slices.Clone(orig)
			file[at] = noise[i]
			checkErrors(t, fmt.Sprintf("%s, byte %d", mode, at), walk(bytes.NewReader(file)))
		}
	}
}

// FuzzOpen opens and reads arbitrary files: errors are those of the package,
// and nothing takes too long.
func FuzzOpen(f *testing.F) {
	f.Add(small(f))
	f.Add(everything(f).bytes())
	seeds, _ := filepath.Glob("testdata/*.h5")
	for _, s := range seeds {
		if p, err := os.ReadFile(s); err == nil {
			f.Add(p)
		}
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		start := time.Now()
		checkErrors(t, "as is", walk(bytes.NewReader(file)))
		file = slices.Clone(file)
		reseal(file)
		checkErrors(t, "resealed", walk(bytes.NewReader(file)))
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

// FuzzDecodeChunk decodes arbitrary chunks: the result has the right size, or
// is an error.
func FuzzDecodeChunk(f *testing.F) {
	for _, fs := range [][]Filter{{Deflate(1)}, {Zstd(1)}, {Shuffle(3), Zstd(1), Fletcher32()}} {
		out, mask, err := EncodeChunk(fs, pattern(1000), nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(out, mask, uint8(0))
	}
	f.Fuzz(func(t *testing.T, stored []byte, mask uint32, order uint8) {
		all := []Filter{Shuffle(3), Deflate(1), Zstd(1), Fletcher32()}
		fs := append(all[order%4:], all[:order%4]...)
		out, err := DecodeChunk(fs, mask, stored, make([]byte, 1000))
		if err != nil && !wrapped(err) || err == nil && len(out) != 1000 {
			t.Errorf("%d bytes, %v", len(out), err)
		}
	})
}
