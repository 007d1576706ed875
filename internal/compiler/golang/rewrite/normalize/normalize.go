// Package normalize rewrites functions on the resumable path in simpler Go,
// which closures and emit can handle: no loops over functions, no jumps back,
// no local types, and every call that leads to a point in a statement of its
// own, in the order in which the Go compiler evaluates (order.go).
package normalize

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"go/version"
	"maps"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// Functions returns the package with the functions of in rewritten so that
//
//   - each resumable call is a statement of its own, f(x) or a, b := f(x) or a,
//     b = f(x), after a line //cairn:call N;
//   - the places of points are lines //cairn:point N;
//   - loops around these range over something kept in a variable, by an index;
//   - the operands of deferred calls that are pending at such a place are
//     variables, after a line //cairn:defer N; one in a nested block sets
//     cairn_dN.
//
// Calls and points share one count in each top-level declaration, from 1;
// defers have their own.
func Functions(p *rewrite.Package, in rewrite.ResumablePath) (out *rewrite.Package, err error) {
	n := &normalizer{p: p, in: in, done: map[ast.Node]bool{}, names: map[string]bool{}, moved: map[*types.TypeName]bool{}}
	defer catch(&out, &err)
	n.noteNames()
	n.late()
	for _, f := range p.Files {
		n.findTypes(f)
	}
	text := map[string][]byte{}
	for _, f := range p.Files {
		s, changed := n.fileText(f)
		if !changed {
			continue
		}
		b, err := rewrite.Format(p.FileName(f), []byte(s))
		if err != nil {
			return nil, err
		}
		text[p.FileName(f)] = b
	}
	if err := n.complete(); err != nil {
		return nil, err
	}
	return p.With(text)
}

// catch makes a Refusal that was thrown the result of a pass.
func catch(out **rewrite.Package, err *error) {
	switch r := recover().(type) {
	case nil:
	case *rewrite.Refusal:
		*out, *err = nil, r
	default:
		panic(r)
	}
}

// noteNames notes the names that earlier passes have made.
func (n *normalizer) noteNames() {
	for _, f := range n.p.Files {
		ast.Inspect(f, func(m ast.Node) bool {
			if id, ok := m.(*ast.Ident); ok && strings.HasPrefix(id.Name, rewrite.Prefix) {
				n.names[id.Name] = true
			}
			return true
		})
	}
}

// normalizer is the state of Functions.
type normalizer struct {
	p         *rewrite.Package
	in        rewrite.ResumablePath
	done      map[ast.Node]bool        // calls and points that have been marked
	names     map[string]bool          // names with Prefix that are in use
	moved     map[*types.TypeName]bool // local types that move to package level
	values    map[*ast.CallExpr]bool   // calls that make method values from operands that may change
	before    map[*ast.CallExpr]bool   // calls that are made before these
	receivers map[token.Pos]bool       // closing parentheses of calls with ReceiverMark

	// The following fields are for the current file.
	file    *ast.File
	decls   []string          // declarations to add at its end
	imports map[string]string // names of added imports, by path

	// The following fields are for the current top-level declaration.
	top    ast.Node
	count  map[string]int // number of names of each kind
	defers int
	uses   map[*types.Var]*varUse
	within map[*ast.Ident]string // replacements of names in literals
}

// Marks get their numbers when the whole declaration is written.
const (
	markCall  = "//cairn:call \x00"
	markPoint = "//cairn:point \x00"
)

// refuse stops the pass with a Refusal.
func (n *normalizer) refuse(at token.Pos, remedy, reason string, args ...any) {
	panic(n.p.Refuse(at, remedy, reason, args...))
}

// fileText returns the new text of a file, and whether it has changed.
func (n *normalizer) fileText(f *ast.File) (string, bool) {
	n.file, n.decls, n.imports = f, nil, map[string]string{}
	changed := false
	s := n.p.Span(f.Name.End(), f.FileEnd, f, func(m ast.Node) (string, bool) {
		d, ok := m.(ast.Decl)
		if !ok || !n.touches(d) {
			return "", false
		}
		changed = true
		n.top, n.count, n.defers, n.uses = d, map[string]int{}, 0, nil
		var s string
		if fd, ok := d.(*ast.FuncDecl); ok && n.in.Funcs[fd] {
			s = n.function(fd, fd.Type, fd.Body)
		} else {
			s = n.literals(d)
		}
		return number(s), true
	})
	head := n.p.Text(f.FileStart, f.Name.End())
	for _, path := range slices.Sorted(maps.Keys(n.imports)) {
		head += fmt.Sprintf("\n\nimport %s %q\n", n.imports[path], path)
	}
	return head + s + strings.Join(n.decls, ""), changed
}

// touches reports whether a declaration has a function to rewrite.
func (n *normalizer) touches(d ast.Decl) bool {
	found := false
	ast.Inspect(d, func(m ast.Node) bool {
		found = found || m != nil && n.in.Funcs[m]
		return !found
	})
	return found
}

// number replaces the placeholders of marks by numbers.
func number(s string) string {
	var b strings.Builder
	parts := strings.Split(s, "\x00")
	for i, part := range parts {
		b.WriteString(part)
		if i+1 < len(parts) {
			fmt.Fprint(&b, i+1)
		}
	}
	return b.String()
}

// literals returns the text of a node that is not rewritten itself, in which
// its literals are rewritten.
func (n *normalizer) literals(m ast.Node) string {
	return n.p.NodeText(m, func(k ast.Node) (string, bool) {
		if l, ok := k.(*ast.FuncLit); ok && n.in.Funcs[l] {
			return n.function(l, l.Type, l.Body), true
		}
		if id, ok := k.(*ast.Ident); ok && n.within[id] != "" {
			return n.within[id], true
		}
		return "", false
	})
}

// function returns a function's new text.
func (n *normalizer) function(node ast.Node, typ *ast.FuncType, body *ast.BlockStmt) string {
	w := &funcNormalizer{normalizer: n, node: node, ftyp: typ, body: body, repl: map[ast.Expr]string{}, assigned: map[ast.Expr]bool{}, doubtful: map[ast.Expr]bool{}}
	if body == nil {
		n.refuse(node.Pos(), "give it one in Go", "a function without a body on the way to a point")
	}
	w.scan()
	if w.has(body) {
		w.early = w.earlyCopies()
	}
	text := w.inner(body.Lbrace+1, body.List, body.Rbrace)
	return n.p.Text(node.Pos(), body.Lbrace) + w.fill(under(w.head, text))
}

// under returns a block with lines before its text.
func under(top []string, text string) string {
	if len(top) == 0 {
		return "{" + text + "}"
	}
	s := "{\n" + strings.Join(top, "\n")
	if t := strings.TrimLeft(text, " \t\r"); !strings.HasPrefix(t, "\n") {
		s += "\n"
	}
	return s + text + "}"
}

// complete refuses calls and points that the pass did not reach.
func (n *normalizer) complete() error {
	var left []ast.Node
	for c, is := range n.in.Calls {
		if is && !n.done[c] {
			left = append(left, c)
		}
	}
	for s, is := range n.in.Points {
		if is && !n.done[s] {
			left = append(left, s)
		}
	}
	if len(left) == 0 {
		return nil
	}
	slices.SortFunc(left, func(a, b ast.Node) int { return int(a.Pos() - b.Pos()) })
	what := "a point"
	if _, ok := left[0].(*ast.CallExpr); ok {
		what = "a call on the way to a point"
	}
	return n.p.Refuse(left[0].Pos(), "put what it does into a function of its own", "%s stands where the program cannot resume", what)
}

// funcNormalizer rewrites one function.
type funcNormalizer struct {
	*normalizer
	node ast.Node
	ftyp *ast.FuncType
	body *ast.BlockStmt
	repl map[ast.Expr]string // replacements of expressions that were computed before
	head []string            // lines for the top of its body

	marks    []token.Pos       // positions of its calls and points
	early    map[ast.Expr]bool // see earlyCopies
	assigned map[ast.Expr]bool // elements that something is assigned to
	doubtful map[ast.Expr]bool // expressions that become part of an interface, copied or not
	jumps    *jumps
	loops    map[ast.Stmt]*loopDefers
}

// lines is text that grows.
type lines struct{ list []string }

func (o *lines) add(s ...string) { o.list = append(o.list, s...) }

func (o *lines) String() string { return strings.Join(o.list, "\n") }

// scan finds the marks, and refuses what cannot be resumed.
func (w *funcNormalizer) scan() {
	w.jumps = jumpsOf(w.p, w.node, w.in)
	for _, l := range w.jumps.labels {
		for _, g := range l.from {
			if w.jumps.back(l, g) && len(w.jumps.marks) > 0 {
				w.refuse(g.Pos(), "write it as a loop", "a goto back over a point, a call that leads to one, or a deferred call")
			}
		}
	}
	rewrite.InspectOwn(w.body, func(m ast.Node) bool {
		switch m := m.(type) {
		case *ast.CallExpr:
			if w.in.Calls[m] {
				w.marks = append(w.marks, m.Pos())
			}
		case ast.Stmt:
			if w.in.Points[m] {
				w.marks = append(w.marks, m.Pos())
			}
		}
		return true
	})
	ast.Inspect(w.body, func(m ast.Node) bool {
		l, ok := m.(*ast.FuncLit)
		if !ok {
			return true
		}
		if w.in.Funcs[l] {
			return false
		}
		rewrite.InspectOwn(l.Body, func(k ast.Node) bool {
			if c, ok := k.(*ast.CallExpr); ok && w.in.Calls[c] {
				w.refuse(c.Pos(), "make the literal a function of its own", "a call on the way to a point, in a function literal that cannot be resumed")
			}
			if s, ok := k.(ast.Stmt); ok && w.in.Points[s] {
				w.refuse(s.Pos(), "make the literal a function of its own", "a point in a function literal that cannot be resumed")
			}
			return true
		})
		return true
	})
}

// has reports whether a node contains a resumable call, or one that must be
// made before the rest of its statement.
func (w *funcNormalizer) has(m ast.Node) bool {
	found := false
	if isNil(m) {
		return false
	}
	rewrite.InspectOwn(m, func(k ast.Node) bool {
		if c, ok := k.(*ast.CallExpr); ok && (w.in.Calls[c] || w.before[c]) {
			found = true
		}
		return !found
	})
	return found
}

// busy reports whether a node contains a resumable call or a point.
func (w *funcNormalizer) busy(m ast.Node) bool {
	found := w.has(m)
	rewrite.InspectOwn(m, func(k ast.Node) bool {
		if s, ok := k.(ast.Stmt); ok && w.in.Points[s] {
			found = true
		}
		return !found
	})
	return found
}

// isNil reports whether a node is nil, also as a typed pointer.
func isNil(m ast.Node) bool {
	switch m := m.(type) {
	case nil:
		return true
	case *ast.BlockStmt:
		return m == nil
	}
	return false
}

// point writes the mark of a point.
func (w *funcNormalizer) point(o *lines, s ast.Stmt) {
	if w.in.Points[s] {
		w.done[s] = true
		o.add(markPoint)
	}
}

// name returns a new name: cairn_t1.
func (n *normalizer) name(kind string) string {
	for {
		n.count[kind]++
		s := fmt.Sprintf("%s%s%d", rewrite.Prefix, kind, n.count[kind])
		if !n.names[s] {
			return s
		}
	}
}

// loopNames returns new names of several kinds with the same number.
func (n *normalizer) loopNames(kinds ...string) []string {
	for {
		n.count["loop"]++
		var out []string
		for _, k := range kinds {
			s := fmt.Sprintf("%s%s%d", rewrite.Prefix, k, n.count["loop"])
			if !n.names[s] {
				out = append(out, s)
			}
		}
		if len(out) == len(kinds) {
			return out
		}
	}
}

// perIteration reports whether loop variables are new in each iteration.
func (n *normalizer) perIteration() bool {
	v := n.p.Info.FileVersions[n.file]
	if v == "" {
		v = n.p.GoVersion
	}
	return v == "" || version.Compare(v, "go1.22") >= 0
}

// predeclared refuses if a predeclared name has another meaning at a place.
func (n *normalizer) predeclared(name string, at token.Pos) {
	s := n.p.Types.Scope().Innermost(at)
	if s == nil {
		return
	}
	if _, o := s.LookupParent(name, at); o != types.Universe.Lookup(name) {
		n.refuse(at, "give it another name", "%s is declared by the program, and needed here as Go's own", name)
	}
}

// varUse says how a variable is used.
type varUse struct {
	owner    ast.Node // function that declares it
	assigned int      // number of assignments, without its declaration
	inside   bool     // assigned in a literal in its function
	taken    bool     // its address is taken
	value    bool     // its declaration gives it a value, or it is a parameter
	literal  bool     // its value is a function literal
}

// use returns how a variable is used in the current declaration.
func (n *normalizer) use(v *types.Var) *varUse {
	if n.uses == nil {
		n.uses = map[*types.Var]*varUse{}
		n.findUses(n.top, n.top)
	}
	if u := n.uses[v]; u != nil {
		return u
	}
	return &varUse{taken: true}
}

func (n *normalizer) findUses(root, owner ast.Node) {
	at := func(v *types.Var) *varUse {
		if n.uses[v] == nil {
			n.uses[v] = &varUse{}
		}
		return n.uses[v]
	}
	assign := func(e ast.Expr) {
		if id, ok := ast.Unparen(e).(*ast.Ident); ok {
			if v, ok := n.p.Info.Uses[id].(*types.Var); ok {
				u := at(v)
				u.assigned++
				u.inside = u.inside || u.owner != owner
			}
		}
	}
	ast.Inspect(root, func(m ast.Node) bool {
		switch m := m.(type) {
		case *ast.FuncLit:
			if m != root {
				n.findUses(m, m)
				return false
			}
		case *ast.Ident:
			if v, ok := n.p.Info.Defs[m].(*types.Var); ok {
				at(v).owner = owner
			}
		case *ast.Field:
			for _, id := range m.Names {
				if v, ok := n.p.Info.Defs[id].(*types.Var); ok {
					at(v).value = true
				}
			}
		case *ast.ValueSpec:
			for i, id := range m.Names {
				if v, ok := n.p.Info.Defs[id].(*types.Var); ok && len(m.Values) > 0 {
					at(v).value = true
					at(v).literal = i < len(m.Values) && rewrite.IsFuncLit(m.Values[i])
				}
			}
		case *ast.AssignStmt:
			for i, e := range m.Lhs {
				assign(e)
				if id, ok := e.(*ast.Ident); ok {
					if v, ok := n.p.Info.Defs[id].(*types.Var); ok {
						at(v).value = true
						at(v).literal = i < len(m.Rhs) && rewrite.IsFuncLit(m.Rhs[i])
					}
				}
			}
		case *ast.IncDecStmt:
			assign(m.X)
		case *ast.RangeStmt:
			if m.Tok == token.ASSIGN {
				for _, e := range []ast.Expr{m.Key, m.Value} {
					if e != nil {
						assign(e)
					}
				}
			} else {
				for _, e := range []ast.Expr{m.Key, m.Value} {
					if id, ok := e.(*ast.Ident); ok {
						if v, ok := n.p.Info.Defs[id].(*types.Var); ok {
							at(v).value = true
						}
					}
				}
			}
		}
		if v := n.p.Addressed(m); v != nil {
			at(v).taken = true
		}
		return true
	})
}
