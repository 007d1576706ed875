package normalize

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite/rewritetest"
)

// TestFunctions_StatementsSharingLines checks statements that share lines.
func TestFunctions_StatementsSharingLines(t *testing.T) {
	src := `package main

func reach(x int) int { if x > 0 { return reach(x-1) }; return x }

func f(x int) int { reach(x); reach(x + 1); /* c */ reach(2); return reach(reach(3)) }

func main() {
	switch f(1) { case 1: reach(1); f(2); case 2: x := reach(2); _ = x; default: }
	for i, v := range []int{1} { _, _ = i, reach(v) }
	func() { reach(1) }(); for reach(1) > 2 { /* nothing */ }
	if x := 1; reach(x) > 0 { f(1) } else if reach(2) > 1 { f(2) } else { reach(3) } // end
	select { default: reach(1) }; { reach(2) }
}
`
	p := rewritetest.Load(t, "a.go", src, "go1.26")
	in := normalizePath(p)
	if len(in.Calls) != 16 {
		t.Fatal(len(in.Calls), "calls")
	}
	q, err := Functions(p, in)
	if err != nil {
		t.Fatal(err)
	}
	checkNormal(t, q)
}

// TestFunctions_StandardLibrary brings packages of the standard library into
// normal form, with points in all loops and with almost all calls as resumable
// calls. It runs the tests of one of them.
func TestFunctions_StandardLibrary(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	for _, path := range []string{"encoding/csv", "regexp/syntax", "text/template/parse", "compress/flate"} {
		p, dir := standardPackage(t, path)
		skip := map[ast.Node]bool{}
		var q *rewrite.Package
		var in rewrite.ResumablePath
		for q == nil {
			in = everything(p, skip)
			var err error
			q, err = Functions(p, in)
			var r *rewrite.Refusal
			if errors.As(err, &r) {
				refused := len(skip)
				for _, f := range p.Files {
					for _, d := range f.Decls {
						lo, hi := p.Fset.Position(d.Pos()), p.Fset.Position(d.End())
						if lo.Filename == r.Pos.Filename && lo.Offset <= r.Pos.Offset && r.Pos.Offset < hi.Offset {
							skip[d] = true
						}
					}
				}
				if len(skip) > refused {
					continue
				}
			}
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
		}
		if len(skip) > 2 || len(in.Calls) < 20 {
			t.Errorf("%s: %d functions refused, %d calls", path, len(skip), len(in.Calls))
		}
		if path != "encoding/csv" {
			continue
		}
		tmp := t.TempDir()
		overlay := map[string]map[string]string{"Replace": {}}
		for name, text := range q.Source {
			to := filepath.Join(tmp, filepath.Base(name))
			if err := os.WriteFile(to, text, 0o666); err != nil {
				t.Fatal(err)
			}
			overlay["Replace"][filepath.Join(dir, filepath.Base(name))] = to
		}
		b, err := json.Marshal(overlay)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tmp, "overlay.json"), b, 0o666); err != nil {
			t.Fatal(err)
		}
		c := exec.Command("go", "test", "-vet=off", "-short", "-overlay", filepath.Join(tmp, "overlay.json"), path)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("tests of %s: %v\n%s", path, err, out)
		}
	}
}

// standardPackage type-checks a package of the standard library.
func standardPackage(t *testing.T, path string) (*rewrite.Package, string) {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=Dir,GoFiles", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	var l struct {
		Dir     string
		GoFiles []string
	}
	if err := json.Unmarshal(out, &l); err != nil {
		t.Fatal(err)
	}
	p := &rewrite.Package{Path: path, Fset: token.NewFileSet(), Source: map[string][]byte{}, Importer: importer.ForCompiler(token.NewFileSet(), "gc", nil)}
	for _, g := range l.GoFiles {
		name := filepath.Join(l.Dir, g)
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(p.Fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		p.Source[name] = src
		p.Files = append(p.Files, f)
	}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	return p, l.Dir
}

// everything selects all calls and loops that may be selected, except in
// functions to skip.
func everything(p *rewrite.Package, skip map[ast.Node]bool) rewrite.ResumablePath {
	in := rewrite.ResumablePath{Calls: map[*ast.CallExpr]bool{}, Points: map[ast.Stmt]bool{}, Funcs: map[ast.Node]bool{}}
	for _, f := range p.Files {
		for _, d := range f.Decls {
			fd, ok := d.(*ast.FuncDecl)
			if !ok || fd.Body == nil || skip[fd] {
				continue
			}
			in.Funcs[fd] = true
			never := map[ast.Node]bool{}
			no := func(m ast.Node) {
				ast.Inspect(m, func(k ast.Node) bool { never[k] = true; return true })
			}
			ast.Inspect(fd, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncLit:
					in.Funcs[n] = true
				case *ast.GoStmt:
					never[n.Call] = true
				case *ast.DeferStmt:
					never[n.Call] = true
				case *ast.CaseClause:
					for _, e := range n.List {
						no(e)
					}
				case *ast.CommClause:
					if n.Comm != nil {
						no(n.Comm)
					}
				case *ast.ForStmt:
					if n.Post != nil {
						no(n.Post)
					}
					in.Points[n] = !never[n]
				case *ast.RangeStmt:
					if _, ok := p.Info.TypeOf(n.X).Underlying().(*types.Signature); ok {
						no(n.Body)
					} else {
						in.Points[n] = !never[n]
					}
				case *ast.CallExpr:
					tv := p.Info.Types[n.Fun]
					if !never[n] && !tv.IsType() && !tv.IsBuiltin() {
						in.Calls[n] = true
					}
				}
				return true
			})
		}
	}
	for s, is := range in.Points {
		if !is {
			delete(in.Points, s)
		}
	}
	return in
}
