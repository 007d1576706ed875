package divide

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// A checkpoint at the beginning of an iteration need not hold an array that the
// program overwrites before it reads it, or never reads again. Overwritten
// looks for such arrays. An array belongs to the call of device.New that made
// it, and the calls whose arrays may be read are found in two ways:
//
//   - What the program may do when the loop has ended is taken without regard
//     to order: all that it may read then is needed.
//   - One iteration is followed statement by statement, into the functions that
//     it calls (iteration.go). A read is harmless if the iteration has surely
//     overwritten the same array before.
//
// Arrays that nobody reads first, and that iterations overwrite, are left out.
// If the iteration begins with calls that only launch kernels, the program
// itself finds more (dryrun.go).
// device.Out is trusted: the kernel overwrites the array. A launch that fails
// overwrites nothing.

// Overwritten says which arrays are not needed at the beginning of a loop's
// iterations.
type Overwritten struct {
	Fn    *callgraph.Function
	Loop  ast.Stmt
	Body  *ast.BlockStmt
	Cases []OverwrittenCase
	// DryRuns are for different types of the variable with an interface type.
	DryRuns []*DryRun
	// Why says why there are no cases at all.
	Why *Cause

	device    string // name of package device in the file
	roots     []*types.Var
	variantOf *types.Var // the variable with an interface type; nil: there is none
}

// OverwrittenCase is arrays that are not needed under some conditions, which
// the program checks when it is saved.
type OverwrittenCase struct {
	Type        *types.TypeName // of the variable that has an interface type; nil: there is none
	If          []string        // conditions, for people
	Nil, NotNil []string        // paths whose pointers must all be nil, or none of them
	Arrays      []OverwrittenArray
}

// OverwrittenArray is an array, or all arrays of a list.
type OverwrittenArray struct {
	Name string // such as p.slabs[*].space
	At   token.Pos

	spec string
}

// FindOverwritten looks for arrays that need not be saved at the beginning of
// the loop's iterations. It returns nil if the loop launches no kernel.
func FindOverwritten(ld *load.Program, g *callgraph.Graph, fn *callgraph.Function, loop ast.Stmt) *Overwritten {
	if !usesDevices(ld) || g.Main == nil {
		return nil
	}
	w := &Overwritten{Fn: fn, Loop: loop}
	switch n := loop.(type) {
	case *ast.ForStmt:
		w.Body = n.Body
	case *ast.RangeStmt:
		w.Body = n.Body
	default:
		return nil
	}
	if g.ByNode[loop] != nil { // it ranges over a function
		return nil
	}
	d := newCalls(ld, g, nil)
	decl, ok := fn.Node.(*ast.FuncDecl)
	c := &candidate{d: d, fn: fn, decl: decl, loop: loop, body: w.Body}
	if !ok || !c.launches() {
		return nil
	}
	refuse := func(at token.Pos, text string) *Overwritten {
		w.Why, w.Cases = &Cause{at, text}, nil
		return w
	}
	if at, why := d.unsupported(); why != "" {
		return refuse(at, why)
	}
	if at := d.unsafeCode(); at.IsValid() {
		return refuse(at, "the program uses package unsafe")
	}
	if w.device = importName(fn.Pkg, loop.Pos()); w.device == "" {
		return refuse(loop.Pos(), "the file does not import package device")
	}
	o := newOrigins(d)
	if o.refused != nil {
		return refuse(o.refused.At, o.refused.Text)
	}
	for _, v := range c.variants(d) {
		x := *c
		if v != nil {
			x.d = newCalls(ld, g, v)
			w.variantOf = v.of.(*types.Var)
			w.spec(path{root: w.variantOf})
		}
		w.variant(&x, o, v)
	}
	return w
}

// unsafeCode returns where the program names package unsafe.
func (d *dependence) unsafeCode() (at token.Pos) {
	for _, fn := range d.g.All {
		if !d.live[fn] {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				if p, ok := fn.Pkg.Info.Uses[id].(*types.PkgName); ok && p.Imported().Path() == "unsafe" {
					at = id.Pos()
				}
			}
			return true
		})
	}
	return at
}

// importName returns the name of package device in the file at a position.
func importName(s *load.Package, at token.Pos) string {
	for _, f := range s.Files {
		if f.FileStart > at || at >= f.FileEnd {
			continue
		}
		for _, i := range f.Imports {
			if strings.Trim(i.Path.Value, `"`) != load.DevicePath {
				continue
			}
			switch {
			case i.Name == nil:
				return "device"
			case i.Name.Name != "_" && i.Name.Name != ".":
				return i.Name.Name
			}
		}
	}
	return ""
}

// variant adds the cases for a type of the variable with an interface type.
func (w *Overwritten) variant(c *candidate, o *origins, v *variant) {
	later, again, ok := readLater(c, o)
	if !ok {
		return
	}
	if r := w.dryRun(c, o, v, later); r != nil && !again {
		w.DryRuns = append(w.DryRuns, r)
	}
	runs := iterations(c, o, v)
	if again {
		for _, r := range runs {
			for call, at := range r.needed {
				later[call] = at
			}
		}
	}
	for _, r := range runs {
		k := OverwrittenCase{}
		if v != nil {
			k.Type = v.as
		}
		seen := map[string]bool{}
		for _, x := range r.overwrites {
			if seen[x.path.all()] || !w.visible(x.path.root) {
				continue
			}
			made := o.node(x.path.last).made
			needed := len(made) == 0
			for call := range made {
				_, a := later[call]
				_, b := r.needed[call]
				needed = needed || a || b || o.outside.made[call]
			}
			if needed {
				continue
			}
			seen[x.path.all()] = true
			k.Arrays = append(k.Arrays, OverwrittenArray{x.path.root.Name() + x.path.all(), x.at, w.spec(x.path)})
		}
		if len(k.Arrays) == 0 {
			continue
		}
		usable := true
		for _, key := range slices.Sorted(maps.Keys(r.assumed)) {
			a := r.assumed[key]
			usable = usable && w.visible(a.path.root)
			name := a.path.root.Name() + a.path.all()
			if a.isNil {
				k.If = append(k.If, name+" is nil")
				k.Nil = append(k.Nil, w.spec(a.path))
			} else {
				k.If = append(k.If, name+" is not nil")
				k.NotNil = append(k.NotNil, w.spec(a.path))
			}
		}
		if usable {
			w.Cases = append(w.Cases, k)
		}
	}
}

// visible reports whether the beginning of the loop's body can name a variable.
func (w *Overwritten) visible(v *types.Var) bool {
	at := w.Body.Lbrace + 1
	in := w.Fn.Pkg.Types.Scope().Innermost(at)
	if in == nil {
		return false
	}
	_, found := in.LookupParent(v.Name(), at)
	return found == v
}

// spec returns a path for device.CairnOverwritten: the number of the variable
// among the arguments, then fields, and * for all elements.
func (w *Overwritten) spec(p path) string {
	i := slices.Index(w.roots, p.root)
	if i < 0 {
		i = len(w.roots)
		w.roots = append(w.roots, p.root)
	}
	return fmt.Sprint(i) + strings.ReplaceAll(strings.ReplaceAll(p.all(), "[*]", "/*"), ".", "/")
}

// Code returns a statement for the beginning of the loop's body, before the
// point. It tells package device which arrays need not be saved.
func (w *Overwritten) Code(fset *token.FileSet) string {
	if len(w.Cases) == 0 && len(w.DryRuns) == 0 {
		return ""
	}
	var cases []string
	for _, k := range w.Cases {
		cases = append(cases, w.caseText(k))
	}
	var roots strings.Builder
	for _, v := range w.roots {
		roots.WriteString(", " + v.Name())
	}
	var dry strings.Builder
	for _, r := range w.DryRuns {
		fmt.Fprintf(&dry, "if %s.CairnDryRun(%q%s) { %s}; ", w.device, w.caseText(OverwrittenCase{Type: r.Type, Arrays: r.Arrays}), roots.String(), r.text)
	}
	at := fset.Position(w.Loop.Pos())
	return fmt.Sprintf("/*line %s:%d:%d*/if %s.CairnSaves() { %s%[4]s.CairnOverwritten(%[6]q%[7]s) };", at.Filename, at.Line, at.Column, w.device, dry.String(), strings.Join(cases, "\n"), roots.String())
}

// caseText returns a case for package device.
func (w *Overwritten) caseText(k OverwrittenCase) string {
	name := ""
	if k.Type != nil {
		pkg := k.Type.Pkg().Path()
		if k.Type.Pkg().Name() == "main" {
			pkg = "main"
		}
		name = fmt.Sprintf("%d=%s.%s", slices.Index(w.roots, w.variantOf), pkg, k.Type.Name())
	}
	var arrays []string
	for _, a := range k.Arrays {
		arrays = append(arrays, a.spec)
	}
	return strings.Join([]string{name, strings.Join(k.Nil, " "), strings.Join(k.NotNil, " "), strings.Join(arrays, " ")}, ";")
}

// readLater returns the calls that made arrays which the program may read when
// the loop has ended. again reports whether the program may enter the loop once
// more.
func readLater(c *candidate, o *origins) (later map[*ast.CallExpr]token.Pos, again, ok bool) {
	later = map[*ast.CallExpr]token.Pos{}
	d := c.d
	seen := map[*callgraph.Function]bool{}
	body := func(fn *callgraph.Function) {
		for _, to := range d.reach([]*callgraph.Function{fn}) {
			if !seen[to] {
				seen[to] = true
				o.reads(to.Pkg, to.Body, later)
			}
		}
	}
	for fn := range d.kernels {
		body(fn)
	}
	part := func(fn *callgraph.Function, n ast.Node) {
		o.reads(fn.Pkg, n, later)
		for _, to := range d.calledIn(fn, n) {
			if to != nil {
				body(to)
			}
		}
	}
	// after adds what a function does after a node, but not the node itself.
	after := func(fn *callgraph.Function, node ast.Node) bool {
		ok := true
		var around []ast.Node // nodes that contain it
		ast.Inspect(fn.Node, func(n ast.Node) bool {
			if n == nil {
				return false
			}
			if b, is := n.(*ast.BranchStmt); is && b.Tok == token.GOTO {
				ok = false
			}
			if n.Pos() <= node.Pos() && node.End() <= n.End() {
				if n != node {
					around = append(around, n)
				}
				return n != node
			}
			return true
		})
		whole := fn.Node // the outermost loop around it, if there is one
		looped := false
		for _, n := range around {
			switch n.(type) {
			case *ast.ForStmt, *ast.RangeStmt:
				if n != fn.Node && !looped {
					whole, looped = n, true
				}
			case *ast.FuncLit:
				if n != fn.Node {
					return false
				}
			}
		}
		again = again || looped && fn == c.fn
		ast.Inspect(fn.Node, func(n ast.Node) bool {
			if n == nil || n == node {
				return false
			}
			if slices.Contains(around, n) {
				return true
			}
			_, deferred := n.(*ast.DeferStmt)
			inLoop := looped && whole.Pos() <= n.Pos() && n.End() <= whole.End()
			if deferred || inLoop || n.Pos() >= node.End() {
				part(fn, n)
				return false
			}
			return true
		})
		return ok
	}
	switch n := c.loop.(type) { // the loop's head runs again
	case *ast.ForStmt:
		for _, x := range []ast.Node{n.Cond, n.Post} {
			if e, is := x.(ast.Expr); is && e != nil {
				part(c.fn, e)
			}
			if s, is := x.(ast.Stmt); is && s != nil {
				part(c.fn, s)
			}
		}
	}
	if !after(c.fn, c.loop) {
		return nil, false, false
	}
	callers := map[*callgraph.Function]bool{c.fn: true}
	for todo := []*callgraph.Function{c.fn}; len(todo) > 0; {
		fn := todo[0]
		todo = todo[1:]
		for _, by := range d.g.All {
			if !d.live[by] {
				continue
			}
			for _, t := range by.Sites {
				t = d.site(t)
				if !slices.Contains(t.Callees, fn) && !slices.Contains(t.MayCall, fn) {
					continue
				}
				if t.Kind != callgraph.PlainCall || t.Call == nil {
					return nil, false, false
				}
				if !after(by, t.Call) {
					return nil, false, false
				}
				if !callers[by] {
					callers[by] = true
					todo = append(todo, by)
				}
			}
		}
	}
	return later, again || seen[c.fn], true
}

// reads adds the calls that made arrays which a part of a function may read.
func (o *origins) reads(s *load.Package, root ast.Node, to map[*ast.CallExpr]token.Pos) {
	note := func(e ast.Expr) {
		for call := range o.made(s, e) {
			to[call] = e.Pos()
		}
	}
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			x := s.Info.Selections[n]
			if x == nil || x.Kind() == types.FieldVal {
				return true
			}
			f := x.Obj().(*types.Func)
			array := f.Pkg() != nil && f.Pkg().Path() == load.DevicePath && f.Signature().Recv() != nil && load.IsDeviceType(f.Signature().Recv().Type(), "Array")
			if array && !slices.Contains([]string{"Dims", "Len", "Rows", "Prefer", "Free"}, f.Name()) || types.IsInterface(x.Recv()) {
				for _, from := range o.receiver(s, n) {
					for call := range from.made {
						to[call] = n.Pos()
					}
				}
			}
		case *ast.CallExpr:
			if !isDeviceFunc(s, n) {
				return true
			}
			f := load.Callee(s, n).(*types.Func)
			switch {
			case f.Signature().Recv() == nil && (f.Name() == "In" || f.Name() == "InOut"):
				note(n.Args[0])
			case f.Name() == "Launch":
				for _, a := range n.Args[min(2, len(n.Args)):] {
					if x, ok := ast.Unparen(a).(*ast.CallExpr); ok && isDeviceFunc(s, x, "In", "Out", "InOut", "Local") {
						continue
					}
					note(a)
				}
			}
		}
		return true
	})
}
