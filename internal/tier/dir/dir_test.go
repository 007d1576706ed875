package dir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

func open(t *testing.T, fsys vfs.FS, path string) tier.Tier {
	t.Helper()
	d, err := Open(fsys, path, vfs.Access{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestConformance checks the tier on real and simulated file systems, and where
// there are no hard links.
func TestConformance(t *testing.T) {
	for name, fsys := range map[string]func() vfs.FS{
		"real":     vfs.OS,
		"memory":   func() vfs.FS { return vfstest.NewMem() },
		"no links": func() vfs.FS { return noLinks{vfs.OS()} },
	} {
		t.Run(name, func(t *testing.T) {
			var current vfs.FS
			tiertest.Run(t, tiertest.Options{
				Open: func(t *testing.T) tier.Tier {
					current = fsys()
					return open(t, current, filepath.Join(t.TempDir(), "tier"))
				},
				Reopen: func(t *testing.T, m tier.Tier) tier.Tier { return open(t, current, m.String()) },
			})
		})
	}
}

// noLinks is a file system without hard links.
type noLinks struct{ vfs.FS }

func (noLinks) Link(from, to string) error { return vfs.ErrNoLink }

// TestOperations_PowerLost loses power after every operation: what was reported
// as stored is there, and nothing else is visible but whole objects.
func TestOperations_PowerLost(t *testing.T) {
	for _, loss := range []vfstest.Loss{vfstest.LoseAll, vfstest.LoseData, vfstest.Torn} {
		for name, wrap := range map[string]func(vfs.FS) vfs.FS{
			"links": func(f vfs.FS) vfs.FS { return f }, "no links": func(f vfs.FS) vfs.FS { return noLinks{f} },
		} {
			if name == "no links" && loss != vfstest.LoseAll {
				continue // the content is written in the same way
			}
			t.Run(fmt.Sprint(name, loss), func(t *testing.T) {
				crashed := errors.New("crash")
				end := false
				for at := 0; !end; at++ {
					mem := vfstest.NewMem()
					n := 0
					fsys := wrap(vfstest.Hook(mem, func(op, name string) error {
						if n++; n > at {
							return crashed
						}
						return nil
					}))
					durable, removed := steps(t, fsys)
					end = n <= at
					after := mem.Crash(loss)
					checkAfter(t, open(t, after, "/tier"), durable, removed)
					if t.Failed() {
						t.Fatalf("after operation %d", at)
					}
				}
			})
		}
	}
}

var contents = map[string][]byte{
	"run/files/big": tiertest.Pattern(1, 1<<20+77), "run/manifest": []byte("manifest"), "other": nil, "run/files/second": []byte("second"),
}

// steps stores and removes until something fails. It returns what must be there
// afterwards, and what must not be.
func steps(t *testing.T, fsys vfs.FS) (durable, removed []string) {
	d, err := Open(fsys, "/tier", vfs.Access{})
	if err != nil {
		return nil, nil
	}
	for _, name := range []string{"run/files/big", "run/manifest", "other", "run/files/second"} {
		if err := d.Put(t.Context(), name, tier.BytesSource(contents[name])); err != nil {
			return durable, nil
		}
		durable = append(durable, name)
	}
	for len(durable) > 0 {
		name := durable[0]
		durable = durable[1:] // it may be there or not
		if d.Remove(t.Context(), name) != nil {
			return durable, removed
		}
		removed = append(removed, name)
	}
	return nil, removed
}

func checkAfter(t *testing.T, d tier.Tier, durable, removed []string) {
	t.Helper()
	names := tiertest.All(t, d, "")
	for _, name := range durable {
		if !slices.Contains(names, name) {
			t.Errorf("%s is lost", name)
		}
	}
	for _, name := range names {
		if slices.Contains(removed, name) {
			t.Errorf("%s is back", name)
		}
		if got := tiertest.Content(t, d, name); !bytes.Equal(got, contents[name]) {
			t.Errorf("%s has %d other bytes", name, len(got))
		}
	}
	// Everything can be done again.
	for name, data := range contents {
		if err := d.Put(t.Context(), name, tier.BytesSource(data)); err != nil {
			t.Errorf("put again: %v", err)
		}
	}
	if err := d.Sweep(t.Context(), "", time.Now()); err != nil {
		t.Error(err)
	}
	if n := len(tiertest.All(t, d, "")); n != len(contents) {
		t.Errorf("%d objects", n)
	}
}

// TestOperations_FailOnce lets each operation fail once: the call reports it,
// nothing but whole objects is visible, and the call can be repeated.
func TestOperations_FailOnce(t *testing.T) {
	broken := errors.New("broken")
	for at, end := 1, false; !end; at++ {
		mem := vfstest.NewMem()
		n := 0
		fsys := vfstest.Hook(mem, func(op, name string) error {
			if n++; n == at && name != "/" {
				return broken
			}
			return nil
		})
		durable, removed := steps(t, fsys)
		end = n < at
		checkAfter(t, open(t, mem, "/tier"), durable, removed)
		if t.Failed() {
			t.Fatalf("operation %d failed", at)
		}
	}
}

// TestSweep_Leftovers removes what uploads that failed have left, if it is old
// enough.
func TestSweep_Leftovers(t *testing.T) {
	mem := vfstest.NewMem()
	fsys := vfstest.Hook(mem, func(op, name string) error {
		if op == "remove" || op == "sync" {
			return errors.New("broken")
		}
		return nil
	})
	d := open(t, fsys, "/tier")
	if d.Put(t.Context(), "a/b", tier.BytesSource([]byte("x"))) == nil {
		t.Fatal("no error")
	}
	d = open(t, mem, "/tier")
	if err := d.Sweep(t.Context(), "a/", time.Time{}); err != nil { // nothing is older
		t.Fatal(err)
	}
	if entries, err := mem.ReadDir("/tier/a"); err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	if err := d.Sweep(t.Context(), "a/", time.Now()); err != nil {
		t.Fatal(err)
	}
	if entries, err := mem.ReadDir("/tier/a"); err != nil || len(entries) != 0 {
		t.Fatalf("%v, %v", entries, err)
	}
}

// TestCreate_ModesOfRoot shows that files and directories get the modes of the
// root, and that a root open to all is refused.
func TestCreate_ModesOfRoot(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no modes")
	}
	for _, c := range []struct{ root, dir, file fs.FileMode }{{0o700, 0o700, 0o600}, {0o750, 0o750, 0o640}} {
		root := filepath.Join(t.TempDir(), "tier")
		if err := os.Mkdir(root, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(root, c.root); err != nil {
			t.Fatal(err)
		}
		d := open(t, vfs.OS(), root)
		if err := d.Create(t.Context(), "a/b", []byte("x")); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]fs.FileMode{"a": c.dir, "a/b": c.file} {
			if st, err := os.Stat(filepath.Join(root, name)); err != nil || st.Mode().Perm() != want {
				t.Errorf("%s in %v: %v, %v", name, c.root, st.Mode(), err)
			}
		}
	}
	open := filepath.Join(t.TempDir(), "tier")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(vfs.OS(), open, vfs.Access{}); !errors.Is(err, vfs.ErrNotOurs) {
		t.Errorf("a directory that all may write to: %v", err)
	}
}

// TestSymlinks shows that nothing is read or written through symbolic links.
func TestSymlinks(t *testing.T) {
	root, outside := filepath.Join(t.TempDir(), "tier"), t.TempDir()
	d := open(t, vfs.OS(), root)
	ctx := t.Context()
	if err := d.Create(ctx, "a/b", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"dir": outside, "a/file": filepath.Join(outside, "secret"), "a/none": filepath.Join(outside, "none")} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Skip(err)
		}
	}
	for _, name := range []string{"dir/secret", "dir/new", "a/file", "a/none"} {
		errs := map[string]error{"put": d.Put(ctx, name, tier.BytesSource([]byte("y"))), "create": d.Create(ctx, name, []byte("y")), "remove": d.Remove(ctx, name)}
		_, errs["get"] = d.Get(ctx, name, 0, -1)
		_, errs["stat"] = d.Stat(ctx, name)
		for op, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "symbolic link") {
				t.Errorf("%s %s: %v", op, name, err)
			}
		}
	}
	for info, err := range d.List(ctx, "dir/") {
		if err == nil || !strings.Contains(err.Error(), "symbolic link") {
			t.Errorf("list: %v, %v", info, err)
		}
	}
	if got := tiertest.All(t, d, ""); !slices.Equal(got, []string{"a/b"}) {
		t.Errorf("objects: %v", got)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside: %v, %v", entries, err)
	}
}

// TestOpenExisting_Gone removes the directory of an open tier, as if its file
// system were not mounted any more. Nothing is made in its place.
func TestOpenExisting_Gone(t *testing.T) {
	root := filepath.Join(t.TempDir(), "tier")
	if _, err := OpenExisting(vfs.OS(), root, vfs.Access{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the directory: %v", err)
	}
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	x, err := OpenExisting(vfs.OS(), root, vfs.Access{})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Put(t.Context(), "a/b", tier.BytesSource([]byte("x"))); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	if err := x.Put(t.Context(), "a/c", tier.BytesSource([]byte("x"))); err == nil {
		t.Error("something was stored")
	}
	if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory was made again: %v", err)
	}
}
