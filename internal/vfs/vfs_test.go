package vfs_test

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// TestFS checks that both file systems meet the contract of vfs.FS.
func TestFS(t *testing.T) {
	for _, c := range []struct {
		name string
		fsys vfs.FS
		root string
	}{{"os", vfs.OS(), t.TempDir()}, {"mem", vfstest.NewMem(), "/"}, {"hook", vfstest.Hook(vfstest.NewMem(), func(string, string) error { return nil }), "/"}} {
		t.Run(c.name, func(t *testing.T) {
			testFS(t, c.fsys, func(s string) string { return filepath.Join(c.root, s) })
		})
	}
}

func testFS(t *testing.T, fsys vfs.FS, at func(string) string) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	is := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Fatalf("got %v, want %v", err, want)
		}
	}
	_, err := fsys.Open(at("d/a"))
	is(err, fs.ErrNotExist)
	must(fsys.Mkdir(at("d")))
	is(fsys.Mkdir(at("d")), fs.ErrExist)
	f, err := fsys.Create(at("d/a"))
	must(err)
	_, err = fsys.Create(at("d/a"))
	is(err, fs.ErrExist)

	big := bytes.Repeat([]byte("0123456789abcdef"), 16<<10) // it must be written whether it is aligned or not
	must(f.Allocate(1 << 20))
	_, err = f.WriteAt(big, vfs.Align)
	must(err)
	must(f.WriteV([][]byte{big[:vfs.Align], []byte("x"), nil, big[:10]}, vfs.Align+int64(len(big))))
	_, err = f.WriteAt([]byte("head"), 0)
	must(err)
	want := make([]byte, vfs.Align)
	copy(want, "head")
	want = append(append(append(append(want, big...), big[:vfs.Align]...), 'x'), big[:10]...)
	must(f.Truncate(int64(len(want))))
	must(f.Sync())
	must(f.Close())
	must(fsys.SyncDir(at("d")))

	must(fsys.Link(at("d/a"), at("d/b")))
	is(fsys.Link(at("d/a"), at("d/b")), fs.ErrExist)
	must(fsys.Remove(at("d/a")))
	must(fsys.Rename(at("d/b"), at("d/c")))
	f, err = fsys.Open(at("d/c"))
	must(err)
	n, err := f.Size()
	must(err)
	got := make([]byte, n)
	_, err = f.ReadAt(got, 0)
	must(err)
	if !bytes.Equal(got, want) {
		t.Fatal("read other bytes than were written")
	}
	if _, err := f.ReadAt(make([]byte, 8), n-4); err == nil {
		t.Fatal("a read past the end says nothing")
	}
	must(f.Close())
	list, err := fsys.ReadDir(at("d"))
	must(err)
	if len(list) != 1 || list[0].Name() != "c" || list[0].IsDir() {
		t.Fatalf("directory holds %v", list)
	}
	if st, err := fsys.Stat(at("d")); err != nil || !st.IsDir() {
		t.Fatalf("Stat: %v, %v", st, err)
	}
	is(fsys.Remove(at("d")), vfs.ErrNotEmpty)
	must(fsys.Remove(at("d/c")))
	must(fsys.Remove(at("d")))

	l, err := fsys.Lock(at("lock"))
	must(err)
	_, err = fsys.Lock(at("lock"))
	is(err, vfs.ErrLocked)
	must(l.Close())
	l, err = fsys.Lock(at("lock"))
	must(err)
	must(l.Close())
}

// TestMem_Crash shows what each kind of loss leaves.
func TestMem_Crash(t *testing.T) {
	m := vfstest.NewMem()
	f, _ := m.Create("/a")
	f.WriteAt([]byte("old"), 0)
	f.Sync()
	m.SyncDir("/")
	f.WriteAt([]byte("new"), 0)
	m.Rename("/a", "/b")
	for _, c := range []struct {
		loss       vfstest.Loss
		name, want string
	}{{vfstest.LoseAll, "/a", "old"}, {vfstest.LoseData, "/b", "old"}, {vfstest.Torn, "/b", "old"}} {
		g, err := m.Crash(c.loss).Open(c.name)
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 3)
		if g.ReadAt(p, 0); string(p) != c.want {
			t.Errorf("loss %d: %s holds %q, want %q", c.loss, c.name, p, c.want)
		}
	}
}
