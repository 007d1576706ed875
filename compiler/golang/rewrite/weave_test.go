package rewrite

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"os"
	"testing"
)

// load checks one file as a package.
func load(t *testing.T, name string) *Package {
	t.Helper()
	src, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	p := &Package{Path: "main", Fset: token.NewFileSet(), Source: map[string][]byte{name: src}, Importer: importer.ForCompiler(token.NewFileSet(), "source", nil)}
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

func TestTry(t *testing.T) {
	p := load(t, "/tmp/rw/a.go")
	w, err := p.Weave("cairnrt/resume", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range w.Files {
		t.Log("\n" + string(f))
	}
}
