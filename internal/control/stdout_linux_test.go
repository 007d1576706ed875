package control

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTakeStdout shows that what is printed goes to the file that was taken,
// and again to the earlier one if it does not stay so.
func TestTakeStdout(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	back, err := TakeStdout(first)
	if err != nil {
		t.Fatal(err)
	}
	defer back(false)
	for _, stays := range []bool{false, true} {
		settle, err := TakeStdout(second)
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("taken ")
		settle(stays)
		os.Stdout.WriteString("settled ")
	}
	if _, err := TakeStdout(filepath.Join(dir, "none", "x")); err == nil {
		t.Error("a file where none can be")
	}
	for path, want := range map[string]string{first: "settled ", second: "taken taken settled "} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", filepath.Base(path), got, err)
		}
	}
}
