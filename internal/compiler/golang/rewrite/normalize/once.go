package normalize

import (
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// onceFunc describes sync.OnceFunc, OnceValue or OnceValues: the type
// parameters, the results, and the fields that hold them.
type onceFunc struct {
	params  string
	results []string
}

var onceFuncs = map[string]onceFunc{
	"OnceFunc":   {"", nil},
	"OnceValue":  {"[T1 interface{}]", []string{"T1"}},
	"OnceValues": {"[T1, T2 interface{}]", []string{"T1", "T2"}},
}

// LowerOnce replaces sync.OnceFunc, OnceValue and OnceValues by copies in the
// package. The closures that these return can be saved as the program's own
// are.
func LowerOnce(p *rewrite.Package) (*rewrite.Package, error) {
	text := map[string][]byte{}
	copies := map[string]string{} // names of the copies
	for _, f := range p.Files {
		var edits []rewrite.Edit
		var decls strings.Builder
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := s.X.(*ast.Ident)
			if !ok {
				return true
			}
			pkg, ok := p.Info.Uses[x].(*types.PkgName)
			if !ok || pkg.Imported().Path() != "sync" {
				return true
			}
			name := s.Sel.Name
			once, ok := onceFuncs[name]
			if !ok {
				return true
			}
			if len(edits) == 0 {
				fmt.Fprintf(&decls, "\ntype _ = %s.Once // for the import\n", x.Name)
			}
			if copies[name] == "" {
				copies[name] = unusedName(p, rewrite.Prefix+name, nil)
				decls.WriteString(once.text(copies[name], x.Name))
			}
			edits = append(edits, rewrite.Edit{Lo: s.Pos(), Hi: s.End(), Text: copies[name]})
			return true
		})
		if len(edits) > 0 {
			text[p.FileName(f)] = []byte(p.Apply(f.FileStart, f.FileEnd, edits) + "\n" + decls.String())
		}
	}
	if len(text) == 0 {
		return p, nil
	}
	return p.With(text)
}

// unusedName returns a name, changed if something in the package has it, or is
// to get it.
func unusedName(p *rewrite.Package, name string, planned map[string]string) string {
	taken := map[string]bool{}
	for _, n := range planned {
		taken[n] = true
	}
	for _, m := range []map[*ast.Ident]types.Object{p.Info.Defs, p.Info.Uses} {
		for id := range maps.Keys(m) {
			taken[id.Name] = true
		}
	}
	to := name
	for i := 2; taken[to]; i++ {
		to = fmt.Sprintf("%s_%d", name, i)
	}
	return to
}

// text writes the copy of a function, as package sync has it.
func (o onceFunc) text(name, sync string) string {
	var fields, results []string
	for i, t := range o.results {
		fields = append(fields, fmt.Sprintf("r%d %s\n", i+1, t))
		results = append(results, fmt.Sprintf("d.r%d", i+1))
	}
	call, ret := "d.f()", ""
	if len(results) > 0 {
		call = strings.Join(results, ", ") + " = d.f()"
		ret = "return " + strings.Join(results, ", ") + "\n"
	}
	sig := "func() (" + strings.Join(o.results, ", ") + ")"
	return fmt.Sprintf(`
func %s%s(f %s) %s {
	d := struct {
		f     %s
		once  %s.Once
		valid bool
		p     interface{}
		%s}{f: f}
	return %s {
		d.once.Do(func() {
			defer func() {
				d.f = nil
				d.p = recover()
				if !d.valid {
					panic(d.p)
				}
			}()
			%s
			d.valid = true
		})
		if !d.valid {
			panic(d.p)
		}
		%s}
}
`, name, o.params, sig, sig, sig, sync, strings.Join(fields, ""), sig, call, ret)
}
