package closures

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/compiler/golang/programtest"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

var updateClosures = flag.Bool("update-closures", false, "write the golden file of closures")

// closureHook is a package of the programs under test. See passes a func value
// on.
const closureHook = `package hook

func Check(int) {}

func See[F any](f F) F { return f }
`

// closureRegistry replaces closureHook in converted programs. Its See takes a
// func value apart as a checkpoint would, and returns a new one made from the
// parts.
const closureRegistry = `package hook

import (
	"fmt"
	"unsafe"
)

type words = [2]unsafe.Pointer

var names, makers = map[unsafe.Pointer]string{}, map[unsafe.Pointer]func(unsafe.Pointer) *words{}

func known(name string, code unsafe.Pointer) {
	if names[code] != "" {
		panic(name + " and " + names[code] + " are the same code")
	}
	names[code] = name
}

func Closure[E, F any](name string, mk func(*E) F) {
	e := new(E)
	f := mk(e)
	w := *(**words)(unsafe.Pointer(&f))
	if w[1] != unsafe.Pointer(e) {
		panic(name + " does not capture its environment")
	}
	known(name, w[0])
	makers[w[0]] = func(e unsafe.Pointer) *words {
		f := mk((*E)(e))
		return *(**words)(unsafe.Pointer(&f))
	}
}

// lenient: some func values are as they were.
var lenient bool

func Check(kind int) { lenient = kind > 0 }

func Func(name string, f any) {
	known(name, *(*unsafe.Pointer)((*words)(unsafe.Pointer(&f))[1]))
}

func See[F any](f F) F {
	w := *(**words)(unsafe.Pointer(&f))
	if names[w[0]] == "" && lenient {
		return f
	}
	if names[w[0]] == "" {
		panic(fmt.Sprintf("a %T was not made known", f))
	}
	if mk := makers[w[0]]; mk != nil {
		n := mk(w[1])
		if n == w || n[0] != w[0] || n[1] != w[1] {
			panic(names[w[0]] + " cannot be made again")
		}
		return *(*F)(unsafe.Pointer(&n))
	}
	return f
}
`

const closureDep = `package dep

import (
	"fmt"
	"time"
)

func When() (time.Duration, time.Month) { return time.Minute, time.March }

func Print(a ...any) { fmt.Println(a...) }

type hidden struct{ N int }

func (hidden) Do() {}

func Hidden() hidden { return hidden{} }
`

// closureImporter imports the packages of the programs under test.
type closureImporter struct {
	own map[string]*types.Package
	std types.Importer
}

func (i *closureImporter) Import(path string) (*types.Package, error) {
	if p := i.own[path]; p != nil {
		return p, nil
	}
	return i.std.Import(path)
}

func newClosureImporter(t *testing.T) *closureImporter {
	t.Helper()
	i := &closureImporter{map[string]*types.Package{}, importer.ForCompiler(token.NewFileSet(), "gc", nil)}
	for path, src := range map[string]string{"test/hook": closureHook, "test/dep": closureDep} {
		i.own[path] = checkClosures(t, i, path, "", src).Types
	}
	return i
}

// checkClosures type-checks a package of one file.
func checkClosures(t *testing.T, i types.Importer, path, version, src string) *rewrite.Package {
	t.Helper()
	name := filepath.Base(path) + ".go"
	p := &rewrite.Package{Path: path, Fset: token.NewFileSet(), Source: map[string][]byte{name: []byte(src)}, GoVersion: version, Importer: i}
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

func readClosures(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".go"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// registrations returns a file that registers the converted functions.
func registrations(p *rewrite.Package, m *Converted) string {
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n\nimport cairn_hook \"test/hook\"\n\nfunc init() {\n", p.Types.Name())
	for _, e := range m.Closures {
		fmt.Fprintf(&b, "cairn_hook.Closure(%q, %s)\n", e.Name, e.Constructor)
	}
	for _, e := range m.Funcs {
		fmt.Fprintf(&b, "cairn_hook.Func(%q, %s)\n", e.Name, e.Constructor)
	}
	b.WriteString("}\n")
	return b.String()
}

func allClosures(ast.Expr) bool { return true }

// TestConvert_SameOutput converts programs, and compares their output. If
// everything is converted, func values are taken apart and made again in
// between.
func TestConvert_SameOutput(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command")
	}
	imp := newClosureImporter(t)
	orig, conv := t.TempDir(), t.TempDir()
	write := func(dir, name, text string) {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o777), os.WriteFile(name, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	cases := []struct{ module, file, version string }{
		{"", "basic", ""},
		{"", "methods", ""},
		{"", "generic", ""},
		{"", "imports", ""},
		{"", "loops", "go1.26"},
		{"old/", "loops", "go1.21"},
	}
	count := 0
	kinds := []struct {
		name    string
		convert func(*rewrite.Package, ast.Expr) bool
	}{
		{"all", func(*rewrite.Package, ast.Expr) bool { return true }},
		{"odd", func(*rewrite.Package, ast.Expr) bool { count++; return count%2 == 1 }},
		{"even", func(*rewrite.Package, ast.Expr) bool { count++; return count%2 == 0 }},
		{"escaping", (*rewrite.Package).Escaping},
	}
	var imports, calls strings.Builder
	program := func(dir string) {
		write(dir, "go.mod", "module test\n\ngo 1.26\n\nrequire test/old v0.0.0\n\nreplace test/old => ./old\n")
		write(dir, "old/go.mod", "module test/old\n\ngo 1.21\n")
		write(dir, "dep/dep.go", closureDep)
		write(dir, "main.go", "package main\n\nimport (\n\"fmt\"\n\"test/hook\"\n"+imports.String()+")\n\nfunc main() {\n"+calls.String()+"}\n")
		imports.Reset()
		calls.Reset()
	}
	call := func(path string) {
		id := strings.ReplaceAll(path, "/", "_")
		fmt.Fprintf(&imports, "%s \"test/%s\"\n", id, path)
		fmt.Fprintf(&calls, "%s.Run()\n", id)
	}
	for _, c := range cases {
		path := c.module + c.file
		write(orig, path+"/a.go", readClosures(t, c.file))
		fmt.Fprintf(&calls, "fmt.Println(\"== %s\")\nhook.Check(0)\n", path)
		call(path)
	}
	write(orig, "hook/hook.go", closureHook)
	program(orig)
	for i, k := range kinds {
		fmt.Fprintf(&calls, "hook.Check(%d)\nfmt.Println(\"## %s\")\n", i, k.name)
		for _, c := range cases {
			path := c.module + k.name + "/" + c.file
			p := checkClosures(t, imp, "test/"+path, c.version, readClosures(t, c.file))
			count = 0
			q, made, err := Convert(p, func(n ast.Expr) bool { return k.convert(p, n) })
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range made.Refused {
				t.Error(r)
			}
			if len(made.Closures) == 0 {
				t.Errorf("%s: no closures", path)
			}
			write(conv, path+"/a.go", string(q.Source[c.file+".go"]))
			write(conv, path+"/zz.go", registrations(q, made))
			fmt.Fprintf(&calls, "fmt.Println(\"== %s\")\n", c.module+c.file)
			call(path)
		}
	}
	write(conv, "hook/hook.go", closureRegistry)
	program(conv)
	run := func(dir string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "go", "run", ".")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", programtest.Flags("-mod=mod"), "CGO_ENABLED=0", "GOTOOLCHAIN=local", "GOGC=400")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%v\n%s\n%s", err, out, stderr.Bytes())
		}
		return string(out)
	}
	want, all := run(orig), run(conv)
	if t.Failed() {
		return
	}
	parts := strings.Split(all, "## ")[1:]
	if len(parts) != len(kinds) {
		t.Fatalf("%d of %d programs ran", len(parts), len(kinds))
	}
	for _, part := range parts {
		name, got, _ := strings.Cut(part, "\n")
		a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
		for i := range max(len(a), len(b)) {
			if i >= len(a) || i >= len(b) || a[i] != b[i] {
				t.Errorf("%s: line %d differs:\n%s\nwant:\n%s", name, i+1, strings.Join(b[min(i, len(b)):min(i+3, len(b))], "\n"), strings.Join(a[min(i, len(a)):min(i+3, len(a))], "\n"))
				break
			}
		}
	}
	if news, olds, _ := strings.Cut(want[strings.Index(want, "== loops"):], "== old/loops"); strings.TrimPrefix(news, "== loops") == olds {
		t.Errorf("loop variables of Go 1.21 and 1.22 do not differ: %s", olds)
	}
}

// TestEscaping_Uses checks all expressions that are marked in a source.
func TestEscaping_Uses(t *testing.T) {
	p := checkClosures(t, newClosureImporter(t), "test/escape", "", readClosures(t, "escape"))
	marks := map[int]string{}
	for _, g := range p.Files[0].Comments {
		for _, c := range g.List {
			if s := strings.Trim(c.Text, "/*"); s == "yes" || s == "no" {
				at := p.Fset.Position(c.End()).Offset // gofmt moves marks before commas
				rest := p.Source["escape.go"][at:]
				marks[at+len(rest)-len(bytes.TrimLeft(rest, " ,"))] = s
			}
		}
	}
	asked := 0
	ast.Inspect(p.Files[0], func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		switch e.(type) {
		case *ast.FuncLit, *ast.SelectorExpr:
			at := p.Fset.Position(e.Pos())
			want := marks[at.Offset]
			if want == "" {
				return true
			}
			asked++
			if got := p.Escaping(e); got != (want == "yes") {
				t.Errorf("%v: escaping is %v", at, got)
			}
		}
		return true
	})
	if asked != len(marks) {
		t.Errorf("%d marks, but %d func values next to one", len(marks), asked)
	}
}

// TestConvert_Golden compares a converted package with its golden file.
func TestConvert_Golden(t *testing.T) {
	p := checkClosures(t, newClosureImporter(t), "test/golden", "", readClosures(t, "golden"))
	q, made, err := Convert(p, allClosures)
	if err != nil || len(made.Refused) > 0 {
		t.Fatal(err, made.Refused)
	}
	got := string(q.Source["golden.go"])
	for _, e := range slices.Concat(made.Closures, made.Funcs) {
		got += "// " + e.Name + " = " + e.Constructor + "\n"
	}
	name := filepath.Join("testdata", "golden.txt")
	if *updateClosures {
		if err := os.WriteFile(name, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("differs from %s (-update-closures writes it):\n%s", name, got)
	}
	again, made2, err := Convert(p, allClosures)
	if err != nil || string(again.Source["golden.go"]) != string(q.Source["golden.go"]) || !slices.Equal(made.Closures, made2.Closures) {
		t.Error("a second time gives something else")
	}
}

// TestConvert_NothingToConvert shows that a package stays unchanged if nothing
// is to be converted.
func TestConvert_NothingToConvert(t *testing.T) {
	p := checkClosures(t, newClosureImporter(t), "test/golden", "", readClosures(t, "golden"))
	q, made, err := Convert(p, func(ast.Expr) bool { return false })
	if err != nil || q != p || len(made.Closures)+len(made.Funcs)+len(made.Refused) > 0 {
		t.Error(q != p, made, err)
	}
}

// TestConvert_Refused checks where and why func literals are refused.
func TestConvert_Refused(t *testing.T) {
	imp := newClosureImporter(t)
	for _, c := range []struct{ name, src, at, want string }{
		{"local type", `func f() func() any {
	type local struct{}
	return func() any { return local{} }
}`, "6:29", "the type local, which is declared in a function"},
		{"variable of a local type", `func f() func() int {
	type local struct{ n int }
	x := local{1}
	return func() int { return x.n }
}`, "7:9", "captures x: the type local is declared in a function"},
		{"unexported elsewhere", `func f() func() int {
	x := dep.Hidden()
	return func() int { return x.N }
}`, "6:9", "captures x: the type test/dep.hidden cannot be named"},
		{"method of unexported elsewhere", `func f() func() { return dep.Hidden().Do }`, "4:26", "method Do is part of the state: the type test/dep.hidden"},
		{"predeclared", `type int string

func f() func() {
	n := len("abc")
	return func() { n++ }
}`, "8:9", "captures n: the predeclared type int has another meaning"},
		{"local type argument", `func f[T any](x T) func() T { return func() T { return x } }

func g() {
	type local int
	f(local(1))
}`, "4:38", "which is instantiated with test/p.local: the type local is declared in a function"},
		{"hidden type parameter", `func f[T any](x T) any {
	if T := 1; true {
		return func() any { T++; return x }
	}
	return 0
}

var _ = f(1)`, "6:10", "T is not the type parameter of that name"},
		{"wrong for a type", `func f[T any](x T) func(any) int {
	return func(y any) int {
		switch y.(type) {
		case int:
			return 1
		case T:
			return 2
		}
		_ = x
		return 3
	}
}

var _, _ = f(1), f("")`, "5:9", "cannot stand alone: duplicate case T in type switch"},
		{"import not needed", `func f() func() {
	when, _ := dep.When()
	type local struct{}
	var x local
	return func() { when++; _ = x }
}`, "8:9", "captures x: the type local is declared in a function"},
		{"method of a type parameter", `func f[T error](x T) func() string { return x.Error }

var _ = f[error]`, "4:45", "method Error of a type parameter"},
		{"recover", `type t struct{}

func (t) m() { recover() }

func f() { g := t{}.m; defer g() }`, "8:17", "method m is part of the state and calls recover"},
		{"recover behind an interface", `type t struct{}

func (t) m() { recover() }

func f(x interface{ m() }) { g := x.m; defer g() }`, "8:35", "method m is part of the state and calls recover"},
		{"constant of a local type", `func f() func() int {
	type local int
	const k local = 3
	n := 0
	return func() int { n++; return n * int(k) }
}`, "8:42", "the type local is declared in a function"},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := "package p; import (\n\"test/dep\"\n)\n" + c.src + "\n\nvar _ = dep.When\n\nfunc other() any { n := true; return func() { n = !n } }\n"
			q, made, err := Convert(checkClosures(t, imp, "test/p", "", src), allClosures)
			if err != nil {
				t.Fatal(err)
			}
			if len(made.Refused) != 1 {
				t.Fatalf("refused: %v", made.Refused)
			}
			r := made.Refused[0]
			if at := fmt.Sprintf("%d:%d", r.Pos.Line, r.Pos.Column); at != c.at || !strings.Contains(r.Reason, c.want) || r.Remedy == "" {
				t.Errorf("%v\nwant %s: …%s…", r, c.at, c.want)
			}
			if len(made.Closures) != 1 || !strings.Contains(string(q.Source["p.go"]), "func other() any { n := true; return cairn_make_other_1(&cairn_env_other_1{n}) }") {
				t.Errorf("what was not refused: %v\n%s", made.Closures, q.Source["p.go"])
			}
		})
	}
}

// TestConvert_OpenValues has method values and method expressions of generic
// functions that other packages instantiate.
func TestConvert_OpenValues(t *testing.T) {
	src := "package p\n\ntype S[T any] struct{ x T }\n\nfunc (s *S[T]) get() T { return s.x }\n\nfunc G[T any](x *S[T]) (func() T, func(*S[T]) T) { return x.get, (*S[T]).get }\n"
	p := checkClosures(t, newClosureImporter(t), "test/p", "", src)
	_, made, err := Convert(p, allClosures)
	if err != nil || len(made.Refused) > 0 || len(made.Generic) != 2 {
		t.Fatal(made, err)
	}
	for i, want := range []struct{ name, constructor string }{
		{"test/p.G[...].get-fm1", "Cairn_make_0value_G_1"},
		{"test/p.G[...].get-fm2", "Cairn_make_0expr_G_2"},
	} {
		if g := made.Generic[i]; g.Name != want.name || g.Constructor != want.constructor || !slices.Equal(g.Params, []int{0}) {
			t.Errorf("%+v, want %+v", g, want)
		}
	}
}

// TestConvert_OtherPackages has closures of generic functions that other
// packages instantiate.
func TestConvert_OtherPackages(t *testing.T) {
	src := "package p\n\nfunc f[T, U any](x U) func() U { return func() U { return x } }\n\nfunc G[T any](x []T) (func() []T, func()) { return f[int](x), func() { var t T; _ = t } }\n"
	p := checkClosures(t, newClosureImporter(t), "test/p", "", src)
	_, made, err := Convert(p, allClosures)
	if err != nil || len(made.Refused) > 0 || len(made.Generic) != 2 || len(made.Closures)+len(made.Funcs) > 0 {
		t.Fatal(made, err)
	}
	first, second := made.Generic[0], made.Generic[1]
	if first.Owner != "f" || first.Constructor != "Cairn_make_f_1" || first.Name != "test/p.f[...].func1" || !slices.Equal(first.Params, []int{1}) {
		t.Errorf("%+v", first)
	}
	if second.Owner != "G" || second.Name != "test/p.G[...].func1" || !slices.Equal(second.Params, []int{0}) || second.Pos.Line != 5 || second.Func != "G" {
		t.Errorf("%+v", second)
	}
	main := checkClosures(t, packages{p.Types}, "main", "", "package main\n\nimport \"test/p\"\n\ntype own int\n\nfunc h[T any](x T) { p.G([]map[string]T{{\"\": x}}) }\n\nfunc main() { h(own(1)); p.G([]bool{}) }\n")
	of := Instances([]*rewrite.Package{p, main})
	var got []string
	for _, name := range []string{"f", "G"} {
		list, ok := of(p.Types.Scope().Lookup(name))
		if !ok {
			t.Error("open:", name)
		}
		for _, i := range list {
			got = append(got, fmt.Sprint(name, i.Args, i.In.Path(), Nameable(i.Args[0], i.In)))
		}
	}
	slices.Sort(got)
	want := "G[bool]maintrue G[map[string]main.own]maintrue f[int []bool]maintrue f[int []map[string]main.own]maintrue"
	if strings.Join(got, " ") != want {
		t.Errorf("%s\nwant %s", strings.Join(got, " "), want)
	}
}

// packages is an importer for these packages.
type packages []*types.Package

func (p packages) Import(path string) (*types.Package, error) {
	for _, q := range p {
		if q.Path() == path {
			return q, nil
		}
	}
	return nil, fmt.Errorf("no package %s", path)
}

// TestConvert_NamesAsInGo compares names with those that Go gives.
func TestConvert_NamesAsInGo(t *testing.T) {
	const src = `package main

import (
	"fmt"
	"reflect"
	"runtime"
)

type num int

func name(f any) { fmt.Println(runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()) }

var a = func() {}

func (n *num) p() { name(func() { *n++ }) }

func (n num) v() {
	f := func() {
		func() {}()
		g := func() { name(func() { n++ }) }
		name(g)
		g()
	}
	name(f)
	f()
	name(func() {})
}

func init() { name(func() {}) }

var b = func() {}

func init() { name(func() {}) }

func gen[T any](x T) { name(func() {}); name(func() T { return x }) }

func main() {
	name(a)
	name(b)
	new(num).p()
	num(1).v()
	gen(1)
}
`
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "main.go"), []byte(src), 0o666), os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module m\n\ngo 1.26\n"), 0o666)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "-gcflags=-l", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOTOOLCHAIN=local")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p := checkClosures(t, newClosureImporter(t), "main", "", src)
	_, made, err := Convert(p, allClosures)
	if err != nil || len(made.Refused) > 0 {
		t.Fatal(err, made.Refused)
	}
	var got []string
	for _, e := range slices.Concat(made.Closures, made.Funcs) {
		if n := strings.Replace(e.Name, "[int]", "[...]", 1); n != "main.num.v.func1.1" { // is called at once
			got = append(got, n)
		}
	}
	want := strings.Fields(string(out))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("names\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
