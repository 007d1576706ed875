package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCompare_NoticesDifference shows that the demo would notice a difference.
func TestCompare_NoticesDifference(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return name
	}
	a, b, c, d := write("a", "stars\n"), write("b", "stars\n"), write("c", "starz\n"), write("d", "stars\nstars\n")
	for _, test := range []struct {
		x, y string
		want int
	}{{a, b, 6}, {a, c, -1}, {a, d, -1}, {d, a, -1}} {
		if n, err := compare(test.x, test.y); n != test.want || err != nil {
			t.Errorf("compare(%s, %s): %d, %v; want %d", test.x, test.y, n, err, test.want)
		}
	}
	if _, err := compare(a, filepath.Join(dir, "none")); err == nil {
		t.Error("a missing file is no error")
	}
}
