package explain

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/divide"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/lower"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// A program is malleable if nothing that it saves depends on the number of
// devices (Losada and others): it can continue with another number of them. The
// analysis is flow- and context-insensitive. A variable or field depends on the
// number of devices if it is assigned the length of a slice of devices, a
// device.Group or its Len, or something computed from these; if it is allocated
// with such a size; or if it is appended to or counted once for each device.
// What kernels write is not followed: the elements of an array are assumed not
// to depend on how it is divided.

// cause is why something depends on the number of devices.
type cause struct {
	at   token.Pos
	text string
}

// savedVar is a variable that the program saves.
type savedVar struct {
	name string
	obj  types.Object
	at   token.Pos
	in   *types.Func
}

// dependence finds what depends on the number of devices.
type dependence struct {
	ld      *load.Program
	pos     func(token.Pos) ir.Pos
	bodies  map[*types.Func]*ast.FuncDecl
	on      map[types.Object]cause
	results map[*types.Func]map[int]cause
	saved   []savedVar
	params  map[types.Object]string // parameters that are saved, with the constant name if there is one
	changed bool
}

// newDependence analyses a program. It returns nil if the program has no
// devices.
func newDependence(ld *load.Program, pos func(token.Pos) ir.Pos) *dependence {
	d := &dependence{ld: ld, pos: pos, bodies: make(map[*types.Func]*ast.FuncDecl), on: make(map[types.Object]cause),
		results: make(map[*types.Func]map[int]cause), params: make(map[types.Object]string)}
	used := false
	for _, s := range ld.Sources {
		used = used || slices.Contains(s.Imports, load.DevicePath)
		for _, f := range s.Files {
			for _, decl := range f.Decls {
				if decl, ok := decl.(*ast.FuncDecl); ok && decl.Body != nil {
					if f, ok := s.Info.Defs[decl.Name].(*types.Func); ok {
						d.bodies[f] = decl
					}
				}
			}
		}
	}
	if !used {
		return nil
	}
	for again := true; again; again = d.changed {
		d.changed, d.saved = false, nil
		for _, s := range ld.Sources {
			for _, f := range s.Files {
				for _, decl := range f.Decls {
					switch decl := decl.(type) {
					case *ast.FuncDecl:
						if fun, ok := s.Info.Defs[decl.Name].(*types.Func); ok && decl.Body != nil {
							d.visit(s, fun, decl.Body, false)
						}
					case *ast.GenDecl:
						d.visit(s, nil, decl, false)
					}
				}
			}
		}
	}
	return d
}

// isDevices reports whether t is a slice or array of devices.
func isDevices(t types.Type) bool {
	if t == nil {
		return false
	}
	var of types.Type
	switch u := t.Underlying().(type) {
	case *types.Slice:
		of = u.Elem()
	case *types.Array:
		of = u.Elem()
	default:
		return false
	}
	return load.IsDeviceType(of, "Device")
}

func (d *dependence) mark(obj types.Object, c cause) {
	if obj == nil {
		return
	}
	if v, ok := obj.(*types.Var); ok {
		obj = v.Origin()
		if isDevices(v.Type()) || load.IsDeviceType(v.Type(), "Device") || load.IsError(v.Type()) {
			return // it is never saved, and its length is a cause already
		}
	}
	if _, ok := d.on[obj]; !ok {
		d.on[obj], d.changed = c, true
	}
}

// object returns the variable or field that an expression is, or is an element
// of.
func (d *dependence) object(s *load.Package, e ast.Expr) types.Object {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return s.Info.ObjectOf(e)
	case *ast.SelectorExpr:
		if v, ok := s.Info.Uses[e.Sel].(*types.Var); ok {
			return v.Origin()
		}
	case *ast.IndexExpr:
		return d.object(s, e.X)
	case *ast.SliceExpr:
		return d.object(s, e.X)
	case *ast.StarExpr:
		return d.object(s, e.X)
	case *ast.UnaryExpr:
		if e.Op == token.AND {
			return d.object(s, e.X)
		}
	}
	return nil
}

// causeOf says why an expression depends on the number of devices, if it does.
func (d *dependence) causeOf(s *load.Package, e ast.Expr) (c cause, yes bool) {
	if e == nil {
		return c, false
	}
	found := func(x cause) { c, yes = x, true }
	ast.Inspect(e, func(n ast.Node) bool {
		if yes {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CompositeLit:
			if _, ok := s.Info.TypeOf(n).Underlying().(*types.Struct); ok {
				return false // its fields have the cause
			}
		case *ast.Ident:
			if v, ok := s.Info.Uses[n].(*types.Var); ok {
				if x, ok := d.on[v.Origin()]; ok {
					found(x)
				}
			}
		case *ast.CallExpr:
			switch obj := load.Callee(s, n).(type) {
			case *types.Builtin:
				if (obj.Name() == "len" || obj.Name() == "cap") && isDevices(s.Info.TypeOf(n.Args[0])) {
					found(cause{n.Pos(), "the number of devices"})
				}
			case *types.Func:
				if obj.Pkg() == nil {
					return true
				}
				if obj.Pkg().Path() == load.DevicePath {
					if obj.Name() == "NewGroup" {
						found(cause{n.Pos(), "a group of as many devices as there are"})
					} else if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok && obj.Name() == "Len" && load.IsDeviceType(s.Info.TypeOf(sel.X), "Group") {
						found(cause{n.Pos(), "the number of devices of a group"})
					}
				} else if d.bodies[obj.Origin()] != nil { // its results count, not its arguments
					for _, x := range d.results[obj.Origin()] {
						found(x)
						break
					}
					return false
				}
			}
		}
		return !yes
	})
	return c, yes
}

// markResult records that result i of a function depends on the number of
// devices.
func (d *dependence) markResult(in *types.Func, i int, c cause) {
	if d.results[in] == nil {
		d.results[in] = make(map[int]cause)
	}
	if _, ok := d.results[in][i]; !ok {
		d.results[in][i], d.changed = c, true
	}
}

// visit follows the statements of a function. once says that they run once for
// each device.
func (d *dependence) visit(s *load.Package, in *types.Func, n ast.Node, once bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			d.assign(s, n, once)
		case *ast.ValueSpec:
			for i, id := range n.Names {
				if i < len(n.Values) {
					if c, ok := d.causeOf(s, n.Values[i]); ok {
						d.mark(s.Info.Defs[id], c)
					}
				}
			}
		case *ast.IncDecStmt:
			if once {
				d.mark(d.object(s, n.X), cause{n.Pos(), "changed once for each device"})
			}
		case *ast.CompositeLit:
			d.literal(s, n)
		case *ast.CallExpr:
			d.call(s, in, n)
		case *ast.ReturnStmt:
			for i, e := range n.Results {
				if c, ok := d.causeOf(s, e); ok && in != nil {
					d.markResult(in, i, c)
				}
			}
			if len(n.Results) == 0 && in != nil {
				for i := range in.Signature().Results().Len() {
					if c, ok := d.on[in.Signature().Results().At(i)]; ok {
						d.markResult(in, i, c)
					}
				}
			}
		case *ast.RangeStmt:
			c, ok := d.causeOf(s, n.X)
			if isDevices(s.Info.TypeOf(n.X)) {
				c, ok = cause{n.Pos(), "a loop over devices"}, true
			}
			if ok {
				if n.Key != nil {
					d.mark(d.object(s, n.Key), c)
				}
				if n.Value != nil {
					d.mark(d.object(s, n.Value), c)
				}
				d.visit(s, in, n.Body, true)
				return false
			}
		case *ast.ForStmt:
			if _, ok := d.causeOf(s, n.Cond); ok {
				d.visit(s, in, n.Body, true)
				return false
			}
		}
		return true
	})
}

func (d *dependence) assign(s *load.Package, n *ast.AssignStmt, once bool) {
	for i, e := range n.Lhs {
		var c cause
		ok := false
		if len(n.Rhs) == len(n.Lhs) {
			c, ok = d.causeOf(s, n.Rhs[i])
			if once && (n.Tok != token.ASSIGN && n.Tok != token.DEFINE || d.appends(s, e, n.Rhs[i])) {
				c, ok = cause{n.Pos(), "changed once for each device"}, true
			}
		} else if call, isCall := ast.Unparen(n.Rhs[0]).(*ast.CallExpr); isCall {
			if f, isFunc := load.Callee(s, call).(*types.Func); isFunc && d.bodies[f.Origin()] != nil {
				c, ok = d.results[f.Origin()][i]
			} else {
				c, ok = d.causeOf(s, call)
			}
		} else {
			c, ok = d.causeOf(s, n.Rhs[0])
		}
		if ok {
			d.mark(d.object(s, e), c)
		}
	}
}

// appends reports whether to appends to e itself.
func (d *dependence) appends(s *load.Package, e, to ast.Expr) bool {
	call, ok := ast.Unparen(to).(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	b, ok := load.Callee(s, call).(*types.Builtin)
	return ok && b.Name() == "append" && d.object(s, call.Args[0]) == d.object(s, e)
}

// literal assigns the elements of a composite literal to the struct's fields.
func (d *dependence) literal(s *load.Package, n *ast.CompositeLit) {
	t := s.Info.TypeOf(n)
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	st, ok := t.Underlying().(*types.Struct)
	if !ok {
		return
	}
	for i, e := range n.Elts {
		var field types.Object
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			e = kv.Value
			if id, ok := kv.Key.(*ast.Ident); ok {
				field = s.Info.Uses[id]
			}
		} else if i < st.NumFields() {
			field = st.Field(i)
		}
		if c, ok := d.causeOf(s, e); ok {
			d.mark(field, c)
		}
	}
}

// call assigns arguments to parameters, and finds what is saved.
func (d *dependence) call(s *load.Package, in *types.Func, n *ast.CallExpr) {
	f, ok := load.Callee(s, n).(*types.Func)
	if !ok {
		return
	}
	f = f.Origin()
	if f.FullName() == load.CairnPath+".Protect" && len(n.Args) >= 3 {
		d.save(s, in, n, n.Args[1], n.Args[2])
		return
	}
	if d.bodies[f] == nil {
		return
	}
	params := f.Signature().Params()
	for i, e := range n.Args {
		if i >= params.Len() {
			break
		}
		if c, ok := d.causeOf(s, e); ok {
			d.mark(params.At(i), c)
		}
		if name, ok := d.params[params.At(i)]; ok {
			var label ast.Expr
			if name == "" && i > 0 {
				label = n.Args[0]
			}
			d.save(s, in, n, label, e)
		}
	}
}

// save records that v is saved under a name.
func (d *dependence) save(s *load.Package, in *types.Func, n *ast.CallExpr, name, v ast.Expr) {
	obj := d.object(s, v)
	if obj == nil {
		return
	}
	if in != nil {
		for p := range in.Signature().Params().Variables() {
			if p == obj { // the value that the callers pass is saved
				if _, ok := d.params[obj]; !ok {
					d.params[obj], d.changed = "", true
				}
				return
			}
		}
	}
	text := obj.Name()
	if name != nil {
		if c := s.Info.Types[name].Value; c != nil {
			text = strings.Trim(c.String(), `"`)
		}
	}
	d.saved = append(d.saved, savedVar{text, obj, n.Pos(), in})
}

// DependInfo is a saved variable that depends on the number of devices.
type DependInfo struct {
	Name string `json:"name"`
	File string `json:"file"` // where it is saved or, if the program does not call Protect, where it is
	Line int    `json:"line"`
	// Function is the function that saves it.
	Function string `json:"function,omitempty"`
	// Type is the type of the program's work for which this holds, if it
	// may have several.
	Type string `json:"type,omitempty"`
	Why  string `json:"why"`
}

// DivisionInfo says how a program that does not call Protect divides its work
// among its devices.
type DivisionInfo struct {
	// File and Line are those of the loop at whose beginning the work is
	// divided anew after a restart on another number of devices.
	File string `json:"file"`
	Line int    `json:"line"`
	// Types are the types of the program's work for which this holds, if it
	// may have several.
	Types []string `json:"types,omitempty"`
	// Derived are variables that follow from the devices, with their
	// positions. They are not restored, but set again.
	Derived []string `json:"derived"`
	// By are the positions of the statements that set them.
	By []string `json:"by"`
}

// DeviceInfo describes a program's use of devices.
type DeviceInfo struct {
	// Malleable reports whether the program can continue with another
	// number of devices. If not, it is pseudo-malleable, and continues with
	// as many devices as it had.
	Malleable bool `json:"malleable"`
	// Saved is the number of variables that Protect is called for.
	Saved   int          `json:"saved"`
	Depends []DependInfo `json:"depends,omitempty"`
	// Divisions are of a program that does not call Protect.
	Divisions []DivisionInfo `json:"divisions,omitempty"`
	LeftOut   []LeftOutInfo  `json:"leftOut,omitempty"`
	Kernels   []KernelInfo   `json:"kernels,omitempty"`
}

// LeftOutInfo is an array that checkpoints at a point leave out, because the
// program overwrites it before it reads it.
type LeftOutInfo struct {
	File string `json:"file"` // of the point's loop
	Line int    `json:"line"`
	// Type is the type of the program's work for which this holds, if it
	// may have several.
	Type  string `json:"type,omitempty"`
	Array string `json:"array,omitempty"` // none: all arrays are saved
	// Overwritten is the position of the launch.
	Overwritten string `json:"overwritten,omitempty"`
	// DryRun is the position of a call. Before a checkpoint, the program finds
	// out which parts of the array the call overwrites before it reads them.
	DryRun string `json:"dryRun,omitempty"`
	// If are other conditions, which the program checks when it is saved.
	If  []string `json:"if,omitempty"`
	Why string   `json:"why,omitempty"` // why nothing is left out
}

// KernelInfo is a launch of a kernel.
type KernelInfo struct {
	Name     string   `json:"name"`
	File     string   `json:"file"`
	Line     int      `json:"line"`
	Function string   `json:"function"`
	Reads    []string `json:"reads,omitempty"`
	Writes   []string `json:"writes,omitempty"`
}

// deviceInfo describes the devices of a program. It returns nil if the program
// has none, and no division if the program calls Protect.
func deviceInfo(p *lower.Program) (*DeviceInfo, *divide.Result) {
	d := newDependence(p.Source, p.At)
	if d == nil {
		return nil, nil
	}
	info := &DeviceInfo{Saved: len(d.saved)}
	var division *divide.Result
	if len(d.saved) == 0 {
		division = divide.Find(p.Source, callgraph.New(p.Source, p.Dynamic))
		info.divided(p, division)
	} else {
		info.saves(p, d)
	}
	for _, q := range p.Procs {
		ir.Each(q.Body, func(s ir.Stmt) {
			if k, ok := s.(*ir.Kernel); ok {
				info.Kernels = append(info.Kernels, KernelInfo{k.Name, k.File, k.Line, q.Name, varNames(k.In), varNames(k.Out)})
			}
		})
	}
	slices.SortStableFunc(info.Kernels, func(a, b KernelInfo) int {
		if a.File != b.File {
			return strings.Compare(a.File, b.File)
		}
		return a.Line - b.Line
	})
	return info, division
}

// saves describes a program that calls Protect.
func (info *DeviceInfo) saves(p *lower.Program, d *dependence) {
	for _, v := range d.saved {
		c, path, ok := d.depends(v.obj, nil)
		if !ok {
			continue
		}
		at, from := d.pos(v.at), d.pos(c.at)
		x := DependInfo{Name: v.name, File: at.File, Line: at.Line, Why: fmt.Sprintf("%s (%s)", c.text, from)}
		if path != "" {
			x.Why = "its field " + path + ": " + x.Why
		}
		if v.in != nil {
			if decl := d.bodies[v.in]; decl != nil {
				at := d.pos(decl.Name.Pos())
				for _, q := range p.Procs {
					if q.Pos == at {
						x.Function = q.Name
					}
				}
			}
		}
		info.Depends = append(info.Depends, x)
	}
	info.Malleable = len(info.Depends) == 0
}

// divided describes a program that does not call Protect.
func (info *DeviceInfo) divided(p *lower.Program, r *divide.Result) {
	if r == nil {
		return
	}
	for _, x := range r.Plans {
		at := p.At(x.Loop.Pos())
		v := DivisionInfo{File: at.File, Line: at.Line}
		for _, t := range x.Types {
			v.Types = append(v.Types, t.Name())
		}
		for _, y := range x.Derived {
			v.Derived = append(v.Derived, fmt.Sprintf("%s (%s)", y.Name, p.At(y.At)))
		}
		for _, s := range x.Stmts {
			v.By = append(v.By, p.At(s.Pos()).String())
		}
		info.Divisions = append(info.Divisions, v)
	}
	for _, x := range r.Refusals {
		at := p.At(x.At)
		v := DependInfo{Name: x.Name, File: at.File, Line: at.Line, Why: x.Text}
		if x.In != nil {
			v.Type = x.In.Name()
		}
		if x.Cause.At.IsValid() {
			v.Why += fmt.Sprintf(" (%s)", p.At(x.Cause.At))
		}
		info.Depends = append(info.Depends, v)
	}
	info.Malleable = len(info.Divisions) > 0 && len(info.Depends) == 0
}

func varNames(list []*ir.Var) (names []string) {
	for _, v := range list {
		if v == nil {
			continue
		}
		name := v.Name
		if strings.HasPrefix(name, "*") { // only its type is known
			name = "an array"
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// depends reports whether a variable, or a field of it, depends on the number
// of devices.
func (d *dependence) depends(obj types.Object, seen []types.Type) (cause, string, bool) {
	if c, ok := d.on[obj]; ok {
		return c, "", true
	}
	t := obj.Type()
	if load.IsDeviceType(t, "Group") {
		return cause{obj.Pos(), "a group of devices"}, "", true
	}
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	named, ok := types.Unalias(t).(*types.Named)
	if !ok || named.Obj().Pkg() == nil || d.ld.Library[named.Obj().Pkg().Path()] || slices.Contains(seen, t) {
		return cause{}, "", false
	}
	st, ok := t.Underlying().(*types.Struct)
	if !ok {
		return cause{}, "", false
	}
	for f := range st.Fields() {
		if c, path, ok := d.depends(f.Origin(), append(seen, t)); ok {
			if path != "" {
				path = "." + path
			}
			return c, f.Name() + path, true
		}
	}
	return cause{}, "", false
}

// writeText writes the part about devices.
func (info *DeviceInfo) writeText(b *strings.Builder, all bool) {
	b.WriteString("\nDevices\n")
	switch {
	case info.Saved == 0:
		info.writeDivisions(b)
	case info.Malleable:
		fmt.Fprintf(b, "  malleable: none of the %s depends on the number of devices\n", Plural(info.Saved, "saved variable"))
	default:
		fmt.Fprintf(b, "  pseudo-malleable: it continues with as many devices as it had, because %d of %d saved variables depend on their number\n",
			len(info.Depends), info.Saved)
		for _, x := range info.Depends {
			fmt.Fprintf(b, "    %s:%d: %s: %s\n", x.File, x.Line, x.Name, x.Why)
		}
	}
	for _, x := range info.LeftOut {
		fmt.Fprintf(b, "  at the point at %s:%d ", x.File, x.Line)
		if x.Array == "" {
			fmt.Fprintf(b, "all arrays are saved: %s\n", x.Why)
			continue
		}
		if x.Type != "" {
			fmt.Fprintf(b, "with a %s ", x.Type)
		}
		if x.DryRun != "" {
			fmt.Fprintf(b, "the parts of %s are not saved that the call at %s overwrites before it reads them; a dry run finds them\n", x.Array, x.DryRun)
			continue
		}
		fmt.Fprintf(b, "%s is not saved: the launch at %s overwrites it before it is read", x.Array, x.Overwritten)
		if len(x.If) > 0 {
			b.WriteString(", if " + strings.Join(x.If, " and "))
		}
		b.WriteString("\n")
	}
	for _, k := range info.Kernels {
		fmt.Fprintf(b, "  %s:%d: kernel %s", k.File, k.Line, k.Name)
		if len(k.Writes) > 0 {
			b.WriteString(" writes " + strings.Join(k.Writes, ", "))
		} else {
			b.WriteString(" writes none of the arrays passed here")
		}
		if all && len(k.Reads) > 0 {
			b.WriteString("; reads " + strings.Join(k.Reads, ", "))
		}
		b.WriteString("\n")
	}
}

// writeDivisions writes how a program that does not call Protect divides its
// work.
func (info *DeviceInfo) writeDivisions(b *strings.Builder) {
	for _, x := range info.Divisions {
		b.WriteString("  malleable")
		if len(x.Types) > 0 {
			b.WriteString(", if its work is a " + strings.Join(x.Types, ", "))
		}
		fmt.Fprintf(b, ": on another number of devices it divides its work anew, at %s:%d, as at %s\n    not saved, because it follows from the devices: %s\n",
			x.File, x.Line, strings.Join(x.By, ", "), strings.Join(x.Derived, ", "))
	}
	if len(info.Divisions) == 0 || len(info.Depends) > 0 {
		b.WriteString("  pseudo-malleable")
		if len(info.Divisions) > 0 {
			b.WriteString(" otherwise")
		}
		b.WriteString(": it continues with as many devices as it had, because of what follows from their number\n")
	}
	for _, x := range info.Depends {
		fmt.Fprintf(b, "    %s:%d: ", x.File, x.Line)
		if x.Type != "" {
			b.WriteString(x.Type + ": ")
		}
		b.WriteString(x.Name)
		if x.Why != "" {
			b.WriteString(": " + x.Why)
		}
		b.WriteString("\n")
	}
}
