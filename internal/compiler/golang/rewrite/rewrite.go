// Package rewrite makes Go functions resumable by rewriting their source.
//
// It works on one type-checked package at a time, in passes. Each pass leaves
// valid Go, which is type-checked again; text stays as the user wrote it wherever
// nothing has to change. The passes, in order:
//
//	Mark             put marks and line comments into the source              marking.go, devirtualize.go, signal_waits.go
//	HoistTypes       move local types to package level                        hoist.go
//	LowerRanges      turn loops over functions into calls                     ranges*.go
//	MoveResults      move captured named results to variables                 results.go
//	LowerGotos       turn jumps back into loops                               gotos.go
//	LiftLiterals     turn func literals that are only called into functions   lift.go
//	ConvertClosures  turn func values that may be saved into records          closures*.go, instances.go
//	Normalize        give each call that leads to a point a statement, and    normalize*.go
//	                 each loop around one an index that can be saved
//	FastPaths        find functions that can unwind                           fastpath.go
//	Emit             write frames, points and continuations                   emit*.go
//
// Emit has stages of its own, for each function:
//
//	marks.go            find the marks, and the statements around them
//	liveness.go         find the variables that are read after each mark
//	frame_plan.go       choose the variables of frames, and which are boxed
//	boxes.go            write variables that others may point to
//	defers.go           issue pending deferred calls again
//	continuation*.go    write the code after each mark, which a resumed function runs
//	search_loop.go      leave out tests where they would cost too much
//	verify*.go          check that a continuation reads no variable without a value
//	shadowing.go        rename variables that the new code could not name
//	frame_info.go       report what is saved
package rewrite

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
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
	GoVersion string         // as in go.mod: go1.22; empty: newest
	Sizes     types.Sizes    // nil: those of amd64
	Importer  types.Importer // for what it imports

	// Named returns an exported name that another package gets for one of its types,
	// nil if it can't get any.
	Named func(*types.TypeName) *types.Alias

	// InspectsCallers says that functions of a package look at who calls them.
	InspectsCallers func(path string) bool

	escapes map[ast.Decl]*escapes // see escapesOf
}

// Refusal is why something can't be made resumable.
type Refusal struct {
	Pos     token.Position
	Reason  string // "a point inside a range over a function"
	Remedy  string // "put the loop's point outside of it"
	Package string
	Func    string // that it is in: FuncName of its declaration
}

func (r *Refusal) Error() string {
	s := r.Pos.String() + ": " + r.Reason
	if r.Remedy != "" {
		s += "; " + r.Remedy
	}
	return s
}

// Mistake says that the pass refuses its own work, not the program.
func (r *Refusal) Mistake() bool { return strings.HasPrefix(r.Reason, "internal: ") }

// refuse makes a Refusal.
func (p *Package) refuse(at token.Pos, remedy, reason string, args ...any) error {
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

// With returns the package with the text of some of its files replaced, and
// checked again. Names of files stay.
func (p *Package) With(text map[string][]byte) (*Package, error) {
	q := *p
	q.Fset = token.NewFileSet()
	q.Source = maps.Clone(p.Source)
	maps.Copy(q.Source, text)
	q.Files, q.escapes = nil, nil
	for _, f := range p.Files {
		name := p.name(f)
		g, err := parser.ParseFile(q.Fset, name, q.Source[name], parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("rewritten source can't be parsed: %w", err)
		}
		q.Files = append(q.Files, g)
	}
	return &q, q.check()
}

// check type-checks Files.
func (p *Package) check() error {
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

// NewInfo returns an Info with all that passes ask for.
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

// name is a file's name.
func (p *Package) name(f *ast.File) string { return p.Fset.File(f.FileStart).Name() }

// at returns the text between two positions of one file.
func (p *Package) at(lo, hi token.Pos) string {
	f := p.Fset.File(lo)
	return string(p.Source[f.Name()][f.Offset(lo):f.Offset(hi)])
}

// text returns a node's text, in which put replaces the nodes for which it
// returns true; it is not asked about what is inside these.
func (p *Package) text(n ast.Node, put func(ast.Node) (string, bool)) string {
	return p.span(n.Pos(), n.End(), n, put)
}

// span is text from lo to hi, which must enclose n.
func (p *Package) span(lo, hi token.Pos, n ast.Node, put func(ast.Node) (string, bool)) string {
	var b strings.Builder
	last := lo
	ast.Inspect(n, func(m ast.Node) bool {
		if m == nil || m.Pos() < lo || m.End() > hi {
			return m != nil
		}
		if put == nil {
			return false
		}
		s, ok := put(m)
		if !ok {
			return true
		}
		b.WriteString(p.at(last, m.Pos()))
		b.WriteString(s)
		last = m.End()
		return false
	})
	b.WriteString(p.at(last, hi))
	return b.String()
}

// qualify returns how a file of the package names types of other packages; miss
// is called with those that the file does not import under a usable name.
func (p *Package) qualify(f *ast.File, miss func(*types.Package) string) types.Qualifier {
	names := map[*types.Package]string{}
	for _, s := range f.Imports {
		var o types.Object
		if s.Name != nil {
			o = p.Info.Defs[s.Name]
		} else {
			o = p.Info.Implicits[s]
		}
		if n, ok := o.(*types.PkgName); ok && n.Name() != "_" && n.Name() != "." {
			names[n.Imported()] = n.Name()
		}
	}
	return func(q *types.Package) string {
		if q == p.Types {
			return ""
		}
		if n, ok := names[q]; ok {
			return n
		}
		return miss(q)
	}
}

// formatted is go/format on a file's text. What tells statements their lines stays
// before them.
func formatted(name string, text []byte) ([]byte, error) {
	out, err := format.Source(text)
	if err != nil {
		return nil, fmt.Errorf("%s: rewritten source: %w\n%s", name, err, bytes.TrimSpace(text))
	}
	return JoinLineComments(out), nil
}
