package kernel

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
)

// items is what is known of a kernel's loops over work items.
type items struct {
	k      *Kernel
	part   types.Object            // the *device.Work of the kernel
	group  types.Object            // that of a group, in the loop over groups
	asked  ast.Node                // where the kernel asks for the range of the part
	before map[types.Object]string // variables that are declared before the loop over groups
	bounds map[types.Object]bound
	args   map[int]*argument
	plan   *plan

	open    []int // dimensions of the loops over items that are open
	in      []int // numbers of them
	again   bool  // it is done several times by a loop over another dimension
	last    int   // number of the last loop over items
	loops   int   // other loops around, outside of loops over items
	loop    int   // number of the outermost of them
	regions []*region
	region  *region // the current one
}

// bound is a variable with a bound of the part or the group.
type bound struct {
	dim   int
	high  bool
	items bool // the number of items, from Items: the loop begins at 0
}

// argument is an argument of the kernel.
type argument struct {
	typ    types.Type // of a value, or of elements
	slice  *slice     // nil: a value
	writes bool
	len    bool
}

// region is an outermost loop over items. All items of a group do it at the
// same time, in no order.
type region struct {
	at       ast.Node
	loop     int // the loop around it, or 0
	accesses []access
}

// access is an access to an element of an argument.
type access struct {
	arg   int
	write bool
	form  poly // the index; nil: unknown
	at    ast.Node
	in    []int // numbers of the loops over items around
	again bool  // that loop is in another loop, in another loop over items
}

// plan is what the first pass finds out for the second one.
type plan struct {
	entry   string // the kernel's name in C
	most    [3]int // the largest groups for which private is right; 0: any
	dims    int
	writes  map[int]bool
	private map[int]bool   // arguments in local memory that become a variable of each item
	barrier map[int]string // by region: the fences of the barrier after it
}

func privateName(arg int) string { return fmt.Sprintf("own%d", arg) }

func (it *items) enterLoop() {
	if it.loops == 0 {
		it.loop++
	}
	it.loops++
}

func (it *items) leaveLoop() { it.loops-- }

// isSliceCall reports whether x is device.Slice or device.LocalSlice.
func (f *function) isSliceCall(x ast.Expr) bool {
	call, ok := ast.Unparen(x).(*ast.CallExpr)
	return ok && isDevice(f.Info, call.Fun, "Slice", "LocalSlice")
}

// argNumber returns the number of the argument that a call of device.Slice or
// device.Value gets.
func (f *function) argNumber(call *ast.CallExpr) int {
	if f.kernel == nil {
		f.refuse(call, "only the kernel itself can ask for its arguments: pass them to the function")
	}
	id, ok := ast.Unparen(call.Args[0]).(*ast.Ident)
	if !ok || f.Info.Uses[id] != f.kernel.part && (f.kernel.group == nil || f.Info.Uses[id] != f.kernel.group) {
		f.refuse(call, "the first argument must be the kernel's *device.Work")
	}
	v := f.Info.Types[call.Args[1]].Value
	if v == nil {
		f.refuse(call, "the number of a kernel's argument must be a constant")
	}
	n, _ := constant.Int64Val(constant.ToInt(v))
	if n < 0 || n > 255 {
		f.refuse(call, "a kernel has no argument %d", n)
	}
	return int(n)
}

// typeArgument returns T of device.Slice[T].
func (f *function) typeArgument(call *ast.CallExpr) types.Type {
	x, ok := ast.Unparen(call.Fun).(*ast.IndexExpr)
	if !ok {
		f.refuse(call, "name the type of the argument, as in device.Value[int32](w, 0)")
	}
	return f.Info.TypeOf(x.Index)
}

// sliceCall translates x := device.Slice[T](w, i).
func (f *function) sliceCall(call *ast.CallExpr, name string) *slice {
	i, t := f.argNumber(call), f.typeArgument(call)
	space := "__global"
	if isDevice(f.Info, call.Fun, "LocalSlice") {
		space = "__local"
	}
	if a := f.kernel.args[i]; a != nil {
		if a.slice == nil || !types.Identical(a.typ, t) || a.slice.space != space {
			f.refuse(call, "argument %d has another type before", i)
		}
		return a.slice
	}
	if len(f.kernel.open) > 0 {
		f.refuse(call, "ask for the arguments before the loops over items")
	}
	s := &slice{space: space, elem: t, ptr: f.fresh(cName(name)), root: i, off: poly{}}
	s.len = f.fresh("len_" + s.ptr)
	f.kernel.args[i] = &argument{typ: t, slice: s}
	return s
}

// valueArg translates device.Value[T](w, i).
func (f *function) valueArg(call *ast.CallExpr) (string, bool) {
	if !isDevice(f.Info, call.Fun, "Value") {
		if f.isSliceCall(call) {
			f.refuse(call, "declare a variable with device.Slice, outside of all loops")
		}
		return "", false
	}
	i, t := f.argNumber(call), f.typeArgument(call)
	switch t.String() {
	case "int32", "uint32", "int64", "uint64", "float32", "float64":
	default:
		f.refuse(call, "a value that is passed to a kernel cannot be a %s: pass an int32, uint32, int64, uint64, float32 or float64", t)
	}
	if a := f.kernel.args[i]; a != nil && (a.slice != nil || !types.Identical(a.typ, t)) {
		f.refuse(call, "argument %d has another type before", i)
	}
	f.kernel.args[i] = &argument{typ: t}
	return fmt.Sprintf("a%d", i), true
}

// workDefine translates declarations that only kernels have: arguments, and
// bounds of loops.
func (f *function) workDefine(n ast.Node, lhs, rhs []ast.Expr) bool {
	if len(rhs) == 1 && len(lhs) == 2 {
		d, method := f.rangeCall(rhs[0])
		if method != "Range" {
			return false
		}
		for i, l := range lhs {
			f.defineBound(n, l.(*ast.Ident), bound{dim: d, high: i == 1})
		}
		return true
	}
	isItems := func(x ast.Expr) bool { _, method := f.rangeCall(x); return method == "Items" }
	if len(rhs) != len(lhs) || !slices.ContainsFunc(rhs, func(x ast.Expr) bool { return f.isSliceCall(x) || isItems(x) }) {
		return false
	}
	var others, values []ast.Expr // some of the variables may exist
	for i, l := range lhs {
		id := l.(*ast.Ident)
		switch {
		case f.isSliceCall(rhs[i]):
			f.defineSlice(id, ast.Unparen(rhs[i]).(*ast.CallExpr))
		case isItems(rhs[i]):
			d, _ := f.rangeCall(rhs[i])
			f.defineBound(n, id, bound{dim: d, items: true})
		default:
			others, values = append(others, l), append(values, rhs[i])
		}
	}
	if len(others) > 0 {
		f.defineAll(n, others, values)
	}
	return true
}

// defineSlice translates the declaration of a variable for an argument.
func (f *function) defineSlice(id *ast.Ident, call *ast.CallExpr) {
	s := f.sliceCall(call, id.Name)
	obj := f.Info.Defs[id]
	if obj == nil {
		return
	}
	if f.sum.assigned[obj] {
		f.refuse(id, "a kernel cannot assign to %s again, a slice: declare another variable, or use an index", id.Name)
	}
	f.slices[obj] = s
	a := f.kernel.args[s.root]
	a.writes = a.writes || f.sum.writes[obj]
	a.len = a.len || f.sum.lens[obj]
}

// defineBound translates the declaration of a variable for a bound.
func (f *function) defineBound(n ast.Node, id *ast.Ident, b bound) {
	if len(f.kernel.open) > 0 {
		f.refuse(n, "ask for the range before the loops over items")
	}
	obj := f.Info.Defs[id]
	if id.Name == "_" {
		return
	}
	if obj == nil || f.sum.assigned[obj] {
		f.refuse(id, "a kernel cannot assign to %s, a bound of a loop over items: use min and max in the loop", id.Name)
	}
	f.kernel.bounds[obj] = b
	f.line("const long %s = %s;", f.define(obj), f.boundText(b))
	f.polys[obj] = b.poly()
}

// poly returns the value of a bound.
func (b bound) poly() poly {
	if b.items {
		return poly{boundSymbol(bound{dim: b.dim, high: true}): 1, boundSymbol(bound{dim: b.dim}): -1}
	}
	return symbol(boundSymbol(b))
}

func boundSymbol(b bound) string {
	if b.high {
		return fmt.Sprintf("hi%d", b.dim)
	}
	return fmt.Sprintf("lo%d", b.dim)
}

// boundText returns a bound in C. The part is the whole launch there: what a
// kernel computes from its bounds is the same for all items, and the part is
// complete in all dimensions, as Work says.
func (f *function) boundText(b bound) string {
	switch grouped := f.kernel.group != nil; {
	case b.items && grouped:
		return fmt.Sprintf("(hi%d - lo%d)", b.dim, b.dim)
	case !grouped && (b.items || b.high):
		return fmt.Sprintf("n%d", b.dim)
	case !grouped:
		return "0L"
	}
	return boundSymbol(b)
}

// rangeCall returns the dimension of a call w.Range(d) or w.Items(d), and the
// method's name.
func (f *function) rangeCall(x ast.Expr) (int, string) {
	call, ok := ast.Unparen(x).(*ast.CallExpr)
	if !ok {
		return 0, ""
	}
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Range" && sel.Sel.Name != "Items" || !isWork(f.Info.TypeOf(sel.X)) {
		return 0, ""
	}
	f.checkWork(sel.X)
	return f.dimension(call.Args[0]), sel.Sel.Name
}

// checkWork refuses the part in kernels that work by groups.
func (f *function) checkWork(x ast.Expr) {
	id, ok := ast.Unparen(x).(*ast.Ident)
	if !ok {
		f.refuse(x, "use the name of the *device.Work")
	}
	if obj := f.Info.Uses[id]; f.kernel.k.Groups && obj != f.kernel.group {
		f.refuse(x, "the kernel works by groups: use the group's *device.Work, and only in the loop over groups")
	}
	if f.kernel.asked == nil && f.kernel.group == nil {
		f.kernel.asked = x
	}
}

func (f *function) dimension(x ast.Expr) int {
	v := f.Info.Types[x].Value
	if v == nil {
		f.refuse(x, "the dimension must be a constant")
	}
	d, _ := constant.Int64Val(v)
	if d < 0 || d > 2 {
		f.refuse(x, "there is no dimension %d, only 0, 1 and 2", d)
	}
	return int(d)
}

// isWorkField reports whether x is w.Lo, w.Hi, w.Global or w.Local.
func (f *function) isWorkField(x *ast.SelectorExpr) bool { return isWork(f.Info.TypeOf(x.X)) }

// workField translates w.Lo[d] and the like.
func (f *function) workField(x *ast.IndexExpr, sel *ast.SelectorExpr) string {
	if f.kernel == nil {
		f.refuse(x, "only the kernel itself can use its *device.Work")
	}
	d := f.dimension(x.Index)
	switch sel.Sel.Name {
	case "Global":
		return fmt.Sprintf("n%d", d)
	case "Lo", "Hi":
		f.checkWork(sel.X)
		return f.boundText(bound{dim: d, high: sel.Sel.Name == "Hi"})
	case "Local":
		if f.kernel.group != nil {
			return fmt.Sprintf("((long)get_local_size(%d))", d)
		}
	}
	f.refuse(x, "a kernel can use %s only in the loop over groups", sel.Sel.Name)
	return ""
}

// groupLoop translates for g := range w.Groups().
func (f *function) groupLoop(s *ast.RangeStmt, label string) bool {
	call, ok := ast.Unparen(s.X).(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Groups" || !isWork(f.Info.TypeOf(sel.X)) {
		return false
	}
	it := f.kernel
	id, ok := s.Key.(*ast.Ident)
	if !ok || s.Tok != token.DEFINE || s.Value != nil {
		f.refuse(s, "write the loop over groups as 'for g := range w.Groups()'")
	}
	if it.k.Groups || len(f.targets) > 0 || len(it.regions) > 0 {
		f.refuse(s, "a kernel has one loop over groups, outside of all other loops")
	}
	if it.asked != nil {
		f.refuse(it.asked, "the kernel works by groups: use the group's *device.Work, and only in the loop over groups")
	}
	it.k.Groups, it.group, it.before = true, f.Info.Defs[id], maps.Clone(f.names)
	t := f.push(label, 'g')
	f.line("{")
	f.braces(s.Body.List)
	f.line("}")
	f.pop(t)
	it.group = nil
	return true
}

// itemLoop translates for x := lo; x < hi; x++, where lo and hi come from
// Range, and for x := 0; x < n; x++, where n comes from Items. It reports
// whether s is such a loop.
func (f *function) itemLoop(s *ast.ForStmt, label string) bool {
	init, ok := s.Init.(*ast.AssignStmt)
	if !ok || init.Tok != token.DEFINE || len(init.Lhs) != 1 || len(init.Rhs) != 1 {
		return false
	}
	low, lowMore := f.findBound(init.Rhs[0], "max")
	cond, _ := s.Cond.(*ast.BinaryExpr)
	var high *bound
	var highMore []ast.Expr
	if cond != nil {
		high, highMore = f.findBound(cond.Y, "min")
	}
	if low == nil && high == nil {
		return false
	}
	id := init.Lhs[0].(*ast.Ident)
	obj := f.Info.Defs[id]
	post, _ := s.Post.(*ast.IncDecStmt)
	named := func(x ast.Expr) bool {
		y, ok := ast.Unparen(x).(*ast.Ident)
		return ok && f.Info.Uses[y] == obj
	}
	right := low != nil && high != nil && !low.high && !low.items && high.high && low.dim == high.dim
	if low == nil && high.items { // it begins at 0, or at max(0, …)
		lowMore = f.fromZero(init.Rhs[0])
		right = lowMore != nil
	}
	if !right || cond.Op != token.LSS || !named(cond.X) ||
		post == nil || post.Tok != token.INC || !named(post.X) || f.assignedIn(s.Body, obj) {
		f.refuse(s, "write a loop over items as 'for x := lo; x < hi; x++' (or with max(lo, …) and min(hi, …)), where lo and hi come from one call of Range, or as 'for x := range n' (or x := 0; x < min(n, …); x++), where n comes from Items, and leave x unchanged")
	}
	f.items(s, label, id, *high, lowMore, highMore, s.Body)
	return true
}

// fromZero returns the expressions of max(0, …) besides 0, or of 0 itself; nil
// if x is neither.
func (f *function) fromZero(x ast.Expr) []ast.Expr {
	zero := func(x ast.Expr) bool {
		v := f.Info.Types[x].Value
		return v != nil && constant.Sign(v) == 0
	}
	if zero(x) {
		return []ast.Expr{}
	}
	call, ok := ast.Unparen(x).(*ast.CallExpr)
	if !ok {
		return nil
	}
	id, ok := ast.Unparen(call.Fun).(*ast.Ident)
	if !ok || f.Info.Uses[id] != types.Universe.Lookup("max") || !slices.ContainsFunc(call.Args, zero) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(call.Args), zero)
}

// itemRange translates for x := range n, where n comes from Items. It reports
// whether s is such a loop.
func (f *function) itemRange(s *ast.RangeStmt, label string) bool {
	high, more := f.findBound(s.X, "min")
	if high == nil || !high.items {
		return false
	}
	id, ok := s.Key.(*ast.Ident)
	if !ok || s.Tok != token.DEFINE || f.Info.Defs[id] == nil || f.assignedIn(s.Body, f.Info.Defs[id]) {
		f.refuse(s, "write a loop over items as 'for x := range n', and leave x unchanged")
	}
	f.items(s, label, id, *high, nil, more, s.Body)
	return true
}

// items translates a loop over items up to high, which fulfil more conditions:
// x is at least each of low, and less than each of less.
func (f *function) items(s ast.Stmt, label string, id *ast.Ident, high bound, low, less []ast.Expr, body *ast.BlockStmt) {
	it := f.kernel
	if slices.Contains(it.open, high.dim) {
		f.refuse(s, "this loop over items is inside of another one over the same dimension")
	}
	for _, x := range slices.Concat(low, less) {
		ast.Inspect(x, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.IndexExpr, *ast.SelectorExpr:
				f.refuse(n, "the bounds of a loop over items can use variables only: declare one")
			case *ast.Ident:
				if v := f.Info.Uses[n]; v != nil && f.assignedIn(body, v) {
					f.refuse(n, "the loop over items changes %s, which is in its bounds", n.Name)
				}
			}
			return true
		})
	}
	it.k.Dims[high.dim] = true
	var conds []string
	name := f.fresh(cName(id.Name))
	position, form := fmt.Sprintf("(long)(CAIRN_INDEX)get_global_id(%d)", high.dim), symbol(fmt.Sprintf("#%d", high.dim))
	inside := fmt.Sprintf("%s < n%d", name, high.dim)
	if high.items {
		form = form.add(symbol(boundSymbol(bound{dim: high.dim})), -1)
		if it.k.Groups {
			position = fmt.Sprintf("(long)(CAIRN_INDEX)get_local_id(%d)", high.dim)
			inside = fmt.Sprintf("lo%d + %s < n%d", high.dim, name, high.dim)
		}
	}
	if it.k.Groups {
		conds = append(conds, inside)
	}
	for _, x := range low {
		conds = append(conds, fmt.Sprintf("%s >= %s", name, f.expr(x)))
	}
	for _, x := range less {
		conds = append(conds, fmt.Sprintf("%s < %s", name, f.expr(x)))
	}
	outer := len(it.open) == 0
	if outer {
		r := &region{at: s}
		if it.loops > 0 {
			r.loop = it.loop
		}
		it.regions = append(it.regions, r)
		it.region = r
	}
	in, again := it.in, it.again
	it.last++
	it.in, it.again = append(slices.Clone(in), it.last), again || f.repeating()
	t := f.push(label, 'i')
	it.open = append(it.open, high.dim)
	obj := f.Info.Defs[id]
	f.names[obj], f.depth[obj], f.polys[obj] = name, len(it.open), form
	f.line("{")
	f.indent++
	f.line("const long %s = %s;", name, position)
	if len(conds) > 0 {
		f.line("if (%s) do {", strings.Join(conds, " && "))
	} else {
		f.line("do {")
	}
	before := f.out.String()
	f.out.Reset()
	f.braces(body.List)
	text := f.out.String()
	f.out.Reset()
	f.out.WriteString(before)
	if t.usesNext { // in C++, a goto cannot pass declarations
		text = fmt.Sprintf("{\n%s}\n%s:;\n", text, t.next)
	}
	f.out.WriteString(text)
	f.line("} while (0);")
	f.indent--
	f.line("}")
	f.pop(t)
	it.open = it.open[:len(it.open)-1]
	it.in, it.again = in, again
	if outer {
		if it.plan != nil {
			if fences := it.plan.barrier[len(it.regions)-1]; fences != "" {
				f.line("barrier(%s);", fences)
			}
		}
		it.region = nil
	}
}

// findBound returns the bound in lo, or in max(lo, a, b), and the others.
func (f *function) findBound(x ast.Expr, word string) (*bound, []ast.Expr) {
	switch y := ast.Unparen(x).(type) {
	case *ast.Ident:
		if b, ok := f.kernel.bounds[f.Info.Uses[y]]; ok {
			return &b, nil
		}
	case *ast.IndexExpr:
		sel, ok := ast.Unparen(y.X).(*ast.SelectorExpr)
		if ok && f.isWorkField(sel) && (sel.Sel.Name == "Lo" || sel.Sel.Name == "Hi") {
			f.checkWork(sel.X)
			return &bound{dim: f.dimension(y.Index), high: sel.Sel.Name == "Hi"}, nil
		}
	case *ast.CallExpr:
		id, ok := ast.Unparen(y.Fun).(*ast.Ident)
		if !ok {
			return nil, nil
		}
		if b, ok := f.Info.Uses[id].(*types.Builtin); !ok || b.Name() != word {
			return nil, nil
		}
		var found *bound
		var rest []ast.Expr
		for _, a := range y.Args {
			if b, _ := f.findBound(a, ""); b != nil && found == nil {
				found = b
			} else {
				rest = append(rest, a)
			}
		}
		return found, rest
	}
	return nil, nil
}

func (f *function) kernelReturn(s *ast.ReturnStmt) {
	if f.kernel.group != nil || len(f.kernel.open) > 0 {
		f.refuse(s, "a kernel cannot return inside of a loop over items or groups, because the others run in parallel: use continue or if")
	}
	f.line("return;")
}

// mayAssign refuses assignments that only one item would see.
func (f *function) mayAssign(id *ast.Ident) {
	obj := f.Info.ObjectOf(id)
	if f.kernel == nil || f.names[obj] == "" {
		return
	}
	if f.kernel.group != nil && f.kernel.before[obj] != "" {
		f.refuse(id, "a loop over groups cannot assign to %s, which is declared outside of the loop: groups run in parallel. Declare it inside", id.Name)
	}
	if f.depth[obj] < len(f.kernel.open) {
		f.refuse(id, "a loop over items cannot assign to %s, which is declared outside of the loop: items run in parallel. Declare it inside, or use local memory (device.LocalSlice)", id.Name)
	}
}

// rootWrites reports whether the argument behind a slice variable is written.
func (f *function) rootWrites(obj types.Object) bool {
	for {
		of := f.sum.source[obj]
		if s := f.slices[obj]; of == nil && f.kernel != nil && s != nil && s.root >= 0 {
			a := f.kernel.args[s.root]
			return a.writes || s.space == "__local"
		}
		if of == nil {
			return f.sum.writes[obj]
		}
		obj = of
	}
}

// element translates an access to an element of a slice.
func (f *function) element(n ast.Expr, s *slice, index string, form poly, write bool) string {
	whole := s.off.add(form, 1)
	f.access(n, s, whole, write)
	if f.kernel != nil && f.kernel.plan != nil && f.kernel.plan.private[s.root] {
		return privateName(s.root)
	}
	return fmt.Sprintf("%s[%s]", s.ptr, index)
}

// access notes an access to an element of an argument, and refuses what would
// be different on devices.
func (f *function) access(n ast.Node, s *slice, form poly, write bool) {
	it := f.kernel
	if it == nil || s.root < 0 {
		return
	}
	if it.region == nil {
		switch {
		case write:
			f.refuse(n, "a kernel cannot write to an array outside of the loops over items: each item would do it. Move it into the loops, under an if for one item")
		case s.space == "__local", it.plan != nil && it.plan.writes[s.root]:
			f.refuse(n, "a kernel cannot read an array that it writes outside of the loops over items: move this into a loop over items")
		}
		return
	}
	if write && it.plan != nil && len(it.open) < it.plan.dims {
		f.refuse(n, "a kernel cannot write to an array outside of the loops over all its %d dimensions: each item would do it. Move it into the innermost loop, under an if for one item", it.plan.dims)
	}
	it.region.accesses = append(it.region.accesses, access{s.root, write, form, n, it.in, it.again})
}
