package divide

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
)

// assigned returns the variables that a node may set.
func (x *iteration) assigned(n ast.Node) (list []types.Object) {
	fn := x.top().fn
	add := func(fn *callgraph.Function, n ast.Node) {
		for _, w := range writes(fn, n) {
			if w.obj != nil {
				list = append(list, w.obj)
			}
		}
	}
	add(fn, n)
	for _, to := range x.d.reach(x.called(fn, n)) {
		if _, ok := to.Node.(*ast.FuncDecl); !ok { // it may set variables of the functions around it
			add(to, to.Body)
		}
	}
	return list
}

func forgetAll(list []types.Object, st *state) {
	for _, o := range list {
		st.env[o] = value{}
	}
}

// body follows the body of a loop. It returns the states at its end, also by
// continue statements, and at break statements.
func (x *iteration) body(b *ast.BlockStmt, st *state) (end, breaks []*state) {
	f := x.top()
	l := &loopExits{}
	f.loops = append(f.loops, l)
	end = x.block(b.List, []*state{st})
	f.loops = f.loops[:len(f.loops)-1]
	return append(end, l.continues...), l.breaks
}

// common returns what was overwritten in all states.
func common(sts []*state) map[string]bool {
	if len(sts) == 0 {
		return nil
	}
	out := maps.Clone(sts[0].written)
	for _, st := range sts[1:] {
		maps.DeleteFunc(out, func(k string, _ bool) bool { return !st.written[k] })
	}
	return out
}

func (x *iteration) forStmt(s *ast.ForStmt, st *state) []*state {
	if s.Init != nil {
		sts := merge(x.stmt(s.Init, st))
		if len(sts) != 1 {
			return x.opaqueStmt(s, st)
		}
		st = sts[0]
	}
	return x.loop(s, s.Body, func(st *state) {
		if s.Cond != nil {
			x.eval(s.Cond, st)
		}
	}, s.Post, st)
}

// loop follows a loop about which nothing is known: its body may run any number
// of times.
func (x *iteration) loop(s ast.Stmt, b *ast.BlockStmt, head func(*state), post ast.Stmt, st *state) []*state {
	forgetAll(x.assigned(s), st)
	in := st.clone()
	if head != nil {
		head(in)
	}
	end, _ := x.body(b, in)
	if post != nil {
		for _, st := range merge(end) {
			x.stmt(post, st)
		}
	}
	return []*state{st}
}

// rangeStmt follows a loop over all elements of a path. It follows the first
// step, and then another one. What all steps overwrite in their element is
// overwritten in all elements when the loop has ended.
func (x *iteration) rangeStmt(s *ast.RangeStmt, st *state) []*state {
	over := x.eval(s.X, st)
	generic := func() []*state { return x.loop(s, s.Body, nil, nil, st) }
	if x.d.g.ByNode[s] != nil {
		return x.opaqueStmt(s, st)
	}
	if over.kind != aPath || over.part || s.Tok == token.ASSIGN {
		return generic()
	}
	isMap := false
	switch u := deref(x.typeOf(s.X)).Underlying().(type) {
	case *types.Slice, *types.Array:
	case *types.Map:
		isMap = true
	default:
		_ = u
		return generic()
	}
	if x.elems[typeKey(elemType(deref(x.typeOf(s.X))))] {
		return generic()
	}
	set := x.assigned(s)
	step := func(st *state, first bool) (id string, end, breaks []*state) {
		x.ids++
		id = fmt.Sprintf("[#%d]", x.ids)
		if e, ok := s.Key.(*ast.Ident); ok {
			k := value{loop: over.path.key(), step: id}
			switch {
			case isMap:
			case first:
				k.kind, k.c = aConstant, constant.MakeInt64(0)
			default:
				k.kind = nonZero
			}
			x.set(e, k, st)
		}
		if e, ok := s.Value.(*ast.Ident); ok {
			p := over.path
			p.text += id
			x.set(e, value{kind: aPath, path: p}, st)
		}
		end, breaks = x.body(s.Body, st)
		return id, end, breaks
	}
	empty := !slices.Contains(x.over, over.path.key())
	before := st.clone()
	x.over = append(x.over, over.path.key())
	first := st.clone()
	id1, end1, breaks := step(first, true)
	written := before.written
	if !empty {
		written = common(end1)
	}
	all := map[string]bool{}
	if len(end1) > 0 {
		next := &state{merge(end1)[0].clone().env, common(end1)}
		for _, st := range merge(end1) {
			next.join(st)
		}
		forgetAll(set, next)
		id2, end2, more := step(next, false)
		breaks = append(breaks, more...)
		one, two := common(end1), common(end2)
		for k := range one {
			if g := strings.ReplaceAll(k, id1, "[*]"); g != k && (len(end2) == 0 || two[strings.ReplaceAll(k, id1, id2)]) {
				all[g] = true
			}
		}
		if len(end2) == 0 {
			clear(all) // the second step never ends
		}
	}
	x.over = x.over[:len(x.over)-1]
	var out []*state
	if empty || len(end1) > 0 {
		exit := before.clone()
		exit.written = maps.Clone(written)
		if exit.written == nil {
			exit.written = map[string]bool{}
		}
		maps.Copy(exit.written, all)
		forgetAll(set, exit)
		out = append(out, exit)
	}
	for _, b := range breaks {
		forgetAll(set, b)
		out = append(out, b)
	}
	return merge(out)
}

func (x *iteration) switchStmt(s *ast.SwitchStmt, st *state) []*state {
	through := false
	ast.Inspect(s, func(n ast.Node) bool {
		b, ok := n.(*ast.BranchStmt)
		through = through || ok && b.Tok == token.FALLTHROUGH
		return true
	})
	if through {
		return x.opaqueStmt(s, st)
	}
	if s.Init != nil {
		sts := merge(x.stmt(s.Init, st))
		if len(sts) != 1 {
			return x.opaqueStmt(s, st)
		}
		st = sts[0]
	}
	if s.Tag != nil {
		x.eval(s.Tag, st)
	}
	f := x.top()
	l := &loopExits{isSwitch: true}
	f.loops = append(f.loops, l)
	var out []*state
	chosen := false
	for _, c := range s.Body.List {
		c := c.(*ast.CaseClause)
		in := st.clone()
		for _, e := range c.List {
			x.eval(e, in)
		}
		chosen = chosen || c.List == nil
		out = append(out, x.block(c.Body, []*state{in})...)
	}
	f.loops = f.loops[:len(f.loops)-1]
	if !chosen {
		out = append(out, st)
	}
	return merge(append(out, l.breaks...))
}
