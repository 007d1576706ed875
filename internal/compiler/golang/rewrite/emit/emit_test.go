package emit

import (
	"flag"
	"os"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite/rewritetest"
)

var updateEmit = flag.Bool("update-emit", false, "write the golden file of TestEmit_Golden")

// loadFile type-checks one file as a package.
func loadFile(t *testing.T, name string) *rewrite.Package {
	t.Helper()
	src, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return rewritetest.Load(t, name, string(src), "")
}

// TestEmit_Golden compares emitted code with its golden file. The tests in
// internal/difftest, which kill programs, show that the code does the same as
// the source.
func TestEmit_Golden(t *testing.T) {
	const in, golden = "testdata/in.go", "testdata/out.golden"
	p := loadFile(t, in)
	can, err := FastPaths(p)
	if err != nil {
		t.Fatal(err)
	}
	fast := map[string]bool{}
	for name := range can {
		fast[name] = name != "main" // main calls a function that is not fast
	}
	w, err := Emit(p, "cairnrt/resume", map[string]string{"os.Exit": "Exit"}, fast)
	if err != nil {
		t.Fatal(err)
	}
	got := w.Files[in]
	if *updateEmit {
		if err := os.WriteFile(golden, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("the result differs from %s (-update-emit writes it):\n%s", golden, got)
	}
	saved := map[string]int{}
	for _, f := range w.Frames {
		saved[f.Func] = len(f.Saved)
	}
	// g, epoch, sum, x, p, i · epochs, g, total, e · x, grid, x
	if saved["grid_sweep"] != 6 || saved["run"] != 4 || saved["main"] != 3 {
		t.Errorf("saved: %v", saved)
	}
}
