//go:build linux

package pack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/vfs"
)

func (h *host) inode() uint64 {
	h.t.Helper()
	st, err := os.Stat(h.checkpoints())
	if err != nil {
		h.t.Fatal(err)
	}
	return control.Inode(st)
}

func (h *host) store() *store.Dir { return store.Open(vfs.OS(), h.checkpoints(), 0) }

// written returns the files that the rank is recorded to write.
func (h *host) written() []string { return h.store().WrittenFiles(h.inode()) }

// records does what a start does: it adds the files that the rank writes.
func (h *host) records(paths ...string) {
	h.t.Helper()
	if err := h.store().SetWrittenFiles(h.inode(), append(h.written(), paths...)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) output() string { return filepath.Join(h.dir, own(0)[0]) }

// relative reports a file of a pack that is outside of the program's directory.
func relative(t *testing.T, x *Index) {
	t.Helper()
	for i := range x.Files {
		if filepath.IsAbs(x.Files[i].Path) {
			t.Errorf("checkpoint %d: the pack has %s", x.Index, x.Files[i].Path)
		}
	}
}

// TestUnpack_NamesNoEarlierHost moves a program from host to host. Each time
// its directory and that of the run are others, and nobody trusts the pack.
// Neither the packs nor the record of written files name a place on an earlier
// host, whose files are still there or not.
func TestUnpack_NamesNoEarlierHost(t *testing.T) {
	h := newHost(t)
	h.start()
	for hop := range 4 {
		if err := os.WriteFile(h.output(), []byte(strings.Repeat("a line\n", hop+1)), 0o600); err != nil {
			t.Fatal(err)
		}
		log := filepath.Join(h.home, "log")
		h.open(log)
		h.log.WriteString("more\n")
		h.records(h.output(), log)
		want, epoch, recorded := h.save()
		p := h.pack()
		relative(t, p.Index)
		h.j.End()
		if hop%2 == 0 {
			if err := os.RemoveAll(h.home); err != nil {
				t.Fatal(err)
			}
		}
		next := newHost(t)
		next.resume(h, h.index, p)
		same(t, "the program's files", tree(t, next.home), want)
		if got := next.written(); !slices.Equal(got, []string{filepath.Join(next.home, "log")}) {
			t.Errorf("hop %d: recorded: %q", hop, got)
		}
		if err := next.j.Restored(epoch, recorded); err != nil {
			t.Fatal(err)
		}
		h = next
	}
	o := h.options()
	o.Index, o.File, o.Run, o.Attempt = tier.EndIndex, nil, run, attempt
	end, err := Make(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	relative(t, end[0].Index)
	last := newHost(t)
	place := last.place(tier.EndIndex)
	place.End, place.Note = time.Now(), func(why string) { t.Error(why) }
	if err := Unpack(context.Background(), place, end[0].Objects); err != nil {
		t.Fatal(err)
	}
	same(t, "the end", tree(t, last.home), tree(t, h.home))
}

// recordOf returns a record of written files that another host has.
func recordOf(t *testing.T, paths []string) string {
	t.Helper()
	other := newHost(t)
	other.records(paths...)
	text, err := os.ReadFile(filepath.Join(other.dir, own(0)[1]))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestUnpack_WrittenFiles has packs with records of written files. A start may
// change what the record names. So nothing is in it but files that the pack
// has, and with the user's consent files that are elsewhere.
func TestUnpack_WrittenFiles(t *testing.T) {
	for _, home := range []string{"", "/", "/home", "/home/me", "/etc"} {
		for _, outside := range []bool{false, true} {
			h := newHost(t)
			in := func(dir string, names ...string) (out []string) {
				for _, name := range names {
					out = append(out, filepath.Join(dir, name))
				}
				return out
			}
			theirs := []string{"/etc/passwd", "/home/me/.bashrc", "/there/run/output/rank-0000.out", "relative", h.home + "/../x"}
			if home != "" && home != "/" {
				theirs = append(theirs, in(home, "a", "not in the pack", "link/x")...)
			}
			text := recordOf(t, append(theirs, in(h.home, "b")...))
			data := int64(len(magic))
			x := indexOf(
				File{Path: "run:" + own(0)[1], Kind: kindFile, Mode: 0o600, Size: int64(len(text)), Extents: []Extent{{Off: data, N: int64(len(text))}}},
				File{Path: "./a", Kind: kindFile, Mode: 0o600, Size: 5, Extents: []Extent{{Off: data, N: 5}}},
				File{Path: "./link", Kind: kindLink, To: "/etc"},
				File{Path: filepath.Join(h.home, "b"), Kind: kindFile, Mode: 0o600, Size: 5, Extents: []Extent{{Off: data, N: 5}}},
			)
			x.Home = home
			o := h.place(1)
			o.Outside = outside
			if err := Unpack(context.Background(), o, []Object{h.object(forge(t, text, x))}); err != nil {
				t.Fatalf("%q, %v: %v", home, outside, err)
			}
			got := h.written()
			if slices.Contains(got, "/there/run/output/rank-0000.out") || !slices.Contains(got, filepath.Join(h.home, "b")) {
				t.Errorf("%q, %v: %q", home, outside, got)
			}
			if home == "/home/me" && !slices.Contains(got, filepath.Join(h.home, "a")) {
				t.Errorf("%q, %v: %q", home, outside, got)
			}
			for _, path := range got {
				if !outside && !slices.Contains(in(h.home, "a", "b"), path) {
					t.Errorf("%q: nobody has allowed to change %s", home, path)
				}
			}
			if outside && home == "/etc" && !slices.Contains(got, "/home/me/.bashrc") {
				t.Errorf("%q was allowed to change files outside: %q", home, got)
			}
		}
	}
}

// TestUnpack_AbsolutePaths has packs that name files by absolute paths. Those
// in the working directory are put there as others are. Outside of it nothing
// may change; what was not there, and is not there now, does not change.
func TestUnpack_AbsolutePaths(t *testing.T) {
	hello := []Extent{{Off: int64(len(magic)), N: 5, Digest: digestOf([]byte("01234"))}}
	file := func(path string) File { return File{Path: path, Kind: kindFile, Mode: 0o600, Size: 5, Extents: hello} }
	gone := func(path string) File { return File{Path: path, Kind: kindGone} }
	h := newHost(t)
	top := filepath.Dir(h.home)
	if err := os.WriteFile(filepath.Join(top, "precious"), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := tree(t, top)
	for _, c := range []struct {
		files []File
		there string // the file is put there
		want  string // or this is the error
	}{
		{[]File{file(h.home + "/a")}, "a", ""},
		{[]File{file(h.home + "/sub/a")}, "sub/a", ""},
		{[]File{file(h.home + "/through/a")}, "a", ""}, // a link to the directory
		{[]File{gone("./a"), file(h.home + "/a")}, "a", ""},
		{[]File{file(h.home + "/a"), gone("./a")}, "a", ""},
		{[]File{gone(top + "/nothing"), gone(top + "/precious/nothing"), file("./a")}, "a", ""},
		{[]File{file("./a"), file(h.home + "/a")}, "", "would be one here"},
		{[]File{gone(top + "/precious")}, "", "outside the working directory"},
		{[]File{file(top + "/precious")}, "", "outside the working directory"},
		{[]File{file(top + "/homely")}, "", "outside the working directory"},
		{[]File{file(h.home)}, "", "outside the working directory"},
		{[]File{file(h.home + "/out/x")}, "", "outside the working directory"}, // a link to the directory above
		{[]File{file(h.dir + "/ckpt/run-id")}, "", "outside the working directory"},
		{[]File{{Path: h.home + "/s", Kind: kindLink, To: ".."}, file(h.home + "/s/x")}, "", "in the way"},
	} {
		err := errors.Join(os.RemoveAll(h.home), os.Mkdir(h.home, 0o700), os.Symlink(".", h.home+"/through"), os.Symlink("..", h.home+"/out"))
		if err != nil {
			t.Fatal(err)
		}
		err = Unpack(context.Background(), h.place(1), []Object{h.object(forge(t, "01234", indexOf(c.files...)))})
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v; want %q", c.files, err, c.want)
		}
		if c.want == "" {
			if text, rerr := os.ReadFile(filepath.Join(h.home, c.there)); err != nil || rerr != nil || string(text) != "01234" {
				t.Errorf("%v: %v; %q, %v", c.files, err, text, rerr)
			}
		}
		after := tree(t, top)
		for name, text := range after {
			if before[name] != text && !strings.HasPrefix(name, "/home/") && !strings.HasPrefix(name, "/run/") {
				t.Errorf("%v: %s is %q", c.files, name, text)
			}
		}
		if after["/precious"] != before["/precious"] {
			t.Errorf("%v: what is precious is %q", c.files, after["/precious"])
		}
	}
}
