package gobuild

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/programtest"
)

// TestBuilder_CacheDir checks which of several directories is the cache, and
// that a blocked one is not used.
func TestBuilder_CacheDir(t *testing.T) {
	own, user, goes := t.TempDir(), t.TempDir(), t.TempDir()
	blocked := filepath.Join(user, "file")
	programtest.Write(t, blocked, "")
	t.Setenv("XDG_CACHE_HOME", user)
	t.Setenv("HOME", user)
	for _, c := range []struct{ cache, xdg, gocache, want string }{
		{own, user, goes, own},
		{"", user, goes, filepath.Join(user, "cairn")},
		{"", blocked, goes, filepath.Join(goes, "cairn")},
		{"", blocked, "", ""},
		{blocked, user, goes, ""},
	} {
		if runtime.GOOS != "linux" && c.cache == "" {
			continue // the variable has another name there
		}
		t.Setenv("XDG_CACHE_HOME", c.xdg)
		b := &Builder{opts: Options{Cache: c.cache}, env: map[string]string{"GOCACHE": c.gocache}}
		got, err := b.CacheDir()
		if got != c.want || (err == nil) != (c.want != "") || c.want != "" && !isDir(c.want) {
			t.Errorf("%+v: %s %v", c, got, err)
		}
	}
}

// TestBuilder_FirstCompilesStandardLibrary shows that only the first build with
// a run time is known to compile the standard library.
func TestBuilder_FirstCompilesStandardLibrary(t *testing.T) {
	dir := programtest.Tree(t, "go.mod", "module x\n\ngo 1.26\n")
	b, err := New(t.Context(), dir, nil, Options{Cache: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if !b.First() {
		t.Error("not the first build in an empty cache")
	}
	if err := b.addRuntime(); err != nil {
		t.Fatal(err)
	}
	if b.First() {
		t.Error("still the first build")
	}
}

func isDir(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.IsDir()
}
