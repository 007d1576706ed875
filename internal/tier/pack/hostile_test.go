//go:build linux

package pack

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
)

// forge returns a pack with some data and an index.
func forge(t testing.TB, data string, x *Index) []byte {
	t.Helper()
	text, err := store.EncodeRecord(x)
	if err != nil {
		t.Fatal(err)
	}
	out := append([]byte(magic), data...)
	at := len(out)
	out = append(out, text...)
	out = binary.LittleEndian.AppendUint64(out, uint64(at))
	out = binary.LittleEndian.AppendUint64(out, uint64(len(text)))
	return append(out, magic...)
}

func indexOf(files ...File) *Index {
	return &Index{Format: format, Run: run, Attempt: attempt, Index: 1, Ranks: 1, Home: "/home/me", Files: files}
}

// object stores a pack on a host.
func (h *host) object(text []byte) Object {
	h.t.Helper()
	var d tier.Digester
	d.Write(text)
	o := Object{Name: Name(0, 1, d.Digest()), Size: int64(len(text))}
	o.Path = filepath.Join(h.dir, o.Name)
	if err := os.WriteFile(o.Path, text, 0o600); err != nil {
		h.t.Fatal(err)
	}
	return o
}

// TestUnpack_Hostile has packs that Make does not write: each is refused, and
// nothing is changed.
func TestUnpack_Hostile(t *testing.T) {
	const data = "0123456789"
	hello := []Extent{{Off: int64(len(magic)), N: 5, Digest: digestOf([]byte("01234"))}}
	whole := func(path string) File { return File{Path: path, Kind: kindFile, Mode: 0o644, Size: 5, Extents: hello} }
	with := func(f File, change func(f *File)) *Index {
		change(&f)
		return indexOf(f)
	}
	other := strings.Repeat("d", 32)
	for name, c := range map[string]struct {
		x    *Index
		want string
	}{
		"up":             {indexOf(whole("./../x")), "is no path"},
		"up later":       {indexOf(whole("./a/../../x")), "is no path"},
		"home itself":    {indexOf(whole("./")), "is no path"},
		"relative":       {indexOf(whole("x")), "is no path"},
		"root":           {indexOf(whole("/")), "is no path"},
		"not clean":      {indexOf(whole("/tmp/../etc/x")), "is no path"},
		"with a zero":    {indexOf(whole("./a\x00b")), "is no path"},
		"outside":        {indexOf(whole("/tmp/cairn-pack-test")), "outside the working directory"},
		"not own":        {indexOf(whole("run:ckpt/run-id")), "no file of the rank"},
		"own up":         {indexOf(whole("run:output/../../x")), "is no path"},
		"own link":       {indexOf(File{Path: "run:output/rank-0000.out", Kind: kindLink, To: "/etc/passwd"}), "a link"},
		"twice":          {indexOf(whole("./a"), whole("./a")), "twice"},
		"kind":           {with(whole("./a"), func(f *File) { f.Kind = "device" }), `"device"`},
		"mode":           {with(whole("./a"), func(f *File) { f.Mode = 0o4755 }), "mode"},
		"negative size":  {with(whole("./a"), func(f *File) { f.Size = -1 }), "-1 bytes"},
		"wrong size":     {with(whole("./a"), func(f *File) { f.Size = 6 }), "extents of 5"},
		"too large":      {with(whole("./a"), func(f *File) { f.Extents = []Extent{{Pack: zeros, N: math.MaxInt64}} }), "bytes from"},
		"after the end":  {with(whole("./a"), func(f *File) { f.Extents = []Extent{{Off: int64(len(magic)) + 8, N: 5}} }), "are not there"},
		"before":         {with(whole("./a"), func(f *File) { f.Extents = []Extent{{Off: 0, N: 5}} }), "are not there"},
		"negative":       {with(whole("./a"), func(f *File) { f.Extents = []Extent{{Off: -5, N: 5}} }), "bytes from"},
		"no such base":   {with(whole("./a"), func(f *File) { f.Extents = []Extent{{Pack: 1, Off: 20, N: 5}} }), "of pack 1"},
		"wrong bytes":    {with(whole("./a"), func(f *File) { f.Extents = []Extent{{Off: int64(len(magic)) + 1, N: 5, Digest: hello[0].Digest}} }), "not what was stored"},
		"link to itself": {with(whole("./a"), func(f *File) { f.Extents, f.Link = nil, 1 }), "link to file 1"},
		"link to a link": {indexOf(File{Path: "./l", Kind: kindLink, To: "a"}, File{Path: "./a", Kind: kindFile, Link: 1}), "link to file 1"},
		"through a link": {indexOf(File{Path: "./sub", Kind: kindLink, To: "/"}, whole("./there/tmp/x")), "escapes"},
		"absent":         {indexOf(File{Path: "./a", Kind: kindAbsent, Why: "it is too far away"}), "too far away"},
		"another run":    {&Index{Format: format, Run: other, Attempt: attempt, Index: 1, Ranks: 1}, "run"},
		"another start":  {&Index{Format: format, Run: run, Attempt: other, Index: 1, Ranks: 1}, "attempt"},
		"another rank":   {&Index{Format: format, Run: run, Attempt: attempt, Index: 1, Rank: 1, Ranks: 2}, "rank 1"},
		"no rank":        {&Index{Format: format, Run: run, Attempt: attempt, Index: 1, Rank: 1, Ranks: 1}, "rank 1 of 1"},
		"missing base":   {&Index{Format: format, Run: run, Attempt: attempt, Index: 1, Ranks: 1, Bases: []Base{{Name(0, 1, tier.Digest{}), 100}}}, "is not there"},
		"base":           {&Index{Format: format, Run: run, Attempt: attempt, Index: 1, Ranks: 1, Bases: []Base{{"../../x", 100}}}, "base"},
		"newer":          {&Index{Format: format + 1}, "format 2"},
		"own directory":  {indexOf(whole("./run/ckpt/run-id")), "file that belongs to Cairn"},
	} {
		h := newHost(t)
		if err := os.Symlink("/", filepath.Join(h.home, "there")); err != nil {
			t.Fatal(err)
		}
		o := h.place(1)
		if name == "own directory" {
			o.Home = filepath.Dir(h.home)
		}
		before := tree(t, h.home)
		err := Unpack(context.Background(), o, []Object{h.object(forge(t, data, c.x))})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
		same(t, name, tree(t, h.home), before)
	}
}

// TestUnpack_Damaged changes every byte of a pack, and cuts it at every length.
func TestUnpack_Damaged(t *testing.T) {
	x := indexOf(File{Path: "./a", Kind: kindFile, Size: 5, Extents: []Extent{{Off: int64(len(magic)), N: 5, Digest: digestOf([]byte("01234"))}}})
	good := forge(t, "01234", x)
	h := newHost(t)
	for i := range good {
		for _, bad := range [][]byte{good[:i], append(append(append([]byte{}, good[:i]...), good[i]^1), good[i+1:]...)} {
			if err := Unpack(context.Background(), h.place(1), []Object{h.object(bad)}); err == nil {
				t.Fatalf("byte %d: %d bytes were accepted", i, len(bad))
			}
		}
	}
	if files := tree(t, h.home); len(files) > 0 {
		t.Errorf("it has made %v", files)
	}
	if err := Unpack(context.Background(), h.place(1), []Object{h.object(good)}); err != nil {
		t.Error(err)
	}
}

// FuzzReadIndex reads what may be a pack.
func FuzzReadIndex(f *testing.F) {
	f.Add(forge(f, "01234", indexOf(File{Path: "./a", Kind: kindFile, Size: 5, Extents: []Extent{{Off: 16, N: 5}}})))
	f.Add([]byte(magic + magic + magic))
	f.Fuzz(func(t *testing.T, text []byte) {
		x, err := ReadIndex(strings.NewReader(string(text)), int64(len(text)))
		if err == nil && x.Format != format {
			t.Errorf("format %d", x.Format)
		}
	})
}

// FuzzUnpack puts the files of a pack with any index into a directory. Nothing
// else may change.
func FuzzUnpack(f *testing.F) {
	f.Add("./a", kindFile, "", 0, int64(16), int64(5))
	f.Add("./../../x", kindFile, "", 0, int64(16), int64(5))
	f.Add("./b", kindLink, "..", 1, int64(0), int64(0))
	f.Fuzz(func(t *testing.T, path, kind, to string, link int, off, n int64) {
		h := newHost(t)
		first := File{Path: "./l", Kind: kindLink, To: ".."}
		x := indexOf(first, File{Path: path, Kind: kind, To: to, Link: link, Size: n, Extents: []Extent{{Off: off, N: n}}})
		o := h.object(forge(t, "0123456789", x))
		before := tree(t, filepath.Dir(h.home))
		err := Unpack(context.Background(), h.place(1), []Object{o})
		var size int64
		for name, text := range tree(t, filepath.Dir(h.home)) {
			if before[name] != text && !strings.HasPrefix(name, "/home/") && !strings.HasPrefix(name, "/run/ckpt/") && !strings.HasPrefix(name, "/run/output/") {
				t.Errorf("%s is %.100q, and was %.100q", name, text, before[name])
			}
			size += int64(len(text))
		}
		if err != nil && errors.Is(err, os.ErrPermission) {
			t.Error(err)
		}
	})
}
