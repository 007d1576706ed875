package normalize

import (
	"errors"
	"flag"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite/rewritetest"
)

var updateRanges = flag.Bool("update-ranges", false, "write the golden file of loops over functions")

// rangesMarked marks all loops over functions, and gives them points.
func rangesMarked(t *testing.T, p *rewrite.Package) *rewrite.Package {
	t.Helper()
	marks := map[token.Pos]string{}
	for _, f := range p.Files {
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.RangeStmt); ok {
				if _, ok := rewrite.CoreType(p.Info.TypeOf(s.X)).(*types.Signature); ok {
					marks[s.Body.Lbrace+1] = rewrite.PointMark
					if !PlainRange(p.Info, s) {
						marks[s.Range+token.Pos(len("range"))] = rewrite.RangeMark
					}
				}
			}
			return true
		})
	}
	if len(marks) == 0 {
		t.Fatal("no loops")
	}
	q, err := Mark(p, marks)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestLowerRanges_Golden compares lowered loops over functions with golden
// files. The tests in internal/difftest, which kill programs, show that they do
// the same.
func TestLowerRanges_Golden(t *testing.T) {
	src, err := os.ReadFile("testdata/ranges/in.go.txt")
	if err != nil {
		t.Fatal(err)
	}
	p := rangesMarked(t, rewritetest.Load(t, "in.go", string(src), "go1.26"))
	if p, err = LowerRanges(p); err != nil {
		t.Fatal(err)
	}
	in := p.ResumablePath()
	if len(in.Calls) != 2 || len(in.Points) != 4 {
		t.Errorf("%d calls and %d points, want 2 and 4", len(in.Calls), len(in.Points))
	}
	if p, err = MoveResults(p, (*rewrite.Package).ResumablePath); err != nil {
		t.Fatal(err)
	}
	got, err := rewrite.Format("in.go", rewrite.StripLineComments(p.Source["in.go"]))
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/ranges/want.txt"
	if *updateRanges {
		if err := os.WriteFile(file, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(got) {
		t.Errorf("not as in %s (-update-ranges writes it):\n%s", file, got)
	}
}

// TestLowerRanges_Refused tries loops that cannot be lowered.
func TestLowerRanges_Refused(t *testing.T) {
	const head = "package main\n\nimport \"os\"\n\nvar _ = os.Exit\n\nvar f func()\n\nfunc count(yield func(int) bool) {}\n\nfunc save() { recover() }\n\nfunc main() {}\n\n"
	for _, c := range []struct{ src, reason string }{
		{"func a() {\n\tfor i := range count {\n\t\t_ = i\n\t\t/*here*/recover()\n\t}\n}", "recover is called in the body"},
		{"func a() {\n\tfor range count {\n\t\t/*here*/defer func() { recover() }()\n\t}\n}", "that calls recover"},
		{"func a() {\n\tfor range count {\n\t\t/*here*/defer save()\n\t}\n}", "that calls recover"},
		{"func a() {\n\tfor range count {\n\t\t/*here*/defer f()\n\t}\n}", "not known whether it calls recover"},
		{"func a(c interface{ Close() error }) {\n\tfor range count {\n\t\t/*here*/defer c.Close()\n\t}\n}", "not known whether it calls recover"},
		{"func a(bool int) {\n\t/*here*/for range count {\n\t}\n}", "bool is declared"},
		{"func a() (x int) {\n\tif x := 1; x > 0 {\n\t\t/*here*/for range count {\n\t\t\treturn x\n\t\t}\n\t}\n\treturn\n}", "another variable has the name"},
	} {
		p := rangesMarked(t, rewritetest.Load(t, "a.go", head+c.src, "go1.26"))
		_, err := LowerRanges(p)
		var r *rewrite.Refusal
		if !errors.As(err, &r) {
			t.Errorf("%s\nnot refused: %v", c.src, err)
			continue
		}
		if !strings.Contains(r.Reason, c.reason) || r.Remedy == "" || r.Func != "a" {
			t.Errorf("%s\nreason %q, remedy %q, in %s; want %q", c.src, r.Reason, r.Remedy, r.Func, c.reason)
		}
		line := 1 + strings.Count((head + c.src)[:strings.Index(head+c.src, "/*here*/")], "\n")
		if r.Pos.Line != line {
			t.Errorf("%s\nrefused at %s, not at line %d", c.src, r.Pos, line)
		}
	}
}
