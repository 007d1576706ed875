package gobuild

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/programtest"
)

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

func isDir(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.IsDir()
}
