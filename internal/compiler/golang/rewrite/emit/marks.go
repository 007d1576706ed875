package emit

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// function is a function that is rewritten.
type function struct {
	file     *ast.File
	node     ast.Node // *ast.FuncDecl or *ast.FuncLit
	typ      *ast.FuncType
	body     *ast.BlockStmt
	name     string // name of its frame: Grid_sweep, run_func1
	outer    *function
	tparams  []*types.TypeParam
	params   []*types.Var   // including the receiver
	results  []*types.Var   // named results
	recovers bool           // it has deferred calls
	fast     bool           // it has a fast path; see fastpath.go
	waiter   bool           // it looks up the control block; see bare_wait.go
	rests    map[*mark]bool // points after which a separate function can run the next iterations
	marks    []*mark
	fields   []*field
	byVar    map[*types.Var]*field
	boxed    rewrite.Vars
	again    map[*types.Var]ast.Stmt // local closures, and the statements that assign them
	lits     int
	records  map[*ast.DeferStmt]*record // deferred calls in loops
	outlined string                     // text of the functions that continue from its frames
}

// mark is a place where a function's frame may be saved.
type mark struct {
	n       int
	call    bool // it is a call that leads to a point; otherwise a point
	comment *ast.Comment
	path    []step
	empty   *ast.EmptyStmt // stands for it in the control-flow graph
	saved   []*types.Var
	needed  rewrite.Vars // variables that the code after it names
}

// step is a list of statements on the path from a function's body to a mark.
type step struct {
	owner ast.Node // *ast.BlockStmt, *ast.CaseClause, *ast.CommClause
	list  []ast.Stmt
	i     int       // index of the statement that contains the mark, or that follows it
	end   token.Pos // end of the list
}

// field is a variable in a frame.
type field struct {
	v    *types.Var
	name string
}

// lists returns the owners of the lists of statements directly in a statement.
func lists(s ast.Stmt) []ast.Node {
	var out []ast.Node
	clauses := func(b *ast.BlockStmt) {
		for _, c := range b.List {
			out = append(out, c)
		}
	}
	switch s := s.(type) {
	case *ast.BlockStmt:
		out = append(out, s)
	case *ast.LabeledStmt:
		return lists(s.Stmt)
	case *ast.IfStmt:
		out = append(out, s.Body)
		if s.Else != nil {
			out = append(out, lists(s.Else)...)
		}
	case *ast.ForStmt:
		out = append(out, s.Body)
	case *ast.RangeStmt:
		out = append(out, s.Body)
	case *ast.SwitchStmt:
		clauses(s.Body)
	case *ast.TypeSwitchStmt:
		clauses(s.Body)
	case *ast.SelectStmt:
		clauses(s.Body)
	}
	return out
}

// where returns the path to a position in a function.
func where(owner ast.Node, end, pos token.Pos, path []step) []step {
	st := step{owner: owner, list: *rewrite.StmtList(owner), end: end}
	for st.i < len(st.list) && st.list[st.i].Pos() < pos {
		s := st.list[st.i]
		if pos < s.End() || st.i+1 == len(st.list) {
			for _, o := range lists(s) {
				var last token.Pos
				if b, ok := o.(*ast.BlockStmt); ok {
					last = b.Rbrace
				} else {
					last = clauseEnd(s, o)
				}
				if o.Pos() <= pos && pos < last {
					return where(o, last, pos, append(path, st))
				}
			}
		}
		st.i++
	}
	return append(path, st)
}

// clauseEnd returns where the next clause begins, or the end of the statement.
func clauseEnd(s ast.Stmt, clause ast.Node) token.Pos {
	var b *ast.BlockStmt
	for {
		l, ok := s.(*ast.LabeledStmt)
		if !ok {
			break
		}
		s = l.Stmt
	}
	switch s := s.(type) {
	case *ast.SwitchStmt:
		b = s.Body
	case *ast.TypeSwitchStmt:
		b = s.Body
	case *ast.SelectStmt:
		b = s.Body
	default:
		return clause.End()
	}
	i := slices.IndexFunc(b.List, func(c ast.Stmt) bool { return ast.Node(c) == clause })
	if i >= 0 && i+1 < len(b.List) {
		return b.List[i+1].Pos()
	}
	return b.Rbrace
}

// markedFuncs finds the functions of a file that have marks.
func markedFuncs(p *rewrite.Package, f *ast.File) ([]*function, error) {
	var all []*function
	var open func(n ast.Node, outer *function) error
	open = func(n ast.Node, outer *function) error {
		fn := &function{file: f, node: n, outer: outer, byVar: map[*types.Var]*field{}, boxed: rewrite.Vars{}, again: map[*types.Var]ast.Stmt{}}
		var sig *types.Signature
		switch n := n.(type) {
		case *ast.FuncDecl:
			fn.typ, fn.body, fn.name = n.Type, n.Body, n.Name.Name
			sig = p.Info.Defs[n.Name].(*types.Func).Signature()
			if r := sig.Recv(); r != nil {
				fn.params = append(fn.params, r)
				t := r.Type()
				if q, ok := t.(*types.Pointer); ok {
					t = q.Elem()
				}
				if q, ok := t.(*types.Named); ok {
					fn.name = q.Obj().Name() + "_" + fn.name
				}
			}
			tps := sig.TypeParams()
			if tps.Len() == 0 {
				tps = sig.RecvTypeParams()
			}
			for i := range tps.Len() {
				fn.tparams = append(fn.tparams, tps.At(i))
			}
		case *ast.FuncLit:
			fn.typ, fn.body = n.Type, n.Body
			top := outer
			for top.outer != nil {
				top = top.outer
			}
			top.lits++
			fn.name = fmt.Sprintf("%s_func%d", top.name, top.lits)
			sig = p.Info.TypeOf(n).(*types.Signature)
			fn.tparams = top.tparams
		}
		for v := range sig.Params().Variables() {
			if v.Name() != "" && v.Name() != "_" {
				fn.params = append(fn.params, v)
			}
		}
		for v := range sig.Results().Variables() {
			if v.Name() != "" && v.Name() != "_" {
				fn.results = append(fn.results, v)
			}
		}
		var err error
		ast.Inspect(fn.body, func(m ast.Node) bool {
			switch m := m.(type) {
			case *ast.FuncLit:
				if e := open(m, fn); err == nil {
					err = e
				}
				return false
			case *ast.DeferStmt:
				fn.recovers = true
			}
			return true
		})
		all = append(all, fn)
		return err
	}
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
			if err := open(d, nil); err != nil {
				return nil, err
			}
		}
	}
	for _, g := range f.Comments {
		for _, c := range g.List {
			word, rest, _ := strings.Cut(strings.TrimPrefix(c.Text, "//cairn:"), " ")
			if word != "call" && word != "point" || !strings.HasPrefix(c.Text, "//cairn:") {
				continue
			}
			n, err := strconv.Atoi(strings.TrimSpace(rest))
			if err != nil {
				continue // written by the user, for the choice of loops
			}
			var in *function
			for _, fn := range all {
				if fn.body.Lbrace < c.Pos() && c.Pos() < fn.body.Rbrace && (in == nil || in.body.Lbrace < fn.body.Lbrace) {
					in = fn
				}
			}
			if in == nil {
				return nil, p.Refuse(c.Pos(), "", "internal: a mark outside of functions")
			}
			m := &mark{n: n, call: word == "call", comment: c, needed: rewrite.Vars{}}
			m.path = where(in.body, in.body.Rbrace, c.Pos(), nil)
			in.marks = append(in.marks, m)
		}
	}
	// Functions without marks are not rewritten.
	return slices.DeleteFunc(all, func(fn *function) bool { return len(fn.marks) == 0 }), nil
}

// last returns the step that contains a mark.
func (m *mark) last() *step { return &m.path[len(m.path)-1] }

// stmt returns the statement with the call of a mark.
func (m *mark) stmt() ast.Stmt {
	s := m.last()
	if s.i >= len(s.list) {
		return nil
	}
	return s.list[s.i]
}

// withMarks runs f while empty statements stand at the marks: before a point,
// and after a call.
func (fn *function) withMarks(f func()) {
	type put struct {
		at  *[]ast.Stmt
		was []ast.Stmt
	}
	var undo []put
	byOwner := map[ast.Node][]*mark{}
	var owners []ast.Node
	for _, m := range fn.marks {
		o := m.last().owner
		if byOwner[o] == nil {
			owners = append(owners, o)
		}
		byOwner[o] = append(byOwner[o], m)
		m.empty = &ast.EmptyStmt{Semicolon: m.comment.Pos(), Implicit: true}
	}
	for _, o := range owners {
		at := rewrite.StmtList(o)
		undo = append(undo, put{at, *at})
		var out []ast.Stmt
		for i := 0; i <= len(*at); i++ {
			for _, m := range byOwner[o] {
				if !m.call && m.last().i == i {
					out = append(out, m.empty)
				}
			}
			if i == len(*at) {
				break
			}
			out = append(out, (*at)[i])
			for _, m := range byOwner[o] {
				if m.call && m.last().i == i {
					out = append(out, m.empty)
				}
			}
		}
		*at = out
	}
	f()
	for _, u := range undo {
		*u.at = u.was
	}
}
