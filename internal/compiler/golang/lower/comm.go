package lower

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// collectives are the functions of mpi that all ranks call, with the index of
// the root argument (-1 if there is none) and of the argument that is written.
var collectives = map[string]struct{ root, written int }{
	"Allgather": {-1, 2}, "Allgatherv": {-1, 2}, "Allreduce": {-1, 2}, "Alltoall": {-1, 2}, "Alltoallv": {-1, 4},
	"Bcast": {2, 1}, "Exscan": {-1, 2}, "Gather": {3, 2}, "Gatherv": {5, 2}, "Reduce": {4, 2}, "ReduceScatter": {-1, 2},
	"Scan": {-1, 2}, "Scatter": {3, 2}, "Scatterv": {5, 4},
}

// requests are the places where requests are put into one slice.
type requests struct{ sites []*requestSite }

type requestSite struct {
	call *ast.CallExpr
	v    *ir.Var // nil in a loop, where one variable stands for all requests
	comm ast.Expr
}

// startsRequest reports whether a call starts a send or a receive.
func startsRequest(s *load.Package, call *ast.CallExpr) bool {
	obj, ok := load.Callee(s, call).(*types.Func)
	return ok && obj.Pkg() != nil && obj.Pkg().Path() == load.MPIPath && (operation(obj) == "Isend" || operation(obj) == "Irecv")
}

// operation returns the name of a function of mpi. Functions for arrays on
// devices have the name of those for slices with "Array" at the end, and the
// same arguments.
func operation(obj *types.Func) string { return strings.TrimSuffix(obj.Name(), "Array") }

// collectRequests finds the calls in a body that start requests which go to a
// slice.
func (f *fn) collectRequests(body *ast.BlockStmt) {
	loops := 0
	var walk func(n ast.Node) bool
	inLoop := func(body *ast.BlockStmt) bool {
		loops++
		ast.Inspect(body, walk)
		loops--
		return false
	}
	walk = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ForStmt:
			return inLoop(n.Body)
		case *ast.RangeStmt:
			return inLoop(n.Body)
		case *ast.AssignStmt:
			for i, e := range n.Lhs {
				if i >= len(n.Rhs) || len(n.Lhs) != len(n.Rhs) {
					break
				}
				if x, ok := e.(*ast.IndexExpr); ok {
					e = x.X
				}
				id, ok := e.(*ast.Ident)
				if !ok {
					continue
				}
				obj := f.s.Info.ObjectOf(id)
				if obj == nil {
					continue
				}
				if _, ok := obj.Type().Underlying().(*types.Slice); !ok {
					if _, ok := obj.Type().Underlying().(*types.Array); !ok {
						continue
					}
				}
				f.requestsIn(obj, n.Rhs[i], loops > 0)
			}
		}
		return true
	}
	ast.Inspect(body, walk)
}

func (f *fn) requestsIn(obj types.Object, e ast.Expr, loop bool) {
	list := []ast.Expr{e}
	switch x := ast.Unparen(e).(type) {
	case *ast.CallExpr:
		if b, ok := load.Callee(f.s, x).(*types.Builtin); ok && b.Name() == "append" {
			list = x.Args
		}
	case *ast.CompositeLit:
		list = x.Elts
	}
	for _, e := range list {
		call, ok := ast.Unparen(e).(*ast.CallExpr)
		if !ok || !startsRequest(f.s, call) || len(call.Args) == 0 {
			continue
		}
		site := &requestSite{call: call, comm: call.Args[0]}
		if !loop {
			site.v = f.temp("request")
		}
		r := f.requests[obj]
		if r == nil {
			r = new(requests)
			f.requests[obj] = r
		}
		r.sites = append(r.sites, site)
	}
}

// startRequest lowers a call that starts a request, which goes to lhs. It
// returns false if e is no such call.
func (f *fn) startRequest(e, lhs ast.Expr) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	return ok && startsRequest(f.s, call) && f.call(call, []*ir.Var{f.dst(lhs)})
}

// written returns the variable that stands for the contents of a buffer.
func (f *fn) written(e ast.Expr) *ir.Var {
	e = ast.Unparen(e)
	if s, ok := e.(*ast.SliceExpr); ok {
		e = s.X
	}
	if v := f.exclusive(e); v != nil {
		return v
	}
	return f.element(e)
}

// mpi lowers a call that communicates. It returns false for others.
func (f *fn) mpi(call *ast.CallExpr, obj *types.Func, dst []*ir.Var) bool {
	n := f.callCount
	c := &ir.Comm{Pos: f.pos(call.Pos()), Name: "mpi." + obj.Name()}
	args := make([]ir.Expr, len(call.Args))
	values := func() {
		for i, e := range call.Args {
			args[i] = f.value(e)
		}
		if f.callCount == n {
			c.Reads = f.reads(call)
		}
	}
	status := func(i int) {
		if i < len(dst) && dst[i] != nil {
			c.Status = append(c.Status, dst[i])
		}
	}
	var recv ast.Expr
	if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && f.s.Info.Selections[sel] != nil {
		recv = sel.X
	}
	name := operation(obj)
	array := name != obj.Name()
	if recv != nil {
		return f.commMethod(c, recv, name, values, status, args)
	}
	switch name {
	case "Send", "Recv", "Isend", "Irecv":
		values()
		c.Group, c.Peer, c.Tag = args[0], args[2], args[3]
		switch name {
		case "Send":
			c.Kind = ir.Send
		case "Recv":
			c.Kind = ir.Recv
			status(0)
			c.Status = append(c.Status, f.written(call.Args[1]))
		default:
			c.Kind = ir.StartSend
			if name == "Irecv" {
				c.Kind = ir.StartRecv
				c.Status = append(c.Status, f.written(call.Args[1]))
			}
			c.Request = f.requestOf(call, dst)
		}
		f.emitCall(c)
		return true
	case "Sendrecv":
		values()
		c.Kind, c.Group, c.Peer, c.Tag = ir.Sendrecv, args[0], args[2], args[3]
		f.emitCall(c)
		r := &ir.Comm{Pos: c.Pos, Name: c.Name, Kind: ir.Recv, Group: args[0], Peer: args[5], Tag: args[6]}
		if len(dst) > 0 && dst[0] != nil {
			r.Status = append(r.Status, dst[0])
		}
		r.Status = append(r.Status, f.written(call.Args[4]))
		f.emitUncounted(r)
		return true
	case "WaitAll":
		values()
		f.waitAll(c, call)
		return true
	case "WaitAny", "TestAny", "TestAll":
		values()
		c.Kind, c.Request = ir.Wait, f.temp("some request")
		status(0)
		status(1)
		f.emitCall(c)
		return true
	}
	k, ok := collectives[name]
	if !ok || len(args) <= max(k.root, k.written) {
		return false
	}
	values()
	c.Kind, c.Group = ir.Collective, args[0]
	if k.root >= 0 {
		c.Peer = args[k.root]
	}
	w := ast.Unparen(call.Args[k.written])
	if s, ok := w.(*ast.SliceExpr); ok {
		w = s.X
	}
	switch name {
	case "Allgather", "Allgatherv", "Allreduce", "Bcast":
		if !array && f.exclusive(w) != nil && !f.splits && !f.writtenAgain(w) {
			f.emitCall(c)
			f.markUniform(w.(*ast.Ident))
			return true
		}
	}
	c.Status = append(c.Status, f.written(w))
	f.emitCall(c)
	return true
}

// writtenAgain reports whether the rest of the list writes to a buffer again.
func (f *fn) writtenAgain(e ast.Expr) (found bool) {
	obj := f.s.Info.ObjectOf(e.(*ast.Ident))
	is := func(e ast.Expr) bool {
		id, ok := ast.Unparen(e).(*ast.Ident)
		return ok && f.s.Info.ObjectOf(id) == obj
	}
	for _, s := range f.rest {
		ast.Inspect(s, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, l := range n.Lhs {
					if x, ok := ast.Unparen(l).(*ast.IndexExpr); ok {
						l = x.X
					}
					found = found || is(l)
				}
			case *ast.IncDecStmt:
				if x, ok := ast.Unparen(n.X).(*ast.IndexExpr); ok {
					found = found || is(x.X)
				}
			case *ast.CallExpr:
				if load.CalleePackage(f.s, n) == load.MPIPath {
					for _, a := range n.Args {
						if x, ok := ast.Unparen(a).(*ast.SliceExpr); ok {
							a = x.X
						}
						found = found || is(a)
					}
				}
			}
			return !found
		})
	}
	return found
}

// markUniform records that a buffer now holds the same on all ranks. The buffer
// gets a new variable until the end of the list: its old contents may differ
// between ranks, and package commcheck has one value per variable.
func (f *fn) markUniform(id *ast.Ident) {
	obj := f.s.Info.ObjectOf(id)
	if f.renamed == nil {
		f.renamed = make(map[types.Object]*ir.Var)
	}
	if f.renamed[obj] == nil {
		f.renamed[obj] = f.variable(obj)
	}
	v := f.temp(obj.Name())
	f.vars[obj] = v
	f.emitUncounted(&ir.Assign{Pos: f.pos(id.Pos()), Dst: []*ir.Var{v}, Src: []ir.Expr{ir.Unknown{}}})
}

// commMethod lowers methods of communicators and requests.
func (f *fn) commMethod(c *ir.Comm, recv ast.Expr, name string, values func(), status func(int), args []ir.Expr) bool {
	if !isComm(f.s.Info.TypeOf(recv)) {
		if name != "Wait" && name != "Test" {
			return false
		}
		f.value(recv)
		values()
		c.Kind = ir.Wait
		c.Request = f.temp("some request")
		if id, ok := ast.Unparen(recv).(*ast.Ident); ok && name == "Wait" {
			c.Request = f.variable(f.s.Info.ObjectOf(id))
		}
		status(0)
		if name == "Test" {
			status(1)
		}
		f.emitCall(c)
		return true
	}
	switch name {
	case "Barrier", "Dup", "Split":
		c.Kind = ir.Collective
	case "Probe", "Iprobe":
		c.Kind = ir.Probe
	default:
		return false
	}
	c.Group = f.value(recv)
	values()
	switch name {
	case "Dup":
		status(0)
	case "Split":
		c.Peer, c.Tag = args[0], args[1]
		status(0)
	case "Probe", "Iprobe":
		c.Peer, c.Tag = args[0], args[1]
		status(0)
		if name == "Iprobe" {
			status(1)
		}
	}
	f.emitCall(c)
	return true
}

// requestOf returns the variable of a request: the one that it is assigned to,
// if that is a plain variable.
func (f *fn) requestOf(call *ast.CallExpr, dst []*ir.Var) *ir.Var {
	for _, r := range f.requests {
		for _, s := range r.sites {
			if s.call == call {
				return s.v
			}
		}
	}
	if len(dst) == 1 && dst[0] != nil && !dst[0].Shared {
		return dst[0]
	}
	return f.temp("lost request")
}

// waitAll lowers a wait for several requests. Only the first one counts as a
// statement.
func (f *fn) waitAll(c *ir.Comm, call *ast.CallExpr) {
	first := true
	wait := func(v *ir.Var, group ir.Expr) {
		w := &ir.Comm{Pos: c.Pos, Name: c.Name, Kind: ir.Wait, Request: v, Group: group}
		if first {
			w.Reads = c.Reads
			f.emitCall(w)
		} else {
			f.emitUncounted(w)
		}
		first = false
	}
	for _, e := range call.Args {
		id, ok := ast.Unparen(e).(*ast.Ident)
		if !ok {
			continue
		}
		obj := f.s.Info.ObjectOf(id)
		if !call.Ellipsis.IsValid() {
			wait(f.variable(obj), nil)
			continue
		}
		if r := f.requests[obj]; r != nil {
			var groups []string
			for _, s := range r.sites {
				if s.v != nil {
					wait(s.v, nil)
				} else if text := f.text(s.comm); !slices.Contains(groups, text) {
					groups = append(groups, text)
					wait(nil, f.value(s.comm))
				}
			}
		}
	}
	if first {
		wait(f.temp("some requests"), nil)
	}
}
