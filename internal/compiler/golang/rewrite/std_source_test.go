package rewrite

import (
	"go/build"
	"path/filepath"
	"strings"
	"testing"
)

// std returns the source of a package of this Go installation.
func std(t *testing.T, path string) *StdSource {
	t.Helper()
	p, err := build.Import(path, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ReadStd(path, p.Dir, p.GoFiles)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestStdSource_CopyOf shows which declarations are copied, and which calls get
// marks.
func TestStdSource_CopyOf(t *testing.T) {
	text, imports, err := std(t, "container/heap").CopyOf("Push")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"func NAME_Push(h cairn_heap.Interface, x any)", "h.Push(/*cairn:call*/x)", "NAME_up(/*cairn:call*/h,", "!h.Less(/*cairn:call*/j, i)"} {
		if !strings.Contains(text, want) {
			t.Errorf("the copy has no %s:\n%s", want, text)
		}
	}
	if strings.Contains(text, "down") || strings.Join(imports, " ") != "container/heap" {
		t.Errorf("imports %q:\n%s", imports, text)
	}
	text, _, err = std(t, "sort").CopyOf("Sort")
	if err != nil || !strings.Contains(text, "data.Less(/*cairn:call*/") || !strings.Contains(text, "data.Swap(a,") || !strings.Contains(text, "type NAME_sortedHint int") {
		t.Errorf("%v:\n%s", err, text)
	}
}

// TestStdSource_CopyOfRefused shows that what cannot be copied is refused.
func TestStdSource_CopyOfRefused(t *testing.T) {
	for name, want := range map[string]string{"Slice": "internal/reflectlite", "Nothing": "has no Nothing"} {
		if _, _, err := std(t, "sort").CopyOf(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadStd("sort", filepath.Join(t.TempDir(), "none"), []string{"sort.go"}); err == nil {
		t.Error("a missing file is no error")
	}
}
