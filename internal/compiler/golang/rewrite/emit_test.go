package rewrite

import (
	"flag"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"os"
	"testing"
)

var updateEmit = flag.Bool("update-emit", false, "write the golden file of TestEmit_Golden")

// loadFile checks one file as a package.
func loadFile(t *testing.T, name string) *Package {
	t.Helper()
	src, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	p := &Package{Path: "main", Fset: token.NewFileSet(), Source: map[string][]byte{name: src},
		Importer: importer.ForCompiler(token.NewFileSet(), "source", nil)}
	f, err := parser.ParseFile(p.Fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	p.Files = []*ast.File{f}
	if err := p.check(); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestEmit_Golden compares emitted code with its golden file. That it does the same
// as the source is shown by programs that are killed, in internal/difftest.
func TestEmit_Golden(t *testing.T) {
	const in, golden = "testdata/emit/in.go", "testdata/emit/out.golden"
	p := loadFile(t, in)
	can, err := p.FastPaths()
	if err != nil {
		t.Fatal(err)
	}
	fast := map[string]bool{}
	for name := range can {
		fast[name] = name != "main" // which calls one that is not
	}
	w, err := p.Emit("cairnrt/resume", map[string]string{"os.Exit": "Exit"}, fast)
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
