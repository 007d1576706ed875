package rewrite

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// StdSource is the source of a package of the standard library, from which
// declarations are copied.
type StdSource struct {
	path    string
	fset    *token.FileSet
	text    map[*ast.File][]byte
	decls   map[string]stdDecl   // of package level, by name
	methods map[string][]stdDecl // by the name of the receiver's type
	dynamic []string             // names of methods and fields whose calls may lead to the program
	calls   map[string]bool      // functions that lead to such calls
}

type stdDecl struct {
	file *ast.File
	decl ast.Decl
	kind ast.ObjKind
}

// dynamicCalls are the names of methods and fields through which packages of
// the standard library call the program. Those through others (Len and Swap of
// sort.Interface) cannot be resumed: each place costs a copy of the code after
// it.
var dynamicCalls = map[string][]string{
	"sort":           {"Less"},
	"container/heap": {"Less", "Swap", "Len", "Push", "Pop"},
}

// ReadStd parses the files of a package of the standard library.
func ReadStd(path, dir string, names []string) (*StdSource, error) {
	s := &StdSource{path: path, fset: token.NewFileSet(), text: map[*ast.File][]byte{}, decls: map[string]stdDecl{}, methods: map[string][]stdDecl{}, dynamic: dynamicCalls[path], calls: map[string]bool{}}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(s.fset, name, text, 0) // resolves names inside the file
		if err != nil {
			return nil, err
		}
		s.text[f] = text
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					s.decls[d.Name.Name] = stdDecl{f, d, ast.Fun}
				} else if of, _, _ := strings.Cut(FuncName(d), "."); of != "" {
					s.methods[of] = append(s.methods[of], stdDecl{f, d, ast.Fun})
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						s.decls[spec.Name.Name] = stdDecl{f, d, ast.Typ}
					case *ast.ValueSpec:
						for _, id := range spec.Names {
							s.decls[id.Name] = stdDecl{f, d, map[bool]ast.ObjKind{true: ast.Con, false: ast.Var}[d.Tok == token.CONST]}
						}
					}
				}
			}
		}
	}
	for grew := true; grew; {
		grew = false
		for name, d := range s.decls {
			if f, ok := d.decl.(*ast.FuncDecl); ok && !s.calls[name] && f.Body != nil && s.leads(d.file, f.Body) {
				s.calls[name], grew = true, true
			}
		}
	}
	return s, nil
}

// leads reports whether some code calls a function of the program.
func (s *StdSource) leads(f *ast.File, n ast.Node) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		found = found || ok && s.isCall(f, c)
		return !found
	})
	return found
}

// isCall reports whether a call may lead to a function of the program.
func (s *StdSource) isCall(f *ast.File, c *ast.CallExpr) bool {
	switch fun := ast.Unparen(c.Fun).(type) {
	case *ast.Ident:
		if s.global(f, fun) {
			return s.calls[fun.Name]
		}
		return fun.Obj != nil && fun.Obj.Kind == ast.Var
	case *ast.SelectorExpr:
		x, ok := fun.X.(*ast.Ident)
		return (!ok || x.Obj != nil) && slices.Contains(s.dynamic, fun.Sel.Name)
	}
	return false
}

// global reports whether an identifier names a declaration of package level.
func (s *StdSource) global(f *ast.File, id *ast.Ident) bool {
	if _, ok := s.decls[id.Name]; !ok {
		return false
	}
	return id.Obj == nil || f.Scope.Objects[id.Name] == id.Obj
}

// CopyOf returns the declarations that roots need, with NAME_ before their
// names, marks at the calls that may lead to functions of the program, and the
// packages that they use. What the package exports stays there, unless it leads
// to such calls.
func (s *StdSource) CopyOf(roots ...string) (text string, imports []string, err error) {
	var b strings.Builder
	done := map[ast.Decl]bool{}
	for _, name := range roots {
		s.calls[name] = true // also sort.Reverse, whose result calls the program
	}
	todo := roots
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		d, ok := s.decls[name]
		if !ok {
			return "", nil, fmt.Errorf("package %s has no %s", s.path, name)
		}
		if d.kind == ast.Var {
			return "", nil, fmt.Errorf("it uses variable %s", name)
		}
		for _, d := range slices.Concat(s.methods[name], []stdDecl{d}) {
			if done[d.decl] {
				continue
			}
			done[d.decl] = true
			one, more, uses, err := s.copyDecl(d.file, d.decl)
			if err != nil {
				return "", nil, err
			}
			b.WriteString("\n" + one + "\n")
			todo = append(todo, more...)
			imports = append(imports, uses...)
		}
	}
	slices.Sort(imports)
	return b.String(), slices.Compact(imports), nil
}

// copyDecl returns the text of a declaration, what else must be copied, and the
// packages that it uses.
func (s *StdSource) copyDecl(f *ast.File, d ast.Decl) (text string, more, imports []string, err error) {
	type edit struct {
		lo, hi token.Pos
		text   string
	}
	var edits []edit
	keep := ""
	selected := map[*ast.Ident]bool{}
	use := func(path string) string {
		imports = append(imports, path)
		return Prefix + path[strings.LastIndexByte(path, '/')+1:]
	}
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			selected[n.Sel] = true
		case *ast.Field:
			if _, ok := n.Type.(*ast.FuncType); ok { // a method of an interface
				for _, id := range n.Names {
					selected[id] = id.Obj == nil
				}
			}
		case *ast.FuncDecl:
			selected[n.Name] = n.Recv != nil
		case *ast.CallExpr:
			if s.isCall(f, n) {
				edits = append(edits, edit{n.Lparen + 1, n.Lparen + 1, CallMark})
			}
		case *ast.Ident:
			switch {
			case localType(n) && f.Scope.Objects[n.Name] != n.Obj: // it becomes a type of the package
				edits = append(edits, edit{n.Pos(), n.End(), "NAME_" + n.Name})
			case selected[n] || n.Obj != nil && f.Scope.Objects[n.Name] != n.Obj: // of something, or local
			case s.global(f, n):
				to := "NAME_" + n.Name
				if ast.IsExported(n.Name) && !s.calls[n.Name] {
					to = use(s.path) + "." + n.Name
					if s.decls[n.Name].kind == ast.Typ && keep == "" {
						keep = "\n\ntype _ = " + to + " // keeps the import in use"
					}
				} else {
					more = append(more, n.Name)
				}
				edits = append(edits, edit{n.Pos(), n.End(), to})
			case n.Obj == nil:
				for _, i := range f.Imports {
					path, _ := strconv.Unquote(i.Path.Value)
					name := path[strings.LastIndexByte(path, '/')+1:]
					if i.Name != nil {
						name = i.Name.Name
					}
					if name != n.Name {
						continue
					}
					if path == "unsafe" || strings.Contains(path, "internal/") {
						err = errors.Join(err, fmt.Errorf("it uses package %s", path))
					}
					edits = append(edits, edit{n.Pos(), n.End(), use(path)})
				}
			}
		}
		return true
	})
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(a.lo, b.lo) })
	at := func(p token.Pos) int { return s.fset.Position(p).Offset }
	lo, hi := d.Pos(), d.End()
	if g, ok := d.(*ast.GenDecl); ok {
		lo = g.TokPos
	}
	source := s.text[f]
	from := at(lo)
	var b strings.Builder
	for _, e := range edits {
		b.Write(source[from:at(e.lo)])
		b.WriteString(e.text)
		from = at(e.hi)
	}
	b.Write(source[from:at(hi)])
	b.WriteString(keep)
	return b.String(), more, imports, err
}

// localType reports whether an identifier names a type that a function
// declares.
func localType(id *ast.Ident) bool {
	if id.Obj == nil || id.Obj.Kind != ast.Typ {
		return false
	}
	_, ok := id.Obj.Decl.(*ast.TypeSpec)
	return ok
}

// CallsMethod reports whether a copy of a function of a package of the standard
// library can be resumed while it calls a method of the program.
func CallsMethod(path, method string) bool { return slices.Contains(dynamicCalls[path], method) }
