package commcheck

import (
	"math/bits"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// entry is a value on one rank: a number (sym 0), a symbol (sym > 0), or
// anything (sym anySym). Two entries with the same symbol are the same value,
// on whatever ranks.
type entry struct {
	sym int32
	v   int64
}

const anySym = -1

var anything = entry{sym: anySym}

func num(v int64) entry      { return entry{v: v} }
func (e entry) known() bool  { return e.sym == 0 }
func (e entry) isAny() bool  { return e.sym == anySym }
func same(a, b entry) bool   { return a == b && !a.isAny() }
func differ(a, b entry) bool { return a.known() && b.known() && a != b }

func truth(b bool) entry {
	if b {
		return num(1)
	}
	return num(0)
}

// vec is a value on all ranks. It is never changed.
type vec []entry

func (a *analyzer) all(e entry) vec {
	v := make(vec, a.n)
	for i := range v {
		v[i] = e
	}
	return v
}

// term is what a symbol stands for: an operation on entries, or nothing (op 0).
type term struct {
	op   ir.Op
	x, y entry
}

// fresh makes a new symbol.
func (a *analyzer) fresh(assumed bool) entry {
	a.terms = append(a.terms, term{})
	a.assumed = append(a.assumed, assumed)
	return entry{sym: int32(len(a.terms) - 1)}
}

// mk returns the symbol for op on x and y, of which at least one is a symbol.
func (a *analyzer) mk(op ir.Op, x, y entry) entry {
	t := term{op, x, y}
	if s, ok := a.cons[t]; ok {
		return entry{sym: s}
	}
	a.terms = append(a.terms, t)
	a.assumed = append(a.assumed, x.sym > 0 && a.assumed[x.sym] || y.sym > 0 && a.assumed[y.sym])
	s := int32(len(a.terms) - 1)
	a.cons[t] = s
	return entry{sym: s}
}

// eval evaluates e in s for the live ranks. The other entries are anything.
func (a *analyzer) eval(e ir.Expr, s *state) vec {
	a.steps++
	switch e := e.(type) {
	case ir.Const:
		return a.all(num(e.Value))
	case ir.Ref:
		return a.load(e.Var, s)
	case ir.Rank:
		return a.commValue(a.group(e.Group, s), func(c *comm, r int) entry { return num(int64(c.rankOf[r])) })
	case ir.Size:
		return a.commValue(a.group(e.Group, s), func(c *comm, r int) entry { return num(int64(len(c.members[r]))) })
	case ir.Unary:
		x := a.eval(e.X, s)
		out := make(vec, a.n)
		for i := range out {
			out[i] = s.fact(a.unary(e.Op, x[i], s))
		}
		return out
	case ir.Binary:
		x, y := a.eval(e.X, s), a.eval(e.Y, s)
		out := make(vec, a.n)
		for i := range out {
			out[i] = s.fact(a.binary(e.Op, x[i], y[i], s))
		}
		return out
	case ir.Field:
		return a.field(e, s)
	case ir.Unknown:
		return a.opaque(e.Vars, s)
	}
	return a.all(anything)
}

// opaque returns the value of an expression of vars that cannot be evaluated.
func (a *analyzer) opaque(vars []*ir.Var, s *state) vec {
	if !a.uniform {
		return a.all(anything)
	}
	for _, v := range vars {
		x := a.load(v, s)
		var first entry
		for i, r := range s.live.list() {
			if i == 0 {
				first = x[r]
			}
			if !same(x[r], first) {
				return a.all(anything)
			}
		}
	}
	return a.all(a.fresh(true))
}

func (a *analyzer) load(v *ir.Var, s *state) vec {
	if v == nil {
		return a.all(anything)
	}
	if a.info.shared[v] {
		if a.uniform && !a.info.varied[v] {
			return a.all(a.fresh(true))
		}
		return a.all(anything)
	}
	if _, ok := a.info.index[v]; !ok || !v.Global && a.info.owner[v] != a.cur {
		return a.all(anything)
	}
	x := a.varOf(v, s.env, s)
	if x == nil {
		return a.all(anything)
	}
	if len(s.facts) == 0 {
		return x
	}
	out := make(vec, len(x))
	for r := range x {
		out[r] = s.fact(x[r])
	}
	return out
}

func (a *analyzer) commValue(cs []*comm, f func(*comm, int) entry) vec {
	out := make(vec, a.n)
	for r := range out {
		if c := cs[r]; c != nil && c.members != nil && c.members[r] != nil {
			out[r] = f(c, r)
		} else {
			out[r] = anything
		}
	}
	return out
}

func (a *analyzer) unary(op ir.Op, x entry, s *state) entry {
	if x.isAny() {
		return x
	}
	if x.known() {
		switch op {
		case ir.Not:
			return truth(x.v == 0)
		case ir.Neg:
			return num(-x.v)
		case ir.Inv:
			return num(^x.v)
		case ir.Len:
			if x.v >= 0 {
				return num(int64(bits.Len64(uint64(x.v))))
			}
		}
		return anything
	}
	if op == ir.Not {
		if t := a.terms[x.sym]; t.op == ir.Not && a.isBool(t.x) {
			return t.x
		}
	}
	if op != ir.Not && op != ir.Neg && op != ir.Inv && op != ir.Len {
		return anything
	}
	return a.mk(op, x, entry{})
}

// isBool reports whether x is known to be 0 or 1.
func (a *analyzer) isBool(x entry) bool {
	if x.sym <= 0 {
		return x.known() && (x.v == 0 || x.v == 1)
	}
	switch a.terms[x.sym].op {
	case ir.Eq, ir.Lt, ir.AndAlso, ir.OrElse, ir.Not:
		return true
	}
	return false
}

func (a *analyzer) not(x entry, s *state) entry { return s.fact(a.unary(ir.Not, x, s)) }

// cond converts x, the value of a condition, to 0 or 1.
func (a *analyzer) cond(x entry, s *state) entry {
	if x.known() {
		return truth(x.v != 0)
	}
	if x.isAny() || a.isBool(x) {
		return x
	}
	return a.not(s.fact(a.mk(ir.Eq, x, num(0))), s)
}

func (a *analyzer) binary(op ir.Op, x, y entry, s *state) entry {
	switch op {
	case ir.Ne:
		return a.not(s.fact(a.binary(ir.Eq, x, y, s)), s)
	case ir.Gt:
		return a.binary(ir.Lt, y, x, s)
	case ir.Ge:
		return a.not(s.fact(a.binary(ir.Lt, x, y, s)), s)
	case ir.Le:
		return a.not(s.fact(a.binary(ir.Lt, y, x, s)), s)
	case ir.AndAlso, ir.OrElse:
		x, y = a.cond(x, s), a.cond(y, s)
		stop := num(0) // the value of one operand that decides alone
		if op == ir.OrElse {
			stop = num(1)
		}
		switch {
		case x == stop || y == stop:
			return stop
		case x.known():
			return y
		case y.known():
			return x
		case x.isAny() || y.isAny():
			return anything
		case x == y:
			return x
		}
		return a.mk(op, x, y)
	}
	if x.isAny() || y.isAny() {
		return anything
	}
	if x.known() && y.known() {
		return fold(op, x.v, y.v)
	}
	if op == ir.Eq && (x == num(0) && a.refs[y.sym] || y == num(0) && a.refs[x.sym]) {
		return num(0) // the object exists, so the reference is not 0
	}
	if x == y {
		switch op {
		case ir.Sub, ir.Xor, ir.Lt:
			return num(0)
		case ir.Eq:
			return num(1)
		case ir.And, ir.Or:
			return x
		}
	}
	switch op {
	case ir.Add, ir.Mul, ir.And, ir.Or, ir.Xor, ir.Eq:
		if y.sym < x.sym || y.sym == x.sym && y.v < x.v {
			x, y = y, x
		}
	case ir.Sub, ir.Div, ir.Rem, ir.Shl, ir.Shr, ir.Lt, ir.Wrap:
	default:
		return anything
	}
	return a.mk(op, x, y)
}

func fold(op ir.Op, x, y int64) entry {
	switch op {
	case ir.Add:
		return num(x + y)
	case ir.Sub:
		return num(x - y)
	case ir.Mul:
		return num(x * y)
	case ir.Div, ir.Rem:
		if y == 0 {
			return anything
		}
		if op == ir.Div {
			return num(x / y)
		}
		return num(x % y)
	case ir.And:
		return num(x & y)
	case ir.Or:
		return num(x | y)
	case ir.Xor:
		return num(x ^ y)
	case ir.Shl, ir.Shr:
		if y < 0 || y > 62 {
			return anything
		}
		if op == ir.Shl {
			return num(x << uint(y))
		}
		return num(x >> uint(y))
	case ir.Eq:
		return truth(x == y)
	case ir.Lt:
		return truth(x < y)
	case ir.Wrap:
		switch {
		case y == 64 && x >= 0, y == -64:
			return num(x)
		case y > 0 && y < 64:
			return num(x & (1<<uint(y) - 1))
		case y < 0 && y > -64:
			return num(x << uint(64+y) >> uint(64+y))
		}
	}
	return anything
}

// assume records in s that the symbol c, which is 0 or 1, has the value v.
func (a *analyzer) assume(s *state, c entry, v int64) {
	if c.sym <= 0 {
		return
	}
	s.setFact(c.sym, v)
	t := a.terms[c.sym]
	switch {
	case t.op == ir.Not && a.isBool(t.x):
		a.assume(s, t.x, 1-v)
	case t.op == ir.AndAlso && v == 1, t.op == ir.OrElse && v == 0:
		a.assume(s, t.x, v)
		a.assume(s, t.y, v)
	}
}
