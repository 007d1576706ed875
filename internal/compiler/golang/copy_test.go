//go:build unix

package golang

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestCopy_ReplacesOnlyPrograms shows that Copy replaces programs, and nothing
// else.
func TestCopy_ReplacesOnlyPrograms(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(at(name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const program = "\x7fELF, the new one"
	put("new", program)
	put("old", "\x7fELF, the old one")
	put("empty", "")
	put("main.go", "package main\n")
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("old", at("link")); err != nil {
		t.Fatal(err)
	}
	m := &Made{Path: at("new")}
	for _, name := range []string{"link", "empty", "fresh", "dir/fresh"} {
		if err := m.Copy(at(name)); err != nil {
			t.Error(err)
		}
		if b, _ := os.ReadFile(at(name)); string(b) != program {
			t.Errorf("%s has %q", name, b)
		}
	}
	if st, err := os.Lstat(at("link")); err != nil || st.Mode().Type() != os.ModeSymlink {
		t.Error("the link is gone")
	}
	for name, why := range map[string]string{"main.go": "is not a program", "pipe": "is not a file"} {
		if err := m.Copy(at(name)); err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "-o") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b, _ := os.ReadFile(at("main.go")); string(b) != "package main\n" {
		t.Errorf("main.go has %q", b)
	}
	if err := m.Copy(os.DevNull); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(os.DevNull); err != nil || st.Mode().IsRegular() {
		t.Fatal("the null device is gone")
	}
}
