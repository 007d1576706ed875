package ckpt

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt/ckpttest"
	"github.com/cairnrun/cairn/internal/hdf5"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// forge returns a file with the given header and table of blocks, and matching
// digests, around the datasets of a good file.
func forge(good *File, header, rows []byte) ([]byte, error) {
	var m map[string]any
	if json.Unmarshal(header, &m) == nil && m != nil {
		m["blocks"] = DigestText(rows)
		header, _ = json.Marshal(m)
	}
	f := hdf5.NewWriter()
	add := func(path string, d hdf5.DatasetSpec) error { return f.Dataset(path, d) }
	if len(header) == 0 {
		header = []byte("{}")
	}
	err := add("Header", hdf5.DatasetSpec{Type: hdf5.Type{Class: hdf5.String, Size: len(header)}, Data: header})
	if err == nil {
		err = f.Attr("Header", "digest", DigestText(header))
	}
	rows = rows[:len(rows)/blockBytes*blockBytes]
	if err == nil {
		err = add("Blocks", hdf5.DatasetSpec{Type: blockType, Dims: []uint64{uint64(len(rows) / blockBytes)}, Data: rows})
	}
	for i := range good.Header.Datasets {
		d := &good.Header.Datasets[i]
		p, rerr := good.readDataset(i)
		t, terr := hdf5.ParseType(d.Type)
		if err == nil && rerr == nil && terr == nil {
			err = add(d.Path, hdf5.DatasetSpec{Type: t, Dims: d.Dims, Data: p})
		}
	}
	if err != nil {
		return nil, err
	}
	super, meta, err := f.Finish(page)
	return append(append(super, make([]byte, page-len(super))...), meta...), err
}

// FuzzHostile loads files that an attacker has made: all digests are right, but
// the content is not. Any result is acceptable except a panic, a hang, or
// excessive use of memory.
func FuzzHostile(f *testing.F) {
	fsys := vfstest.NewMem()
	dir := save(f, fsys, Options{}, ckpttest.Sample(40))
	good, err := Open(fsys, dir.File(1))
	if err != nil {
		f.Fatal(err)
	}
	header, err := json.Marshal(good.Header)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(header, encodeBlocks(good.Blocks))
	f.Add([]byte(`{"format":4,"datasets":[{"path":"MemBlocks/x","pool":0,"type":"<f8","dims":[1152921504606846976],"chunk":[8192],"size":9223372036854775807,"block":65536}]}`), []byte{})
	f.Add([]byte(`{"format":4,"datasets":[{"path":"MemBlocks/x","pool":0,"type":"|u1","dims":[1099511627776],"size":1099511627776,"block":1099511627776}]}`), make([]byte, blockBytes))
	f.Fuzz(func(t *testing.T, header, rows []byte) {
		data, err := forge(good, header, rows)
		if err != nil {
			t.Skip(err)
		}
		one := &fileFS{data: data}
		load(one, "x")
		if s, err := Open(one, "x"); err == nil {
			s.Verify(ctx, nil)
			s.Close()
		}
	})
}

// TestForge_Loads makes sure that FuzzHostile starts from a file that loads.
func TestForge_Loads(t *testing.T) {
	fsys := vfstest.NewMem()
	dir := save(t, fsys, Options{}, ckpttest.Sample(40))
	good, err := Open(fsys, dir.File(1))
	if err != nil {
		t.Fatal(err)
	}
	header, _ := json.Marshal(good.Header)
	data, err := forge(good, header, encodeBlocks(good.Blocks))
	if err != nil {
		t.Fatal(err)
	}
	if v, err := load(&fileFS{data: data}, "x"); err != nil || v.Step != 7 {
		t.Fatalf("loaded %+v: %v", v, err)
	}
}

// TestOpen_OtherFormat refuses a file of another format version, and names
// both.
func TestOpen_OtherFormat(t *testing.T) {
	fsys := vfstest.NewMem()
	good, err := Open(fsys, save(t, fsys, Options{}, ckpttest.Sample(40)).File(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []int{Format - 1, Format + 1} {
		h := good.Header
		h.Format = version
		header, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		data, err := forge(good, header, encodeBlocks(good.Blocks))
		if err != nil {
			t.Fatal(err)
		}
		_, err = Open(&fileFS{data: data}, "x")
		if want := fmt.Sprintf("format %d, this program reads format %d", version, Format); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
