package normalize

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/programtest"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite/rewritetest"
)

var updateNormal = flag.Bool("update-normal", false, "write the golden file of the normal form")

// normalizePath selects calls of functions and methods whose names begin with
// reach or Reach, and statements with the comment //pt on the line before.
func normalizePath(p *rewrite.Package) rewrite.ResumablePath {
	in := rewrite.ResumablePath{Calls: map[*ast.CallExpr]bool{}, Points: map[ast.Stmt]bool{}, Funcs: map[ast.Node]bool{}}
	for _, f := range p.Files {
		points := map[int]bool{}
		for _, g := range f.Comments {
			for _, c := range g.List {
				if c.Text == "//pt" {
					points[p.Fset.Position(c.Pos()).Line+1] = true
				}
			}
		}
		var stack []ast.Node
		mark := func() {
			for i := len(stack) - 1; i >= 0; i-- {
				switch stack[i].(type) {
				case *ast.FuncDecl, *ast.FuncLit:
					in.Funcs[stack[i]] = true
					return
				}
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if n == nil {
				stack = stack[:len(stack)-1]
				return true
			}
			stack = append(stack, n)
			switch n := n.(type) {
			case *ast.CallExpr:
				fun := ast.Unparen(n.Fun)
				switch x := fun.(type) {
				case *ast.IndexExpr:
					fun = x.X
				case *ast.IndexListExpr:
					fun = x.X
				}
				name := ""
				switch x := fun.(type) {
				case *ast.Ident:
					name = x.Name
				case *ast.SelectorExpr:
					name = x.Sel.Name
				}
				if strings.HasPrefix(strings.ToLower(name), "reach") {
					in.Calls[n] = true
					mark()
				}
			case *ast.LabeledStmt:
				if line := p.Fset.Position(n.Pos()).Line; points[line] {
					points[p.Fset.Position(n.Stmt.Pos()).Line] = true
					if p.Fset.Position(n.Stmt.Pos()).Line != line {
						delete(points, line)
					}
				}
			case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
			case ast.Stmt:
				line := p.Fset.Position(n.Pos()).Line
				if points[line] {
					delete(points, line)
					in.Points[n] = true
					mark()
				}
			}
			return true
		})
	}
	return in
}

// TestFunctions_SameOutput runs programs unchanged and in normal form.
func TestFunctions_SameOutput(t *testing.T) {
	files, err := filepath.Glob("testdata/normalize/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal("no programs", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			version := "go1.26"
			if m := regexp.MustCompile(`(?m)^// (go1\.\d+)$`).FindSubmatch(src); m != nil {
				version = string(m[1])
			}
			p := rewritetest.Load(t, filepath.Base(file), string(src), version)
			in := normalizePath(p)
			if len(in.Calls)+len(in.Points) < 5 {
				t.Fatal("too few calls and points:", len(in.Calls), len(in.Points))
			}
			if p, err = LowerGotos(p, normalizePath); err != nil {
				t.Fatal(err)
			}
			q, err := Functions(p, normalizePath(p))
			if err != nil {
				t.Fatal(err)
			}
			checkNormal(t, q)
			text := string(q.Source[filepath.Base(file)])
			want, got := runBoth(t, version, string(src), text)
			if want != got {
				a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
				for i := range a {
					if i >= len(b) || a[i] != b[i] {
						t.Fatalf("line %d of the output\n was: %s\n is:  %s", i+1, a[i], append(b, "")[min(i, len(b))])
					}
				}
				t.Fatalf("more output: %q", b[len(a):])
			}
			if len(want) < 50 {
				t.Fatalf("hardly any output: %q", want)
			}
		})
	}
}

// runBoth runs a program and its rewritten form, and returns the output of
// each. In the long suite go vet checks the rewritten form before.
func runBoth(t *testing.T, version, plain, rewritten string) (want, got string) {
	t.Helper()
	dir := t.TempDir()
	for name, s := range map[string]string{"go.mod": "module m\n\ngo " + strings.TrimPrefix(version, "go") + "\n", "plain/main.go": plain, "rewritten/main.go": rewritten} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(s), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(name string, args ...string) string {
		c := exec.Command(name, args...)
		c.Dir = dir
		c.Env = append(os.Environ(), programtest.Flags("-mod=mod"), "GOWORK=off", "GOTOOLCHAIN=local")
		if name == "go" {
			c.Env = append(c.Env, "GOGC=400") // it compiles faster
		}
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%.5000s\n%s", name, strings.Join(args, " "), err, out, numbered(rewritten))
		}
		return string(out)
	}
	if os.Getenv("CAIRN_LONG") != "" {
		run("go", "vet", "./rewritten")
	}
	run("go", "build", "-ldflags=-s -w", "-o", "bin"+string(filepath.Separator), "./plain", "./rewritten")
	return run(filepath.Join(dir, "bin", "plain")), run(filepath.Join(dir, "bin", "rewritten"))
}

// numbered adds line numbers to a text.
func numbered(src string) string {
	var b strings.Builder
	for i, l := range strings.Split(src, "\n") {
		fmt.Fprintf(&b, "%4d %s\n", i+1, l)
	}
	return b.String()
}

// checkNormal checks the normal form: each call stands alone after its mark,
// its arguments have no calls, and numbers count up.
func checkNormal(t *testing.T, p *rewrite.Package) {
	t.Helper()
	in := normalizePath(p)
	for _, f := range p.Files {
		marks := map[int]*ast.Comment{} // marks by line
		for _, g := range f.Comments {
			for _, c := range g.List {
				if strings.HasPrefix(c.Text, "//cairn:") {
					marks[p.Fset.Position(c.Pos()).Line] = c
				}
			}
		}
		marked := 0
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(ast.Stmt)
			if !ok {
				return true
			}
			var c *ast.CallExpr
			switch s := s.(type) {
			case *ast.ExprStmt:
				c, _ = s.X.(*ast.CallExpr)
			case *ast.AssignStmt:
				if len(s.Rhs) == 1 {
					c, _ = s.Rhs[0].(*ast.CallExpr)
				}
				for _, e := range s.Lhs {
					if _, ok := e.(*ast.Ident); !ok {
						c = nil
					}
				}
			}
			pos := p.Fset.Position(s.Pos())
			mark := marks[pos.Line-1]
			if mark == nil || !strings.HasPrefix(mark.Text, "//cairn:call ") || c == nil {
				return true
			}
			marked++
			delete(in.Calls, c)
			w := &funcNormalizer{normalizer: &normalizer{p: p}}
			for _, e := range c.Args {
				if w.calls(e) {
					t.Errorf("%s: a call in an argument: %s", pos, p.NodeText(s, nil))
				}
			}
			return true
		})
		for c := range in.Calls {
			id, ok := c.Fun.(*ast.Ident)
			if ok && strings.HasPrefix(id.Name, rewrite.Prefix) {
				continue
			}
			t.Errorf("%s: no mark before %s", p.Fset.Position(c.Pos()), p.NodeText(c, nil))
		}
		for _, d := range f.Decls {
			next := map[string]int{}
			for line := p.Fset.Position(d.Pos()).Line; line <= p.Fset.Position(d.End()).Line; line++ {
				c := marks[line]
				if c == nil {
					continue
				}
				kind := "defer"
				if !strings.HasPrefix(c.Text, "//cairn:defer ") {
					kind = "place"
				}
				next[kind]++
				if want := fmt.Sprint(next[kind]); !strings.HasSuffix(c.Text, " "+want) {
					t.Errorf("line %d: %s, want %s", line, c.Text, want)
				}
			}
		}
		if marked == 0 {
			t.Error("no marks")
		}
	}
}

// TestFunctions_Refused tries programs that cannot be brought into normal form.
func TestFunctions_Refused(t *testing.T) {
	const head = "package main\n\nimport \"fmt\"\n\nvar _ = fmt.Sprint\n\nfunc reach(a ...any) int { return 0 }\n\nfunc reachB() bool { return true }\n\nfunc main() {}\n\n"
	for _, c := range normalRefusals {
		src := head + c.src
		p := rewritetest.Load(t, "a.go", src, "go1.26")
		_, err := Functions(p, normalizePath(p))
		var r *rewrite.Refusal
		if !errors.As(err, &r) {
			t.Errorf("%s\nnot refused: %v", c.src, err)
			continue
		}
		if !strings.Contains(r.Reason, c.reason) || r.Remedy == "" {
			t.Errorf("%s\nreason %q, remedy %q; want %q", c.src, r.Reason, r.Remedy, c.reason)
		}
		at := strings.Index(src, "/*here*/")
		if at < 0 {
			t.Errorf("%s\nno place", c.src)
		} else if r.Pos.Offset != at+len("/*here*/") {
			t.Errorf("%s\nrefused at %s, not at the mark: %s", c.src, r.Pos, r)
		}
	}
}

// TestFunctions_Golden compares the result with golden files.
func TestFunctions_Golden(t *testing.T) {
	src, err := os.ReadFile("testdata/normalize/golden/walk.go.txt")
	if err != nil {
		t.Fatal(err)
	}
	p := rewritetest.Load(t, "walk.go", string(src), "go1.26")
	q, err := Functions(p, normalizePath(p))
	if err != nil {
		t.Fatal(err)
	}
	checkNormal(t, q)
	file := "testdata/normalize/golden/walk.want.txt"
	if *updateNormal {
		if err := os.WriteFile(file, q.Source["walk.go"], 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(q.Source["walk.go"]) {
		t.Errorf("not as in %s:\n%s", file, q.Source["walk.go"])
	}
}
