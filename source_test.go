package cairn

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestSource_Complete shows that programs of 'cairn build' contain every file
// of the packages that are compiled into them. The patterns of source exclude
// files by the ends of their names, which could also exclude files that are not
// tests.
func TestSource_Complete(t *testing.T) {
	dirs := make(map[string]bool)
	err := fs.WalkDir(source, ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			dirs[filepath.Dir(path)] = true
		}
		return err
	})
	if err != nil || !dirs["."] || !dirs["resume"] {
		t.Fatalf("%v: %v", err, dirs)
	}
	for dir := range dirs {
		if dir == "transport" {
			continue // only one file of it is needed
		}
		names, err := filepath.Glob(filepath.Join(filepath.FromSlash(dir), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			if _, err := fs.Stat(source, filepath.ToSlash(name)); err != nil {
				t.Errorf("%s is not part of it: give it another name", name)
			}
		}
	}
}
