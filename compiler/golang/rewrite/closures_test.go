package rewrite

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
	"strings"
	"testing"
	"time"
)

var updateClosures = flag.Bool("update-closures", false, "write the golden file of closures")

// closureHook is a package of the programs under test. See passes a func value on.
const closureHook = `package hook

func See[F any](f F) F { return f }
`

// closureRegistry is what stands for it in converted programs: See takes a func
// value apart as a checkpoint would, and returns another made from what it found.
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

func Func(name string, f any) {
	known(name, *(*unsafe.Pointer)((*words)(unsafe.Pointer(&f))[1]))
}

func See[F any](f F) F {
	w := *(**words)(unsafe.Pointer(&f))
	if names[w[0]] == "" {
		panic(fmt.Sprintf("a %T was not made known", f))
	}
	if mk := makers[w[0]]; mk != nil {
		n := mk(w[1])
		if n == w || n[0] != w[0] || n[1] != w[1] {
			panic(names[w[0]] + " can't be made again")
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
func checkClosures(t *testing.T, i types.Importer, path, version, src string) *Package {
	t.Helper()
	name := filepath.Base(path) + ".go"
	p := &Package{Path: path, Fset: token.NewFileSet(), Source: map[string][]byte{name: []byte(src)}, GoVersion: version, Importer: i}
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

func readClosures(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "closures", name+".go"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// registrations is a file that makes known what was made.
func registrations(p *Package, m *Made) string {
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

// TestClosuresRun converts everything in programs, and compares what they print.
// All func values on the way are taken apart and made again.
func TestClosuresRun(t *testing.T) {
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
	write(orig, "hook/hook.go", closureHook)
	write(conv, "hook/hook.go", closureRegistry)
	cases := []struct{ path, file, version string }{
		{"basic", "basic", ""},
		{"methods", "methods", ""},
		{"generic", "generic", ""},
		{"imports", "imports", ""},
		{"loops", "loops", "go1.26"},
		{"old/loops", "loops", "go1.21"},
	}
	var imports, calls strings.Builder
	for i, c := range cases {
		src := readClosures(t, c.file)
		p := checkClosures(t, imp, "test/"+c.path, c.version, src)
		q, made, err := p.Closures(allClosures)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range made.Refused {
			t.Error(r)
		}
		write(orig, c.path+"/a.go", src)
		write(conv, c.path+"/a.go", string(q.Source[filepath.Base(c.path)+".go"]))
		write(conv, c.path+"/zz.go", registrations(q, made))
		fmt.Fprintf(&imports, "p%d \"test/%s\"\n", i, c.path)
		fmt.Fprintf(&calls, "println(\"== %s\")\np%d.Run()\n", c.path, i)
	}
	for _, dir := range []string{orig, conv} {
		write(dir, "go.mod", "module test\n\ngo 1.26\n\nrequire test/old v0.0.0\n\nreplace test/old => ./old\n")
		write(dir, "old/go.mod", "module test/old\n\ngo 1.21\n")
		write(dir, "dep/dep.go", closureDep)
		write(dir, "main.go", "package main\n\nimport (\n\"fmt\"\n"+imports.String()+")\n\nfunc println(s string) { fmt.Println(s) }\n\nfunc main() {\n"+calls.String()+"}\n")
	}
	run := func(dir string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "go", "run", ".")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "CGO_ENABLED=0", "GOTOOLCHAIN=local")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%v\n%s\n%s", err, out, stderr.Bytes())
		}
		return string(out)
	}
	want, got := run(orig), run(conv)
	if t.Failed() {
		return
	}
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			t.Fatalf("line %d differs:\n%s\nwant:\n%s", i+1, strings.Join(b[min(i, len(b)):min(i+3, len(b))], "\n"), strings.Join(a[min(i, len(a)):min(i+3, len(a))], "\n"))
		}
	}
	if news, olds, _ := strings.Cut(want[strings.Index(want, "== loops"):], "== old/loops"); strings.TrimPrefix(news, "== loops") == olds {
		t.Errorf("loop variables of Go 1.21 and 1.22 do not differ: %s", olds)
	}
}
