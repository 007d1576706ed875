package normalize

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"iter"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// renameTypes chooses new names for local types whose names have another
// meaning at package level, to which HoistTypes moves them. A type that the
// program may show keeps its name; keep notes why.
func renameTypes(p *rewrite.Package, resumable rewrite.ResumablePath, taken map[string]bool, names map[types.Object]string, keep map[string]string) {
	type local struct {
		o     *types.TypeName
		owner typeOwner
		shown token.Pos
	}
	var all []local
	count := map[string]int{}
	for _, f := range p.Files {
		for w := range typeOwners(f) {
			if !wants(p, w.node, resumable) && !startsGoroutine(w.node) {
				continue
			}
			ast.Inspect(w.node, func(n ast.Node) bool {
				if s, ok := n.(*ast.TypeSpec); ok && s.Name.Name != "_" {
					if o, ok := p.Info.Defs[s.Name].(*types.TypeName); ok {
						all = append(all, local{o: o, owner: w})
						count[o.Name()]++
					}
				}
				return true
			})
		}
	}
	meaning := func(o *types.TypeName) string { // of its name, outside
		name := o.Name()
		if types.Universe.Lookup(name) != nil {
			return "Go's own " + name
		}
		if p.Types.Scope().Lookup(name) != nil || name == "init" || name == "main" {
			return name + " of the package"
		}
		for _, f := range p.Files {
			if s := p.Info.Scopes[f]; s != nil && s.Lookup(name) != nil {
				return "the import " + name
			}
		}
		for s := o.Parent().Parent(); s != nil && s != p.Types.Scope(); s = s.Parent() {
			if s.Lookup(name) != nil {
				return "another " + name + " of the function"
			}
		}
		return ""
	}
	all = slices.DeleteFunc(all, func(l local) bool {
		return count[l.o.Name()] == 1 && meaning(l.o) == "" && !strings.HasPrefix(l.o.Name(), rewrite.Prefix)
	})
	shown := map[ast.Node]shownTypes{}
	for i, l := range all {
		if shown[l.owner.node] == nil {
			shown[l.owner.node] = shownTypesOf(p, l.owner)
		}
		all[i].shown = shown[l.owner.node][l.o]
	}
	// Types that must keep their names come first.
	slices.SortStableFunc(all, func(a, b local) int {
		switch {
		case a.shown.IsValid() == b.shown.IsValid():
			return 0
		case a.shown.IsValid():
			return -1
		}
		return 1
	})
	first := map[string]local{}
	for _, l := range all {
		name := l.o.Name()
		other := meaning(l.o)
		if f, ok := first[name]; ok && other == "" {
			other = fmt.Sprintf("the type %s of %s", name, f.owner)
		}
		if other == "" && !strings.HasPrefix(name, rewrite.Prefix) {
			first[name] = l
			continue
		}
		if l.shown.IsValid() {
			keep[localType(p, l.o)] = fmt.Sprintf("%s; it cannot get another name, as the program may show its name (line %d)", other, p.Fset.Position(l.shown).Line)
			continue
		}
		to := l.owner.prefix() + "_" + strings.TrimPrefix(name, rewrite.Prefix)
		for taken[to] || types.Universe.Lookup(to) != nil {
			to += "_"
		}
		taken[to] = true
		names[l.o] = to
	}
}

// startsGoroutine reports whether a function has a go statement, of which
// LowerWaits may make a func literal.
func startsGoroutine(d ast.Node) bool {
	found := false
	ast.Inspect(d, func(n ast.Node) bool {
		_, is := n.(*ast.GoStmt)
		found = found || is
		return !found
	})
	return found
}

// typeOwner is what local types are declared in: a function, or a declaration
// of package variables with func literals in it.
type typeOwner struct {
	node ast.Node
	decl *ast.FuncDecl // nil: of variables
}

// typeOwners returns what local types of a file can be declared in.
func typeOwners(f *ast.File) iter.Seq[typeOwner] {
	return func(yield func(typeOwner) bool) {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Body != nil && !yield(typeOwner{d, d}) {
					return
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if v, ok := s.(*ast.ValueSpec); ok && len(v.Values) > 0 && !yield(typeOwner{v, nil}) {
						return
					}
				}
			}
		}
	}
}

func (w typeOwner) String() string {
	if w.decl == nil {
		return w.node.(*ast.ValueSpec).Names[0].Name
	}
	return rewrite.FuncName(w.decl)
}

// prefix returns the name of the owner as part of an identifier.
func (w typeOwner) prefix() string {
	d := w.decl
	if d == nil {
		return strings.Trim(w.String(), "_") + "_value"
	}
	name, _, _ := strings.Cut(rewrite.FuncName(d), "[")
	if name, method, ok := strings.Cut(name, "."); ok {
		return name + "_" + method
	}
	if d.Recv != nil {
		return name + "_" + d.Name.Name
	}
	return name
}

// localType identifies a local type after other passes.
func localType(p *rewrite.Package, o *types.TypeName) string {
	at := p.Fset.Position(o.Pos())
	return fmt.Sprint(o.Name(), " ", at.Filename, ":", at.Line)
}

// shownTypes holds local types whose names a program may show, with a place
// where it may begin to.
type shownTypes map[*types.TypeName]token.Pos

// shownTypesOf finds the local types whose names the program may show:
// values become values of an interface, where reflection finds the names, or of
// a type parameter. The name of an embedded type is that of a field.
func shownTypesOf(p *rewrite.Package, in typeOwner) shownTypes {
	w := &typeShower{p: p, shown: shownTypes{}}
	if in.decl == nil {
		w.function(in.node, nil)
	} else if f, ok := p.Info.Defs[in.decl.Name].(*types.Func); ok {
		w.function(in.decl.Body, f.Signature().Results())
	}
	return w.shown
}

type typeShower struct {
	p     *rewrite.Package
	shown shownTypes
}

// show notes the local types that a type is made of.
func (w *typeShower) show(t types.Type, at token.Pos) { w.showNew(t, at, map[types.Type]bool{}) }

func (w *typeShower) showNew(t types.Type, at token.Pos, seen map[types.Type]bool) {
	if t == nil || seen[t] {
		return
	}
	seen[t] = true
	var o *types.TypeName
	switch t := t.(type) {
	case *types.Named:
		o = t.Obj()
	case *types.Alias: // its name is that of an embedded field
		o = t.Obj()
		w.showNew(types.Unalias(t), at, seen)
	}
	if o != nil && o.Pkg() == w.p.Types && o.Parent() != o.Pkg().Scope() {
		if !w.shown[o].IsValid() {
			w.shown[o] = at
		}
		w.showNew(t.Underlying(), at, seen)
	}
	for part := range rewrite.TypeParts(t) {
		w.showNew(part, at, seen)
	}
}

// assigned notes the types of a value that is assigned to a variable of type
// to.
func (w *typeShower) assigned(from, to types.Type, at token.Pos) {
	if from == nil || to == nil || !types.IsInterface(to) || types.IsInterface(from) {
		return
	}
	w.show(from, at)
}

func (w *typeShower) value(e ast.Expr, to types.Type) {
	if e != nil {
		w.assigned(w.p.Info.TypeOf(e), to, e.Pos())
	}
}

// values is assigned for the operands of an assignment, a call or a return
// statement, which may be one call with several results.
func (w *typeShower) values(list []ast.Expr, to func(i int) types.Type) {
	if len(list) == 1 {
		if t, ok := w.p.Info.TypeOf(list[0]).(*types.Tuple); ok {
			for i := range t.Len() {
				w.assigned(t.At(i).Type(), to(i), list[0].Pos())
			}
			return
		}
	}
	for i, e := range list {
		w.value(e, to(i))
	}
}

// function walks the body of a function with these results.
func (w *typeShower) function(body ast.Node, results *types.Tuple) {
	info := w.p.Info
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			if s, ok := info.TypeOf(n).(*types.Signature); ok {
				w.function(n.Body, s.Results())
			}
			return false
		case *ast.ReturnStmt:
			w.values(n.Results, func(i int) types.Type { return results.At(i).Type() })
		case *ast.AssignStmt:
			if n.Tok == token.ASSIGN {
				w.values(n.Rhs, func(i int) types.Type { return info.TypeOf(n.Lhs[i]) })
			}
		case *ast.ValueSpec:
			if n.Type != nil {
				w.values(n.Values, func(int) types.Type { return info.TypeOf(n.Type) })
			}
		case *ast.SendStmt:
			if c, ok := rewrite.CoreType(info.TypeOf(n.Chan)).(*types.Chan); ok {
				w.value(n.Value, c.Elem())
			}
		case *ast.CompositeLit:
			w.composite(n)
		case *ast.IndexExpr:
			if m, ok := coreOf(info.TypeOf(n.X)).(*types.Map); ok {
				w.value(n.Index, m.Key())
			}
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				w.value(n.X, info.TypeOf(n.Y))
				w.value(n.Y, info.TypeOf(n.X))
			}
		case *ast.SwitchStmt:
			for _, c := range n.Body.List {
				for _, e := range c.(*ast.CaseClause).List {
					if n.Tag != nil {
						w.value(e, info.TypeOf(n.Tag))
						w.value(n.Tag, info.TypeOf(e))
					}
				}
			}
		case *ast.TypeSwitchStmt:
			for _, c := range n.Body.List {
				for _, e := range c.(*ast.CaseClause).List {
					w.show(info.TypeOf(e), e.Pos())
				}
			}
		case *ast.TypeAssertExpr:
			if n.Type != nil { // a panic shows it
				w.show(info.TypeOf(n.Type), n.Pos())
			}
		case *ast.RangeStmt:
			w.ranged(n)
		case *ast.StructType:
			for _, f := range n.Fields.List {
				if len(f.Names) == 0 {
					w.show(info.TypeOf(f.Type), f.Pos())
				}
			}
		case *ast.Ident:
			if i, ok := info.Instances[n]; ok && !discreet(info.Uses[n]) {
				for t := range i.TypeArgs.Types() {
					w.show(t, n.Pos())
				}
			}
		case *ast.CallExpr:
			w.call(n)
		}
		return true
	})
}

// coreOf is rewrite.CoreType, also of the type of what is not a value.
func coreOf(t types.Type) types.Type {
	if t == nil {
		return nil
	}
	if _, ok := t.(*types.Tuple); ok {
		return t
	}
	return rewrite.CoreType(t)
}

func (w *typeShower) composite(n *ast.CompositeLit) {
	t := coreOf(w.p.Info.TypeOf(n))
	if p, ok := t.(*types.Pointer); ok { // &T in a list of pointers
		t = coreOf(p.Elem())
	}
	for i, e := range n.Elts {
		kv, keyed := e.(*ast.KeyValueExpr)
		if keyed {
			e = kv.Value
		}
		switch t := t.(type) {
		case *types.Struct:
			if !keyed {
				w.value(e, t.Field(i).Type())
			} else if id, ok := kv.Key.(*ast.Ident); ok {
				if v := w.p.Info.Uses[id]; v != nil {
					w.value(e, v.Type())
				}
			}
		case *types.Map:
			w.value(kv.Key, t.Key())
			w.value(e, t.Elem())
		case interface{ Elem() types.Type }:
			w.value(e, t.Elem())
		}
	}
}

func (w *typeShower) ranged(n *ast.RangeStmt) {
	if n.Tok != token.ASSIGN {
		return
	}
	to := func(e ast.Expr) types.Type {
		if e == nil {
			return nil
		}
		return w.p.Info.TypeOf(e)
	}
	switch t := coreOf(w.p.Info.TypeOf(n.X)).(type) {
	case *types.Map:
		w.assigned(t.Key(), to(n.Key), n.Pos())
		w.assigned(t.Elem(), to(n.Value), n.Pos())
	case *types.Chan:
		w.assigned(t.Elem(), to(n.Key), n.Pos())
	case *types.Pointer:
		if a, ok := t.Elem().Underlying().(*types.Array); ok {
			w.assigned(a.Elem(), to(n.Value), n.Pos())
		}
	case interface{ Elem() types.Type }:
		w.assigned(t.Elem(), to(n.Value), n.Pos())
	case *types.Signature:
		if f, ok := t.Params().At(0).Type().Underlying().(*types.Signature); ok {
			for i, e := range []ast.Expr{n.Key, n.Value} {
				if i < f.Params().Len() {
					w.assigned(f.Params().At(i).Type(), to(e), n.Pos())
				}
			}
		}
	}
}

func (w *typeShower) call(n *ast.CallExpr) {
	info := w.p.Info
	if tv := info.Types[n.Fun]; tv.IsType() {
		if len(n.Args) == 1 {
			w.value(n.Args[0], tv.Type)
		}
		return
	}
	if id, ok := ast.Unparen(n.Fun).(*ast.Ident); ok {
		if b, ok := info.Uses[id].(*types.Builtin); ok {
			switch b.Name() {
			case "append":
				if s, ok := coreOf(info.TypeOf(n.Args[0])).(*types.Slice); ok && !n.Ellipsis.IsValid() {
					w.values(n.Args[1:], func(int) types.Type { return s.Elem() })
				}
			case "delete":
				if m, ok := coreOf(info.TypeOf(n.Args[0])).(*types.Map); ok {
					w.value(n.Args[1], m.Key())
				}
			case "panic":
				w.value(n.Args[0], types.NewInterfaceType(nil, nil))
			}
			return
		}
	}
	sig, ok := coreOf(info.TypeOf(n.Fun)).(*types.Signature)
	if !ok || printsValues(info, n) {
		return
	}
	w.values(n.Args, func(i int) types.Type {
		last := sig.Params().Len() - 1
		if !sig.Variadic() || i < last {
			return sig.Params().At(i).Type()
		}
		if s, ok := sig.Params().At(last).Type().Underlying().(*types.Slice); ok && !n.Ellipsis.IsValid() {
			return s.Elem()
		}
		return sig.Params().At(last).Type()
	})
}

// discreet reports whether a generic function or type of the standard library
// shows no names of its type arguments.
func discreet(o types.Object) bool {
	if o == nil || o.Pkg() == nil {
		return false
	}
	switch o.Pkg().Path() {
	case "slices", "maps", "cmp", "iter", "sync", "sync/atomic":
		return true
	}
	return false
}

// printsValues reports whether a call prints or sorts its arguments without
// their types.
func printsValues(info *types.Info, n *ast.CallExpr) bool {
	sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr)
	if !ok {
		return false
	}
	f, ok := info.Uses[sel.Sel].(*types.Func)
	if !ok || f.Pkg() == nil || f.Signature().Recv() != nil {
		return false
	}
	format := 0 // the argument with the format
	switch f.Pkg().Path() + "." + f.Name() {
	case "sort.Slice", "sort.SliceStable", "sort.SliceIsSorted",
		"fmt.Print", "fmt.Println", "fmt.Sprint", "fmt.Sprintln", "fmt.Fprint", "fmt.Fprintln", "fmt.Append", "fmt.Appendln",
		"log.Print", "log.Println", "log.Fatal", "log.Fatalln", "log.Panic", "log.Panicln":
		return true
	case "fmt.Printf", "fmt.Sprintf", "log.Printf", "log.Fatalf", "log.Panicf":
	case "fmt.Fprintf", "fmt.Appendf":
		format = 1
	default:
		return false
	}
	if len(n.Args) <= format || n.Ellipsis.IsValid() {
		return false
	}
	v := info.Types[n.Args[format]].Value
	return v != nil && v.Kind() == constant.String && plainVerbs(constant.StringVal(v), len(n.Args)-format-1)
}

// plainVerbs reports whether a format has n verbs, each of which is %v or %+v.
func plainVerbs(format string, n int) bool {
	for {
		_, after, ok := strings.Cut(strings.ReplaceAll(format, "%%", ""), "%")
		if !ok {
			return n == 0
		}
		after = strings.TrimPrefix(after, "+")
		if !strings.HasPrefix(after, "v") {
			return false
		}
		n--
		format = after[1:]
	}
}
