package emit

import (
	"go/ast"
	"go/token"
	"go/types"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
	"golang.org/x/tools/go/cfg"
)

// liveness holds the variables of a function that are read after its marks.
type liveness struct {
	p    *rewrite.Package
	own  rewrite.Vars              // variables that the function declares, without those of its literals
	held rewrite.Vars              // variables that are captured, or whose address is taken: they may be read wherever they are in scope
	at   map[ast.Stmt]rewrite.Vars // live variables, by the empty statements that stand for marks

	// received holds the assignments of select clauses, by the statement and by
	// the first expression on its left. The control-flow graph has the
	// statements of all clauses where the select begins, and that expression
	// where its clause begins.
	received map[ast.Node]*ast.AssignStmt
}

// findLive analyses a function's body, into which marks were inserted as empty
// statements.
func findLive(p *rewrite.Package, fn *function) *liveness {
	l := &liveness{p: p, own: rewrite.Vars{}, held: rewrite.Vars{}, at: map[ast.Stmt]rewrite.Vars{}, received: map[ast.Node]*ast.AssignStmt{}}
	l.declared(fn)
	l.taken(fn)
	if fn.recovers { // what a panic leaves in them is returned
		for _, v := range fn.results {
			l.held[v] = true
		}
	}
	g := cfg.New(fn.body, func(call *ast.CallExpr) bool { return true })
	in := make([]rewrite.Vars, len(g.Blocks))
	out := make([]rewrite.Vars, len(g.Blocks))
	for changed := true; changed; {
		changed = false
		for i := len(g.Blocks) - 1; i >= 0; i-- {
			b := g.Blocks[i]
			now := rewrite.Vars{}
			for _, s := range b.Succs {
				for v := range in[s.Index] {
					now[v] = true
				}
			}
			if len(now) == len(out[i]) && in[i] != nil {
				continue
			}
			out[i] = now
			set := rewrite.Vars{}
			for v := range now {
				set[v] = true
			}
			for j := len(b.Nodes) - 1; j >= 0; j-- {
				l.step(fn, b.Nodes[j], set)
			}
			in[i] = set
			changed = true
		}
	}
	for i, b := range g.Blocks {
		set := rewrite.Vars{}
		for v := range out[i] {
			set[v] = true
		}
		for j := len(b.Nodes) - 1; j >= 0; j-- {
			if s, ok := b.Nodes[j].(*ast.EmptyStmt); ok {
				at := rewrite.Vars{}
				for v := range set {
					at[v] = true
				}
				l.at[s] = at
			}
			l.step(fn, b.Nodes[j], set)
		}
	}
	return l
}

// declared finds the function's variables.
func (l *liveness) declared(fn *function) {
	for _, v := range fn.params {
		l.own[v] = true
	}
	for _, v := range fn.results {
		l.own[v] = true
	}
	ast.Inspect(fn.body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.Ident:
			if v, ok := l.p.Info.Defs[n].(*types.Var); ok && !v.IsField() {
				l.own[v] = true
			}
		case *ast.CaseClause:
			if v, ok := l.p.Info.Implicits[n].(*types.Var); ok {
				l.own[v] = true
			}
		case *ast.CommClause:
			if a, ok := n.Comm.(*ast.AssignStmt); ok {
				l.received[a], l.received[a.Lhs[0]] = a, a
			}
		}
		return true
	})
}

// taken finds variables that can be accessed without their names.
func (l *liveness) taken(fn *function) {
	ast.Inspect(fn.body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			ast.Inspect(n.Body, func(m ast.Node) bool {
				if id, ok := m.(*ast.Ident); ok {
					if v, ok := l.p.Info.Uses[id].(*types.Var); ok && l.own[v] {
						l.held[v] = true
					}
				}
				return true
			})
			return false
		default:
			if v := l.p.Addressed(n); v != nil && l.own[v] {
				l.held[v] = true
			}
		}
		return true
	})
}

// step updates the live variables backwards over a node of the control-flow
// graph.
func (l *liveness) step(fn *function, n ast.Node, set rewrite.Vars) {
	kill := func(e ast.Expr) bool {
		id, ok := e.(*ast.Ident)
		if !ok {
			return false
		}
		if v, ok := l.p.Info.ObjectOf(id).(*types.Var); ok {
			delete(set, v)
		}
		return true
	}
	if a := l.received[n]; a != nil {
		if n == ast.Node(a) { // the clause need not be taken
			l.read(a.Rhs[0], set)
			return
		}
		for _, e := range a.Lhs {
			kill(e)
		}
		for _, e := range a.Lhs {
			if _, ok := e.(*ast.Ident); !ok {
				l.read(e, set)
			}
		}
		return
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok == token.ASSIGN || n.Tok == token.DEFINE {
			// Operands on the left are evaluated before any assignment: a[x], x
			// = 1, 2.
			var others []ast.Expr
			for _, e := range n.Lhs {
				if !kill(e) {
					others = append(others, e)
				}
			}
			for _, e := range others {
				l.read(e, set)
			}
		} else {
			for _, e := range n.Lhs {
				l.read(e, set)
			}
		}
		for _, e := range n.Rhs {
			l.read(e, set)
		}
	case *ast.ValueSpec:
		for _, id := range n.Names {
			kill(id)
		}
		for _, e := range n.Values {
			l.read(e, set)
		}
	case *ast.ReturnStmt:
		if len(n.Results) == 0 {
			for _, v := range fn.results {
				set[v] = true
			}
		}
		l.read(n, set)
	case *ast.EmptyStmt:
	default:
		l.read(n, set)
	}
}

// read adds the variables that a node reads.
func (l *liveness) read(n ast.Node, set rewrite.Vars) {
	ast.Inspect(n, func(m ast.Node) bool {
		if id, ok := m.(*ast.Ident); ok {
			if v, ok := l.p.Info.Uses[id].(*types.Var); ok && l.own[v] {
				set[v] = true
			}
		}
		return true
	})
}
