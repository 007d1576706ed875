// Package rewritetest loads packages for tests of the passes.
package rewritetest

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// Load parses and type-checks one file as package main.
func Load(t *testing.T, name, src, version string) *rewrite.Package {
	t.Helper()
	p := &rewrite.Package{Path: "main", Fset: token.NewFileSet(), GoVersion: version,
		Source: map[string][]byte{name: []byte(src)}, Importer: importer.ForCompiler(token.NewFileSet(), "gc", nil)}
	f, err := parser.ParseFile(p.Fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	p.Files = []*ast.File{f}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	return p
}
