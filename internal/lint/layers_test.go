package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const (
	module   = "github.com/cairnrun/cairn"
	maxLines = 700
)

// layers are the module's packages, bottom to top. A package imports only
// packages of lower layers. "x/*" is everything under x; "." is the root.
var layers = [][]string{
	{"internal/vfs", "internal/step", "internal/mem", "internal/dl", "internal/control", "internal/transport", "internal/driver", "internal/compiler/ir", "internal/tier/policy", "internal/tier/placement", "internal/tier/recovery", "internal/tier/erasure", "internal/compiler/golang/gobuild/shims/*", "internal/compiler/golang/rewrite", "internal/compiler/golang/load", "internal/compiler/scc", "internal/decode", "internal/compiler/golang/programtest", "internal/supervise/scheduler"},
	{"internal/compiler/kernel", "internal/compiler/golang/rewrite/closures", "internal/compiler/golang/rewrite/normalize", "internal/compiler/golang/rewrite/rewritetest", "internal/compiler/golang/rewrite/verify"},
	{"internal/vfs/vfstest", "internal/events", "internal/hdf5", "internal/store", "internal/transport/*", "internal/coord", "internal/tier/copies", "internal/driver/*", "internal/snap", "internal/compiler/ir/*", "internal/compiler/golang/callgraph", "internal/compiler/golang/rewrite/emit"},
	{"internal/coord/coordtest", "internal/graph", "internal/p2p", "internal/compiler/golang/lower", "internal/compiler/golang/divide"},
	{"internal/ckpt", "mpi", "device"},
	{"internal/ckpt/ckpttest", "internal/journal", "internal/migrate", "internal/supervise/rundir", "internal/tier"},
	{"internal/tier/pack"},
	{"internal/tier/local", "internal/tier/kept", "internal/tier/dir", "internal/tier/s3", "internal/tier/s3/s3test", "internal/tier/seal", "internal/tier/tiertest"},
	{"internal/tier/peer"},
	{"internal/engine", "internal/supervise/client", "internal/supervise/helper", "internal/supervise/output"},
	{".", "internal/serve", "internal/supervise", "internal/compiler/hotloops", "internal/compiler/commcheck"},
	{"internal/interconnects", "internal/plain", "internal/web", "internal/source", "internal/compiler/golang/explain", "resume"},
	{"internal/compiler/golang/place", "internal/compiler/golang/gobuild"},
	{"internal/compiler/golang/instrument"},
	{"internal/compiler/golang"},
	programs,
}

// programs may read flags, print and exit. Nothing imports them.
var programs = []string{"cmd/*", "examples/*", "internal/demo", "internal/bench", "internal/bench/*", "internal/e2e", "internal/faults", "internal/interconnects/*", "internal/lint", "internal/difftest", "internal/difftest/*"}

// ends are libraries that act for the program that contains them: they may end
// it, and read its flags.
var ends = []string{"resume"}

// tierUsers may import package tier and those below it. Programs with Cairn in
// them must not: the client of an object store is not for them to carry.
var tierUsers = append([]string{"internal/tier", "internal/tier/*", "internal/serve", "internal/supervise", "internal/supervise/*"}, programs...)

// public are the packages that programs import.
var public = []string{".", "mpi", "device"}

// shown returns the types of other packages that a package's documentation
// shows: in signatures of exported functions and methods, as the target of
// exported aliases, and in exported fields and methods of exported types.
func shown(file *ast.File) (found []*ast.SelectorExpr) {
	collect := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if ok {
				found = append(found, sel)
			}
			return !ok
		})
	}
	members := func(list *ast.FieldList) {
		for _, f := range list.List {
			if len(f.Names) == 0 || slices.ContainsFunc(f.Names, (*ast.Ident).IsExported) {
				collect(f.Type)
			}
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || exportedReceiver(d.Recv.List[0].Type)) {
				collect(d.Type)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				t, ok := s.(*ast.TypeSpec)
				if !ok || !t.Name.IsExported() {
					continue
				}
				switch x := t.Type.(type) {
				case *ast.StructType:
					members(x.Fields)
				case *ast.InterfaceType:
					members(x.Methods)
				default:
					if t.Assign.IsValid() {
						collect(x)
					}
				}
			}
		}
	}
	return found
}

// exportedReceiver reports whether t is T, *T or *T[U] with an exported T.
func exportedReceiver(t ast.Expr) bool {
	switch t := t.(type) {
	case *ast.StarExpr:
		return exportedReceiver(t.X)
	case *ast.IndexExpr:
		return exportedReceiver(t.X)
	case *ast.Ident:
		return t.IsExported()
	}
	return true
}

// layer returns the height of a package, or -1 if it has none.
func layer(pkg string) int {
	return slices.IndexFunc(layers, func(l []string) bool { return matches(l, pkg) })
}

func matches(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		under, any := strings.CutSuffix(p, "*")
		return p == pkg || any && strings.HasPrefix(pkg, under)
	})
}

// printers are calls that only programs may make.
var printers = map[string][]string{
	"os":  {"Exit"},
	"log": {"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln", "Print", "Printf", "Println"},
	"fmt": {"Print", "Printf", "Println"},
}

// check returns the violations in a tree of Go files, without tests.
func check(tree fs.FS) ([]string, error) {
	var wrong []string
	err := fs.WalkDir(tree, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if e.IsDir() {
			if name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "build" || base == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") || strings.HasSuffix(base, "_test.go") {
			return nil
		}
		src, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		found, err := checkFile(name, src)
		wrong = append(wrong, found...)
		return err
	})
	return wrong, err
}

// checkFile returns the violations in one file.
func checkFile(name string, src []byte) (wrong []string, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return nil, err
	}
	complain := func(at token.Pos, format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("%s: %s", set.Position(at), fmt.Sprintf(format, args...)))
	}
	if n := bytes.Count(src, []byte("\n")); n > maxLines && !ast.IsGenerated(file) {
		complain(file.Package, "%d lines; split it, %d are allowed", n, maxLines)
	}
	pkg := path.Dir(name)
	height := layer(pkg)
	if height < 0 {
		complain(file.Package, "package %s has no layer; give it one in internal/lint", pkg)
	}
	library := !matches(programs, pkg)
	names := make(map[string]string) // local name of an import → its path
	for _, im := range file.Imports {
		target, err := strconv.Unquote(im.Path.Value)
		if err != nil {
			return nil, err
		}
		local := path.Base(target)
		if im.Name != nil {
			local = im.Name.Name
		}
		names[local] = target
		switch {
		case strings.HasPrefix(target, "github.com/spf13/") && pkg != "cmd/cairn":
			complain(im.Pos(), "only cmd/cairn reads command lines by %s", target)
		case strings.HasPrefix(target, "github.com/minio/") && !matches([]string{"internal/tier/s3", "internal/tier/s3/*"}, pkg):
			complain(im.Pos(), "only internal/tier/s3 imports %s", target)
		case target == "github.com/klauspost/reedsolomon" && pkg != "internal/tier/erasure":
			complain(im.Pos(), "only internal/tier/erasure imports %s", target)
		case target == "C":
			complain(im.Pos(), "cgo; everything builds without a C compiler")
		case target == "flag" && library && !matches(ends, pkg):
			complain(im.Pos(), "a library reads no flags")
		case target == module || strings.HasPrefix(target, module+"/"):
			below := strings.TrimPrefix(strings.TrimPrefix(target, module), "/")
			if below == "" {
				below = "."
			}
			if h := layer(below); h < 0 || h >= height {
				complain(im.Pos(), "%s imports %s, which does not stand below it", pkg, below)
			}
			if matches([]string{"internal/tier", "internal/tier/*"}, below) && !matches(tierUsers, pkg) {
				complain(im.Pos(), "%s imports %s; only the supervisor, helpers and commands use tiers", pkg, below)
			}
		}
	}
	if matches(public, pkg) {
		for _, sel := range shown(file) {
			if x, ok := sel.X.(*ast.Ident); ok && strings.Contains(names[x.Name], "/internal/") {
				complain(sel.Pos(), "programs see %s.%s here, which is internal", x.Name, sel.Sel.Name)
			}
		}
	}
	if !library || matches(ends, pkg) {
		return wrong, nil
	}
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if ok && slices.Contains(printers[names[x.Name]], sel.Sel.Name) {
			complain(sel.Pos(), "a library does not call %s.%s", x.Name, sel.Sel.Name)
		}
		return true
	})
	return wrong, nil
}

// TestLayers_Module checks the module.
func TestLayers_Module(t *testing.T) {
	wrong, err := check(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

// TestPrograms_WithoutTiers shows that a program with Cairn in it carries no
// tier, and no client of an object store.
func TestPrograms_WithoutTiers(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", ".", "./resume", "./mpi", "./device", "./examples/...")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := strings.Fields(string(out))
	if !slices.Contains(seen, module+"/internal/engine") {
		t.Fatalf("%d packages, but not internal/engine", len(seen))
	}
	for _, pkg := range seen {
		if strings.HasPrefix(pkg, module+"/internal/tier") || strings.HasPrefix(pkg, "github.com/minio/") || pkg == "github.com/klauspost/reedsolomon" {
			t.Errorf("programs contain %s", pkg)
		}
	}
}

// TestLayers_EachRuleBroken breaks each rule once.
func TestLayers_EachRuleBroken(t *testing.T) {
	const im = `import "` + module
	for _, c := range []struct {
		name, file, src, want string
	}{
		{"upwards", "internal/hdf5/a.go", "package hdf5\n" + im + `/internal/ckpt"`, "hdf5 imports internal/ckpt, which does not stand below it"},
		{"sideways", "internal/store/a.go", "package store\n" + im + `/internal/hdf5"`, "store imports internal/hdf5, which"},
		{"the root", "internal/ckpt/a.go", "package ckpt\n" + im + `"`, "ckpt imports ., which"},
		{"a program", "a.go", "package cairn\n" + im + `/cmd/cairn"`, ". imports cmd/cairn, which"},
		{"other systems", "internal/vfs/os_windows.go", "//go:build windows\n\npackage vfs\n" + im + `/internal/store"`, "internal/vfs imports internal/store"},
		{"unknown package", "misc/a.go", "package misc", "misc has no layer"},
		{"unknown import", "internal/ckpt/a.go", "package ckpt\n" + im + `/misc"`, "ckpt imports misc, which"},
		{"downwards", "internal/ckpt/a.go", "package ckpt\n" + im + `/internal/hdf5"`, ""},
		{"cobra", "internal/demo/a.go", "package main\nimport \"github.com/spf13/cobra\"", "only cmd/cairn reads command lines"},
		{"cobra of the command", "cmd/cairn/a.go", "package main\nimport \"github.com/spf13/cobra\"", ""},
		{"a tier in a program", "internal/engine/a.go", "package engine\n" + im + `/internal/tier"`, "only the supervisor, helpers and commands use tiers"},
		{"a tier in a helper", "internal/supervise/helper/a.go", "package helper\n" + im + `/internal/tier/dir"`, ""},
		{"minio", "internal/supervise/helper/a.go", "package helper\nimport \"github.com/minio/minio-go/v7\"", "only internal/tier/s3 imports github.com/minio"},
		{"minio in its place", "internal/tier/s3/a.go", "package s3\nimport \"github.com/minio/minio-go/v7/pkg/credentials\"", ""},
		{"reedsolomon", "internal/tier/copies/a.go", "package copies\nimport \"github.com/klauspost/reedsolomon\"", "only internal/tier/erasure imports"},
		{"cgo", "internal/mem/a.go", "package mem\nimport \"C\"", "cgo"},
		{"flags", "internal/store/a.go", "package store\nimport \"flag\"", "reads no flags"},
		{"flags of a program", "cmd/x/a.go", "package main\nimport \"flag\"", ""},
		{"exit of a program's run time", "resume/a.go", "package resume\nimport (\"os\"\n\"flag\")\nfunc f() { os.Exit(flag.NArg()) }", ""},
		{"exit", "internal/store/a.go", "package store\nimport \"os\"\nfunc f() { os.Exit(1) }", "a.go:3:12: a library does not call os.Exit"},
		{"renamed", "internal/store/a.go", "package store\nimport x \"log\"\nvar f = x.Fatal", "does not call x.Fatal"},
		{"print", "a.go", "package cairn\nimport \"fmt\"\nfunc f() { fmt.Println() }", "does not call fmt.Println"},
		{"format", "a.go", "package cairn\nimport \"fmt\"\nfunc f() { fmt.Sprint() }", ""},
		{"print in a program", "examples/x/a.go", "package main\nimport \"fmt\"\nfunc f() { fmt.Println() }", ""},
		{"an internal argument", "mpi/a.go", "package mpi\n" + im + `/internal/p2p"` + "\nfunc (c *Comm[T]) F(*p2p.Engine) {}", "a.go:3:22: programs see p2p.Engine here"},
		{"an internal field", "device/a.go", "package device\n" + im + `/internal/driver"` + "\ntype T struct{ F []driver.Kind }", "programs see driver.Kind here"},
		{"an internal alias", "a.go", "package cairn\n" + im + `/internal/graph"` + "\ntype T = graph.Coder", "programs see graph.Coder here"},
		{"nothing internal", "a.go", "package cairn\n" + im + `/internal/graph"` + "\ntype T graph.Coder\ntype u struct{ A, b graph.T }\ntype V struct { v graph.T }\nfunc f(graph.T) {}\nfunc (u) F(graph.T) {}\nfunc (T) f(graph.T) {}\nvar E = graph.E", ""},
		{"long", "internal/ckpt/a.go", "package ckpt\n" + strings.Repeat("\n", maxLines), "701 lines"},
		{"long, generated", "internal/ckpt/a.go", "// Code generated by 'a'. DO NOT EDIT.\n\npackage ckpt\n" + strings.Repeat("\n", maxLines), ""},
		{"long enough", "internal/ckpt/a.go", "package ckpt\n" + strings.Repeat("\n", maxLines-1), ""},
		{"a test", "internal/store/a_test.go", "package store\n" + im + `/internal/ckpt"`, ""},
		{"test data", "internal/store/testdata/a.go", "package store\n" + im + `/internal/ckpt"`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			wrong, err := check(fstest.MapFS{c.file: {Data: []byte(c.src)}})
			if err != nil {
				t.Fatal(err)
			}
			all := strings.Join(wrong, "\n")
			if c.want == "" && all != "" || !strings.Contains(all, c.want) {
				t.Errorf("found %q, want %q", all, c.want)
			}
		})
	}
}
