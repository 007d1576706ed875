package kernel

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"
)

// poly is an index as a sum of products. The keys are products of symbols, in
// order, separated by spaces; "" is the constant. A symbol is #d for the
// position of the item in dimension d, or something that is the same for all
// items and at all times. nil is an unknown index.
type poly map[string]int64

func symbol(name string) poly { return poly{name: 1} }

// add returns p + c·q, or nil if one is nil.
func (p poly) add(q poly, c int64) poly {
	if p == nil || q == nil {
		return nil
	}
	r := maps.Clone(p)
	for k, v := range q {
		if r[k] += c * v; r[k] == 0 {
			delete(r, k)
		}
	}
	return r
}

func (p poly) mul(q poly) poly {
	if p == nil || q == nil {
		return nil
	}
	r := poly{}
	for a, v := range p {
		for b, w := range q {
			words := append(strings.Fields(a), strings.Fields(b)...)
			sort.Strings(words)
			r = r.add(poly{strings.Join(words, " "): v * w}, 1)
		}
	}
	return r
}

func (p poly) equal(q poly) bool { return p != nil && q != nil && maps.Equal(p, q) }

// without returns the coefficient of a symbol, and the rest.
func (p poly) split(name string) (coefficient, rest poly) {
	coefficient, rest = poly{}, poly{}
	for k, v := range p {
		words := strings.Fields(k)
		if i := slices.Index(words, name); i >= 0 {
			coefficient[strings.Join(slices.Delete(words, i, i+1), " ")] = v
		} else {
			rest[k] = v
		}
	}
	return coefficient, rest
}

// distinct reports whether different items of a group certainly have different
// values of p. dims are the dimensions of the kernel. If most is not nil, p may
// be distinct for groups up to some size only, which distinct notes in most.
func (p poly) distinct(dims [3]bool, most *[3]int) bool {
	if p == nil {
		return false
	}
	// A step of the next dimension must be at least step·width of the last
	// one, d. The width of a group is hi−lo, at most Local.
	d, step := -1, poly{"": 1}
	var limits [3]int
	for next, used := range dims {
		if !used {
			continue
		}
		var c poly
		c, p = p.split(fmt.Sprintf("#%d", next))
		exact, local := step, step
		if d >= 0 {
			exact = step.mul(poly{boundSymbol(bound{dim: d, high: true}): 1, boundSymbol(bound{dim: d}): -1})
			local = step.mul(symbol(localSymbol(d)))
		}
		if !c.equal(exact) && !c.equal(local) {
			have, ok := c.constant()
			need, ok2 := step.constant()
			switch {
			case !ok || !ok2 || have < need || need < 1:
				return false
			case d >= 0 && most == nil:
				return false
			case d >= 0:
				limits[d] = int(min(have/need, math.MaxInt32))
			}
		}
		d, step = next, c
	}
	for k := range p {
		if strings.Contains(k, "#") {
			return false
		}
	}
	for i, n := range limits {
		if n > 0 && (most[i] == 0 || n < most[i]) {
			most[i] = n
		}
	}
	return true
}

// constant returns p if it is a number.
func (p poly) constant() (int64, bool) {
	v := p[""]
	return v, len(p) == 0 || len(p) == 1 && v != 0
}

// poly returns the value of an integer expression as a sum of products, or nil.
func (f *function) poly(x ast.Expr) poly {
	if f.kernel == nil {
		return nil
	}
	if v := f.Info.Types[x].Value; v != nil {
		if i, ok := constant.Int64Val(constant.ToInt(v)); ok {
			if i == 0 {
				return poly{}
			}
			return poly{"": i}
		}
		return nil
	}
	k, ok := number(f.Info.TypeOf(x))
	if !ok || k.class != 'i' {
		return nil
	}
	switch x := ast.Unparen(x).(type) {
	case *ast.Ident:
		obj := f.Info.Uses[x]
		if q, ok := f.polys[obj]; ok {
			return q
		}
		v, ok := obj.(*types.Var)
		if !ok || f.sum.assigned[v] || f.depth[v] > 0 || !f.stable[v] {
			return nil
		}
		return symbol(f.names[v])
	case *ast.BinaryExpr:
		if k.bits != 64 {
			return nil // it may wrap
		}
		a, b := f.poly(x.X), f.poly(x.Y)
		switch x.Op {
		case token.ADD:
			return a.add(b, 1)
		case token.SUB:
			return a.add(b, -1)
		case token.MUL:
			return a.mul(b)
		}
	case *ast.IndexExpr:
		if sel, ok := ast.Unparen(x.X).(*ast.SelectorExpr); ok && f.isWorkField(sel) && sel.Sel.Name == "Local" {
			return symbol(localSymbol(f.dimension(x.Index)))
		}
	case *ast.CallExpr:
		if f.Info.Types[x.Fun].IsType() && k.bits == 64 {
			if from, ok := number(f.Info.TypeOf(x.Args[0])); ok && from.class == 'i' && (from.bits == 64 || from.signed) {
				return f.poly(x.Args[0])
			}
		}
	}
	return nil
}

// localSymbol stands for the size of groups in dimension d.
func localSymbol(d int) string { return fmt.Sprintf("local%d", d) }

// plan decides, after the first pass, where barriers are needed. If limited is
// set, the plan may be right only for groups up to the size plan.most.
func (p *program) plan(k *Kernel, limited bool) *plan {
	pl := &plan{entry: k.Entry, writes: make(map[int]bool), private: make(map[int]bool), barrier: make(map[int]string)}
	for _, used := range k.Dims {
		if used {
			pl.dims++
		}
	}
	for _, r := range p.regions {
		for _, a := range r.accesses {
			if a.write {
				pl.writes[a.arg] = true
			}
		}
	}
	// Local memory of which each item uses one element of its own becomes a
	// variable.
	for i, param := range k.Params {
		if !param.Local || param.Len {
			continue
		}
		var form poly
		same, limits := true, (*[3]int)(nil)
		if most := pl.most; limited {
			limits = &most
		}
		for _, r := range p.regions {
			for _, a := range r.accesses {
				if a.arg != i {
					continue
				}
				if form == nil {
					form = a.form
				}
				same = same && a.form.equal(form) && a.form.distinct(k.Dims, limits)
			}
		}
		if pl.private[i] = same && form != nil; pl.private[i] && limited {
			pl.most = *limits
		}
	}
	for _, r := range p.regions {
		p.checkNested(k, r)
	}
	for i, r := range p.regions {
		for j, s := range p.regions {
			if j <= i && (r.loop == 0 || s.loop != r.loop) {
				continue
			}
			for _, arg := range conflicts(r, s, k.Dims) {
				if pl.private[arg] {
					continue
				}
				if !k.Groups {
					p.refuse(s.at, "this loop over items depends on the one at line %d, and items of a launch are not ordered: use two kernels, or groups (for g := range w.Groups())", p.Fset.Position(r.at.Pos()).Line)
				}
				fence := "CLK_GLOBAL_MEM_FENCE"
				if k.Params[arg].Local {
					fence = "CLK_LOCAL_MEM_FENCE"
				}
				if old := pl.barrier[i]; old == "" {
					pl.barrier[i] = fence
				} else if !strings.Contains(old, fence) {
					pl.barrier[i] = "CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE"
				}
			}
		}
	}
	return pl
}

// checkNested refuses loops over items that depend on each other, or on
// statements between them, inside of a loop over another dimension. There can
// be no barrier: not all items of the group are there.
func (p *program) checkNested(k *Kernel, r *region) {
	for i, b := range r.accesses {
		for _, a := range r.accesses[:i+1] {
			if b.at.Pos() < a.at.Pos() {
				a, b = b, a
			}
			// What is read of an array before a loop that writes it may
			// be other elements; see docs/devices.md.
			again := a.again && slices.Equal(a.in, b.in) && a.write != b.write
			after := len(a.in) > len(b.in) || !slices.Equal(a.in, b.in[:len(a.in)])
			if a.arg == b.arg && (a.write || b.write) && (again || after || k.Params[a.arg].Local && len(a.in) < len(b.in)) && !(a.form.equal(b.form) && a.form.names(k.Dims)) {
				p.refuse(b.at, "this depends on line %d, which other items do at another time, as both are inside of a loop over items of another dimension: end that loop between them, and begin it again", p.Fset.Position(a.at.Pos()).Line)
			}
		}
	}
}

// names reports whether p depends on the position in all dimensions.
func (p poly) names(dims [3]bool) bool {
	for d, used := range dims {
		if used && !slices.ContainsFunc(slices.Collect(maps.Keys(p)), func(k string) bool { return slices.Contains(strings.Fields(k), fmt.Sprintf("#%d", d)) }) {
			return false
		}
	}
	return true
}

// conflicts returns the arguments by which two regions depend on each other:
// one writes an element that another item may use in the other one.
func conflicts(r, s *region, dims [3]bool) (list []int) {
	for _, a := range r.accesses {
		for _, b := range s.accesses {
			if a.arg == b.arg && (a.write || b.write) && !(a.form.equal(b.form) && a.form.distinct(dims, nil)) {
				list = append(list, a.arg)
			}
		}
	}
	return list
}
