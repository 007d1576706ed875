// Package kernel translates kernels, Go functions that work on a
// *device.Work, into OpenCL C. The host runs the Go function itself.
// docs/devices.md describes the subset of Go that is translated.
//
// In Go, a kernel loops over the work items of its part of a launch. On a
// device, each item runs the function, and a loop over items does the one
// iteration that belongs to the item. So code outside of these loops runs once
// for each item, and must not have effects. A loop over items that other loops
// depend on ends with a barrier (items.go).
//
// Files:
//
//	kernel.go         what is translated, errors
//	summary.go        what functions write and assign
//	types.go          types, constants, names
//	expr.go, call.go  expressions, calls
//	operators.go      operators with Go's meaning
//	stmt.go           statements
//	loops.go          loops, break and continue
//	items.go          loops over items
//	index.go          indexes with 32 bits
//	plan.go           barriers
//	function.go       kernels and the functions that they call
//	file.go           the Go file with the translations
//	load.go           packages
package kernel

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// DevicePath is the import path of package device.
const DevicePath = "github.com/cairnrun/cairn/device"

// Kernel is a translated kernel.
type Kernel struct {
	Name   string // of the Go function
	Entry  string // of the function in OpenCL C
	File   string // that declares it
	Dims   [3]bool
	Groups bool // it loops over groups
	// Most, if not 0, is the largest size of groups for which Entry is right.
	// For larger ones there is AnyGroup.
	Most     [3]int
	AnyGroup string
	Params   []Param
	// Source is the translation of the kernel and of what it calls.
	Source string
	// Decls are the declarations that the translation is made of.
	Decls []ast.Node
}

// Param is an argument of a kernel.
type Param struct {
	Type   string // of a value, or of the elements of an array
	Size   int    // bytes of that type
	Array  bool
	Local  bool // memory of a group
	Writes bool // the kernel writes elements
	Len    bool // the kernel uses the number of elements
}

// Source is a type-checked package.
type Source struct {
	Fset  *token.FileSet
	Files []*ast.File
	Types *types.Package
	Info  *types.Info
}

// refusal is an error at a place in the source.
type refusal struct {
	at   token.Position
	text string
}

func (r *refusal) Error() string { return fmt.Sprintf("%v: %s", r.at, r.text) }

// Translate translates all kernels of a package: functions that the package
// passes to device.KernelOf. The error joins one error for each kernel that
// cannot be translated.
func Translate(s *Source) ([]*Kernel, error) {
	funcs := make(map[types.Object]*ast.FuncDecl)
	for _, f := range s.Files {
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				funcs[s.Info.Defs[d.Name]] = d
			}
		}
	}
	var list []*Kernel
	var errs []error
	done := make(map[types.Object]bool)
	for _, f := range s.Files {
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !isDevice(s.Info, call.Fun, "KernelOf") || len(call.Args) != 1 {
				return true
			}
			var obj types.Object
			if id, ok := ast.Unparen(call.Args[0]).(*ast.Ident); ok {
				obj = s.Info.Uses[id]
			}
			d := funcs[obj]
			if d == nil || d.Recv != nil {
				errs = append(errs, &refusal{s.Fset.Position(call.Args[0].Pos()), "KernelOf gets something else than the name of a function of this package: declare the kernel as a function, and call KernelOf in its package"})
				return true
			}
			if done[obj] {
				return true
			}
			done[obj] = true
			k, err := s.kernel(funcs, obj, d)
			if err != nil {
				errs = append(errs, err)
			} else {
				list = append(list, k)
			}
			return true
		})
	}
	slices.SortFunc(list, func(a, b *Kernel) int { return strings.Compare(a.Name, b.Name) })
	return list, errors.Join(errs...)
}

// isDevice reports whether an expression names a function of package device,
// with or without type arguments.
func isDevice(info *types.Info, fun ast.Expr, names ...string) bool {
	fun = ast.Unparen(fun)
	if x, ok := fun.(*ast.IndexExpr); ok {
		fun = x.X
	}
	var id *ast.Ident
	switch x := ast.Unparen(fun).(type) {
	case *ast.Ident:
		id = x
	case *ast.SelectorExpr:
		id = x.Sel
	default:
		return false
	}
	f, ok := info.Uses[id].(*types.Func)
	return ok && f.Pkg() != nil && f.Pkg().Path() == DevicePath && f.Signature().Recv() == nil && slices.Contains(names, f.Name())
}

// isWork reports whether t is *device.Work.
func isWork(t types.Type) bool {
	p, ok := types.Unalias(t).(*types.Pointer)
	if !ok {
		return false
	}
	n, ok := types.Unalias(p.Elem()).(*types.Named)
	return ok && n.Obj().Name() == "Work" && n.Obj().Pkg() != nil && n.Obj().Pkg().Path() == DevicePath
}

// program translates one kernel and the functions that it calls.
type program struct {
	*Source
	funcs map[types.Object]*ast.FuncDecl

	structs   map[*types.Named]string // names in OpenCL C
	typeText  strings.Builder
	helpers   map[string]bool // functions of the preamble that are used
	helpText  strings.Builder
	instances map[string]string // translated functions: C names by key
	funcText  strings.Builder
	active    []types.Object // functions that are being translated
	summaries map[types.Object]*summary
	decls     []ast.Node
	regions   []*region
}

func (s *Source) kernel(funcs map[types.Object]*ast.FuncDecl, obj types.Object, d *ast.FuncDecl) (k *Kernel, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *refusal:
			k, err = nil, r
		default:
			panic(r)
		}
	}()
	sum := make(map[types.Object]*summary)
	translate := func(pl *plan) *program {
		p := &program{Source: s, funcs: funcs, structs: make(map[*types.Named]string), helpers: make(map[string]bool),
			instances: make(map[string]string), summaries: sum}
		k = p.translateKernel(obj, d, pl)
		return p
	}
	p := translate(nil)
	any, limited := p.plan(k, false), p.plan(k, true)
	if limited.most == [3]int{} {
		translate(any)
		return k, nil
	}
	any.entry = k.Entry + "any"
	translate(any)
	rest := k.Source
	translate(limited)
	k.Most, k.AnyGroup = limited.most, any.entry
	k.Source = Join([]*Kernel{k, {Source: rest}})
	return k, nil
}

// refuse reports that something cannot be translated, and what to do.
func (p *program) refuse(n ast.Node, format string, args ...any) {
	panic(&refusal{p.Fset.Position(n.Pos()), fmt.Sprintf(format, args...)})
}

// declare notes that the translation depends on a declaration.
func (p *program) declare(n ast.Node) {
	if !slices.Contains(p.decls, n) {
		p.decls = append(p.decls, n)
	}
}

// declareObject notes the declaration of a type or a constant.
func (p *program) declareObject(obj types.Object) {
	for _, f := range p.Files {
		if f.FileStart > obj.Pos() || obj.Pos() >= f.FileEnd {
			continue
		}
		for _, d := range f.Decls {
			if d.Pos() <= obj.Pos() && obj.Pos() < d.End() {
				p.declare(d)
			}
		}
	}
}
