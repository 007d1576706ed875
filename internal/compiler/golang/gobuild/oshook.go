package gobuild

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// A rewritten program gets a package os that calls a hook of the run time
// before it changes an open file. Calls that the program itself makes are
// replaced in its source, but packages such as fmt and bufio also write to
// files.

// osHook is the file that is added to package os.
const osHook = `package os

import _ "unsafe"

//go:linkname cairn_hook
var cairn_hook func(f *File, op byte, off, n int64) (func(), error)

//go:linkname cairn_shared
var cairn_shared bool
`

// hookedMethods are the methods of os.File that call the hook, with its
// arguments. $1 and $2 are the method's parameters.
var hookedMethods = map[string]string{
	"Write":    "'w', 0, int64(len($1))",
	"WriteAt":  "'a', $2, int64(len($1))",
	"ReadFrom": "'r', 0, 0",
	"Seek":     "'s', $1, int64($2)",
	"Truncate": "'t', $1, 0",
	"Chmod":    "'m', 0, int64($1)",
}

// hookOS returns the changed files of package os, by their names below
// GOROOT/src.
func hookOS(root string) (map[string][]byte, error) {
	names, err := filepath.Glob(filepath.Join(root, "src", "os", "*.go"))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"os/zz_cairn.go": []byte(osHook)}
	found := map[string]bool{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if !bytes.Contains(text, []byte("*File)")) {
			continue
		}
		hooked, err := hookFile(name, text, found)
		if err != nil {
			return nil, err
		}
		if hooked != nil {
			files["os/"+filepath.Base(name)] = hooked
		}
	}
	for method := range hookedMethods {
		if !found[method] {
			return nil, fmt.Errorf("package os in %s has no method File.%s that can be hooked", root, method)
		}
	}
	return files, nil
}

// hookFile adds the calls to a file. It returns nil if there are none. Lines
// stay where they are.
func hookFile(name string, text []byte, found map[string]bool) ([]byte, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var out []byte
	done := 0
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil || fn.Recv == nil || len(fn.Recv.List) != 1 || len(fn.Recv.List[0].Names) != 1 {
			continue
		}
		star, ok := fn.Recv.List[0].Type.(*ast.StarExpr)
		if !ok {
			continue
		}
		if id, ok := star.X.(*ast.Ident); !ok || id.Name != "File" {
			continue
		}
		call, ok := hookedMethods[fn.Name.Name]
		if !ok {
			continue
		}
		var params []string
		for _, p := range fn.Type.Params.List {
			for _, n := range p.Names {
				params = append(params, n.Name)
			}
		}
		zero := ""
		switch fn.Type.Results.NumFields() {
		case 1:
		case 2:
			zero = "0, "
		default:
			return nil, errors.New(fset.Position(fn.Pos()).String() + ": the method has unexpected results")
		}
		for i, p := range params {
			call = strings.ReplaceAll(call, fmt.Sprint("$", i+1), p)
		}
		if strings.Contains(call, "$") {
			return nil, errors.New(fset.Position(fn.Pos()).String() + ": the method has unexpected parameters")
		}
		at := fset.Position(fn.Body.Lbrace).Offset + 1
		out = append(out, text[done:at]...)
		self := fn.Recv.List[0].Names[0].Name
		if fn.Name.Name == "ReadFrom" { // files that other ranks write too go through Write
			out = fmt.Appendf(out, " if cairn_shared { return genericReadFrom(%s, %s) };", self, params[0])
		}
		out = fmt.Appendf(out, " if cairn_hook != nil { cairn_done, cairn_err := cairn_hook(%s, %s); if cairn_err != nil { return %scairn_err }; if cairn_done != nil { defer cairn_done() } };", self, call, zero)
		done = at
		found[fn.Name.Name] = true
	}
	if out == nil {
		return nil, nil
	}
	return append(out, text[done:]...), nil
}
