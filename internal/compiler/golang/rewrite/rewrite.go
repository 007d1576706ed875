// Package rewrite and those below it make Go functions resumable by rewriting
// their source.
//
// They work on one type-checked package at a time, in passes. Each pass leaves
// valid Go, which is type-checked again; text stays as the user wrote it
// wherever nothing has to change. The passes, in order:
//
//	normalize.Mark         put marks and line comments into the source
//	normalize.RenameLocals rename variables and types whose names are in the way
//	normalize.MoveLoopLiterals  move func literals out of the heads of loops
//	normalize.LowerWaits   turn waits and go statements into calls
//	normalize.LowerCallbacks  copy functions of the standard library that call
//	                       the program's functions into the package
//	normalize.LowerOnce    copy sync.OnceValue and the like into the package
//	normalize.HoistTypes   move local types to package level
//	normalize.LowerRanges  turn loops over functions into calls
//	normalize.MoveResults  move captured named results to variables
//	normalize.LowerGotos   turn jumps back into loops
//	closures.Lift          turn func literals that are only called into
//	                       functions
//	closures.Convert       turn func values that may be saved into records
//	normalize.Functions    give each call that leads to a point a statement, and
//	                       each loop around one an index that can be saved
//	emit.FastPaths         find functions that can unwind
//	emit.Emit              write frames, points and continuations
//	verify.Verifier        check each continuation (Emit calls it)
//
// This package has what they share: Package, the marks, changes of text, and
// analyses of syntax, types and escaping func values.
package rewrite

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"strings"
)

// Prefix begins every name that is put into a program.
const Prefix = "cairn_"

// Package is a type-checked package.
type Package struct {
	Path      string
	Fset      *token.FileSet
	Files     []*ast.File
	Source    map[string][]byte // text of Files by their names in Fset
	Types     *types.Package
	Info      *types.Info
	GoVersion string         // as in go.mod: go1.22; empty: the newest
	Sizes     types.Sizes    // nil: those of amd64
	Importer  types.Importer // importer for the packages that it imports

	// Named returns an exported alias that another package gets for one of its
	// types, nil if it cannot get one.
	Named func(*types.TypeName) *types.Alias

	// InspectsCallers reports whether functions of a package inspect their
	// callers.
	InspectsCallers func(path string) bool

	// Reassigned reports whether a field of another package's struct may change
	// after the struct was made; nil: all may.
	Reassigned func(*types.Var) bool

	// Std returns the source of a package of the standard library.
	Std func(path string) (*StdSource, error)

	// KeptTypes says why local types keep their names, although these are taken
	// at package level.
	KeptTypes map[string]string

	escapes map[ast.Decl]*Escapes // see EscapesOf
	checked bool                  // With has type-checked it
}

// Refusal is why something cannot be made resumable.
type Refusal struct {
	Pos     token.Position
	Reason  string // "a point inside a range over a function"
	Remedy  string // "put the loop's point outside of it"
	Package string
	Func    string // the function that contains it: FuncName of its declaration
}

func (r *Refusal) Error() string {
	s := r.Pos.String() + ": " + r.Reason
	if r.Remedy != "" {
		s += "; " + r.Remedy
	}
	return s
}

// Mistake reports whether the pass refuses its own work, not the program.
func (r *Refusal) Mistake() bool { return strings.HasPrefix(r.Reason, "internal: ") }

// Refuse makes a Refusal.
func (p *Package) Refuse(at token.Pos, remedy, reason string, args ...any) error {
	r := &Refusal{Pos: p.Fset.Position(at), Reason: fmt.Sprintf(reason, args...), Remedy: remedy, Package: p.Path}
	for _, f := range p.Files {
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Pos() <= at && at <= d.End() {
				r.Func = FuncName(d)
			}
		}
	}
	return r
}

// With returns the package with the text of some files replaced, and
// type-checks it again if there is a difference. The files keep their names.
func (p *Package) With(text map[string][]byte) (*Package, error) {
	same := p.checked
	for name, t := range text {
		same = same && bytes.Equal(t, p.Source[name])
	}
	q := *p
	if same {
		q.escapes = nil
		return &q, nil
	}
	q.checked = true
	q.Fset = token.NewFileSet()
	q.Source = maps.Clone(p.Source)
	maps.Copy(q.Source, text)
	q.Files, q.escapes = nil, nil
	for _, f := range p.Files {
		name := p.FileName(f)
		g, err := parser.ParseFile(q.Fset, name, q.Source[name], parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("rewritten source cannot be parsed: %w", err)
		}
		q.Files = append(q.Files, g)
	}
	return &q, q.Check()
}

// Check type-checks Files.
func (p *Package) Check() error {
	p.Info = NewInfo()
	var errs []error
	conf := types.Config{Importer: p.Importer, GoVersion: p.GoVersion, Sizes: p.Sizes, FakeImportC: true,
		Error: func(err error) { errs = append(errs, err) }}
	if conf.Sizes == nil {
		conf.Sizes = types.SizesFor("gc", "amd64")
	}
	p.Types, _ = conf.Check(p.Path, p.Fset, p.Files, p.Info)
	if len(errs) > 0 {
		return fmt.Errorf("rewritten source of %s: %w", p.Path, errs[0])
	}
	return nil
}

// NewInfo returns an Info with all maps that the passes need.
func NewInfo() *types.Info {
	return &types.Info{
		Types:        map[ast.Expr]types.TypeAndValue{},
		Defs:         map[*ast.Ident]types.Object{},
		Uses:         map[*ast.Ident]types.Object{},
		Implicits:    map[ast.Node]types.Object{},
		Selections:   map[*ast.SelectorExpr]*types.Selection{},
		Scopes:       map[ast.Node]*types.Scope{},
		Instances:    map[*ast.Ident]types.Instance{},
		FileVersions: map[*ast.File]string{},
	}
}
