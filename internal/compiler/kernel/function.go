package kernel

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// function is a function that is being translated.
type function struct {
	*program
	sum     *summary
	names   map[types.Object]string // variables other than slices
	used    map[string]bool         // names in C
	slices  map[types.Object]*slice
	polys   map[types.Object]poly // values of variables that never change
	depth   map[types.Object]int  // number of loops over items around the declaration
	out     strings.Builder
	indent  int
	effects bool // the expression is a whole statement, and may have effects
	targets []*target
	labels  int
	stable  map[types.Object]bool // declared outside of all loops

	results []*types.Var // of a function that is not a kernel
	record  string       // the struct of several results
	kernel  *items       // nil in other functions
}

func (p *program) newFunction(obj types.Object) *function {
	return &function{program: p, sum: p.summary(obj), names: make(map[types.Object]string), used: make(map[string]bool),
		slices: make(map[types.Object]*slice), polys: make(map[types.Object]poly), depth: make(map[types.Object]int), stable: make(map[types.Object]bool)}
}

func (f *function) line(format string, args ...any) {
	fmt.Fprintf(&f.out, "%s%s\n", strings.Repeat("\t", f.indent), fmt.Sprintf(format, args...))
}

// fresh returns an unused name.
func (f *function) fresh(name string) string {
	with := name
	for i := 1; f.used[with]; i++ {
		with = fmt.Sprintf("%s%d", name, i)
	}
	f.used[with] = true
	return with
}

// define gives a new variable a name.
func (f *function) define(obj types.Object) string {
	name := f.fresh(cName(obj.Name()))
	f.names[obj] = name
	if f.kernel != nil {
		f.depth[obj] = len(f.kernel.open)
		f.stable[obj] = f.kernel.loops == 0
	}
	return name
}

// instance returns the name of the translation of a function for slices in the
// given address spaces.
func (p *program) instance(n ast.Node, obj types.Object, spaces string) string {
	key := fmt.Sprintf("%p %s", obj, spaces)
	if slices.Contains(p.active, obj) {
		p.refuse(n, "a kernel cannot use recursion: %s calls itself", obj.Name())
	}
	if name, ok := p.instances[key]; ok {
		return name
	}
	p.active = append(p.active, obj)
	defer func() { p.active = p.active[:len(p.active)-1] }()
	d, sig := p.funcs[obj], obj.Type().(*types.Signature)
	p.declare(d)
	if d.Body == nil {
		p.refuse(d, "a kernel cannot call %s, which has no body in Go", obj.Name())
	}
	if sig.TypeParams().Len() > 0 || sig.RecvTypeParams().Len() > 0 {
		p.refuse(n, "a kernel cannot call the generic function %s: write one for each type", obj.Name())
	}
	name := cName(obj.Name()) + spaces
	if sig.Recv() != nil {
		of, ok := types.Unalias(sig.Recv().Type()).(*types.Named)
		if !ok {
			p.refuse(n, "a kernel cannot call the method %s of a pointer: use a value as receiver", obj.Name())
		}
		name = cName(of.Obj().Name()) + name
	}
	p.instances[key] = name
	f := p.newFunction(obj)
	var params []string
	for _, v := range parameters(obj) {
		if isWork(v.Type()) {
			p.refuse(n, "a kernel cannot pass its *device.Work to %s: pass what the function needs", obj.Name())
		}
		s, ok := v.Type().Underlying().(*types.Slice)
		if !ok {
			if _, ok := v.Type().Underlying().(*types.Array); ok {
				p.refuse(d, "a kernel cannot pass an array to a function: put it into a struct, or pass its elements")
			}
			params = append(params, p.typ(d, v.Type())+" "+f.define(v))
			continue
		}
		space := map[byte]string{'g': "__global", 'l': "__local"}[spaces[0]]
		spaces = spaces[1:]
		ptr := f.fresh(cName(v.Name()))
		of := &slice{space: space, elem: s.Elem(), ptr: ptr, root: -1}
		params = append(params, fmt.Sprintf("%s %s*%s", space, p.elemType(d, s.Elem(), f.sum.writes[v]), ptr))
		if f.sum.lens[v] {
			of.len = f.fresh("len_" + ptr)
			params = append(params, "long "+of.len)
		}
		f.slices[v] = of
	}
	result := "void"
	f.results = slices.AppendSeq(f.results, sig.Results().Variables())
	switch len(f.results) {
	case 0:
	case 1:
		result = p.typ(d, f.results[0].Type())
	default:
		f.record = "cairn_results_" + name
		fmt.Fprintf(&p.funcText, "typedef struct {\n")
		for i, v := range f.results {
			fmt.Fprintf(&p.funcText, "\t%s r%d;\n", p.typ(d, v.Type()), i)
		}
		fmt.Fprintf(&p.funcText, "} %s;\n\n", f.record)
		result = f.record
	}
	f.indent = 1
	for _, v := range f.results {
		if v.Name() != "" && v.Name() != "_" {
			f.line("%s = %s;", f.declaration(d, v.Type(), f.define(v)), f.zero(d, v.Type()))
		}
	}
	f.block(d.Body.List)
	if len(params) == 0 {
		params = []string{"void"}
	}
	fmt.Fprintf(&p.funcText, "%s %s(%s)\n{\n%s}\n\n", result, name, strings.Join(params, ", "), f.out.String())
	return name
}

// elemType returns the type of elements behind a pointer.
func (p *program) elemType(n ast.Node, t types.Type, writes bool) string {
	if b, ok := t.Underlying().(*types.Basic); ok && (b.Kind() == types.Int || b.Kind() == types.Uint) {
		p.refuse(n, "the elements of an array on devices cannot be of type %s, whose size differs between machines: use int32 or int64", t)
	}
	if s, ok := t.Underlying().(*types.Struct); ok {
		for v := range s.Fields() {
			if b, ok := v.Type().Underlying().(*types.Basic); ok && (b.Kind() == types.Int || b.Kind() == types.Uint) {
				p.refuse(n, "the field %s of %s cannot be of type %s, whose size differs between machines: use int32 or int64", v.Name(), t, v.Type())
			}
		}
	}
	name := p.typ(n, t)
	if !writes {
		name = "const " + name
	}
	return name + " "
}

// translateKernel translates the kernel. The plan is nil in the first of two
// passes.
func (p *program) translateKernel(obj types.Object, d *ast.FuncDecl, plan *plan) *Kernel {
	sig := obj.Type().(*types.Signature)
	if sig.Params().Len() != 1 || !isWork(sig.Params().At(0).Type()) || sig.Results().Len() != 0 || sig.TypeParams().Len() > 0 {
		p.refuse(d, "%s is not a kernel: it must be a func(*device.Work)", d.Name.Name)
	}
	if d.Body == nil {
		p.refuse(d, "%s has no body in Go", d.Name.Name)
	}
	p.declare(d)
	f := p.newFunction(obj)
	k := &Kernel{Name: obj.Name(), Entry: cName(obj.Name()), File: p.Fset.Position(d.Pos()).Filename}
	entry := k.Entry
	if plan != nil {
		entry = plan.entry
	}
	f.kernel = &items{k: k, part: sig.Params().At(0), bounds: make(map[types.Object]bound), plan: plan, args: make(map[int]*argument)}
	for _, word := range []string{"n0", "n1", "n2", "size0", "size1", "size2"} {
		f.used[word] = true
	}
	p.active = append(p.active, obj)
	f.indent = 1
	f.block(d.Body.List)
	f.finishKernel(d, entry)
	k.Decls = p.decls
	return k
}

// finishKernel puts the parts of the translation together.
func (f *function) finishKernel(d *ast.FuncDecl, entry string) {
	k, it := f.kernel.k, f.kernel
	var params, hidden, privates []string
	for i := 0; len(k.Params) < len(it.args); i++ {
		a := it.args[i]
		if a == nil {
			f.refuse(d, "the kernel does not use argument %d: name it, as in _ = device.Slice[float32](%s, %d)", i, it.part.Name(), i)
		}
		param := Param{Type: a.typ.String(), Size: int(sizes.Sizeof(a.typ)), Array: a.slice != nil}
		if a.slice == nil {
			params = append(params, fmt.Sprintf("%s a%d", f.typ(d, a.typ), i))
			k.Params = append(k.Params, param)
			continue
		}
		param.Writes, param.Local, param.Len = a.writes, a.slice.space == "__local", a.len
		params = append(params, fmt.Sprintf("%s %s*%s", a.slice.space, f.elemType(d, a.typ, a.writes || param.Local), a.slice.ptr))
		if a.len {
			hidden = append(hidden, "long "+a.slice.len)
		}
		if it.plan != nil && it.plan.private[i] {
			privates = append(privates, fmt.Sprintf("\t%s = %s;\n", f.declaration(d, a.typ, privateName(i)), f.zero(d, a.typ)))
		}
		k.Params = append(k.Params, param)
	}
	params = append(params, "long size0", "long size1", "long size2")
	params = append(params, hidden...)
	var head strings.Builder
	for i := range 3 {
		fmt.Fprintf(&head, "\tconst long n%d = (long)(CAIRN_INDEX)size%d;\n", i, i)
	}
	if k.Groups {
		for i := range 3 {
			fmt.Fprintf(&head, "\tconst long lo%d = (long)(CAIRN_INDEX)(get_group_id(%d) * get_local_size(%d)), hi%d = %s;\n", i, i, i, i,
				f.least("min", kinds[types.Int], fmt.Sprintf("lo%d + (long)get_local_size(%d)", i, i), fmt.Sprintf("n%d", i)))
		}
	} else {
		var beyond []string
		for i := range 3 {
			beyond = append(beyond, fmt.Sprintf("(long)(CAIRN_INDEX)get_global_id(%d) >= n%d", i, i))
		}
		fmt.Fprintf(&head, "\tif (%s)\n\t\treturn;\n", strings.Join(beyond, " || "))
	}
	k.Source = indexType + f.typeText.String() + f.helpText.String() + f.funcText.String() +
		fmt.Sprintf("__kernel void %s(%s)\n{\n%s%s%s}\n", entry, strings.Join(params, ", "), head.String(), strings.Join(privates, ""), f.out.String())
	f.program.regions = it.regions
}

// sizes are those that kernels and programs agree on.
var sizes = types.SizesFor("gc", "amd64")
