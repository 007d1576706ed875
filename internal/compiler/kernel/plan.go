package kernel

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"maps"
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
// values of p. dims are the dimensions of the kernel.
func (p poly) distinct(dims [3]bool) bool {
	if p == nil {
		return false
	}
	width := poly{"": 1} // number of items in the lower dimensions
	for d, used := range dims {
		if !used {
			continue
		}
		id := string([]byte{'#', byte('0' + d)})
		var c poly
		c, p = p.split(id)
		if !c.equal(width) {
			return false
		}
		lo, hi := string([]byte{'l', 'o', byte('0' + d)}), string([]byte{'h', 'i', byte('0' + d)})
		width = width.mul(poly{hi: 1, lo: -1})
	}
	for k := range p {
		if strings.Contains(k, "#") {
			return false
		}
	}
	return true
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
	case *ast.CallExpr:
		if f.Info.Types[x.Fun].IsType() && k.bits == 64 {
			if from, ok := number(f.Info.TypeOf(x.Args[0])); ok && from.class == 'i' && (from.bits == 64 || from.signed) {
				return f.poly(x.Args[0])
			}
		}
	}
	return nil
}

// plan decides, after the first pass, where barriers are needed.
func (p *program) plan(k *Kernel) *plan {
	pl := &plan{writes: make(map[int]bool), private: make(map[int]bool), barrier: make(map[int]string)}
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
		same := true
		for _, r := range p.regions {
			for _, a := range r.accesses {
				if a.arg != i {
					continue
				}
				if form == nil {
					form = a.form
				}
				same = same && a.form.distinct(k.Dims) && a.form.equal(form)
			}
		}
		pl.private[i] = same && form != nil
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

// conflicts returns the arguments by which two regions depend on each other:
// one writes an element that another item may use in the other one.
func conflicts(r, s *region, dims [3]bool) (list []int) {
	for _, a := range r.accesses {
		for _, b := range s.accesses {
			if a.arg == b.arg && (a.write || b.write) && !(a.form.equal(b.form) && a.form.distinct(dims)) {
				list = append(list, a.arg)
			}
		}
	}
	return list
}
