package place

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/types/typeutil"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
	"github.com/cairnrun/cairn/internal/compiler/scc"
)

// costModel estimates how long pieces of a program take, in units of about a
// nanosecond. It only has to distinguish tight loops from loops with much work.
// It assumes a fixed number of iterations for loops whose number is unknown, as
// many calls of recursive functions, and that each of two branches is taken
// half of the time.
type costModel struct {
	in           *Placement
	unknownTrips int // iterations
	calls        map[*ast.CallExpr]*callgraph.Site
	times        map[*callgraph.Function]float64
	group        map[*callgraph.Function]int // number of the functions that call each other
	size         map[int]int                 // of groups

	sizes           types.Sizes
	followRecursion bool // follow calls within the group of the current function
}

// Estimated costs.
const (
	costCall    = 2
	costLibrary = 20
	costSlow    = 100 // libraries that print, read or compile patterns
	costAlloc   = 20
	costMap     = 10
	costWait    = 50
	costMax     = 1e12

	// costPoint is the cost of reading a variable at a point. costFrame is
	// what a call of a function on the resumable path costs in addition,
	// and costBox what a variable costs that moves to the heap.
	costPoint    = 1
	costFrame    = 5
	costBox      = 25
	bytesPerUnit = 2 // bytes of such a variable that cost one unit
)

func newCostModel(pl *Placement, some int) *costModel {
	p := &costModel{in: pl, unknownTrips: some, calls: map[*ast.CallExpr]*callgraph.Site{}, times: map[*callgraph.Function]float64{}, group: map[*callgraph.Function]int{}, size: map[int]int{},
		sizes: types.SizesFor("gc", "amd64")}
	for _, fn := range pl.Calls.All {
		for _, t := range fn.Sites {
			if t.Call != nil {
				p.calls[t.Call] = t
			}
		}
	}
	for i, group := range scc.Components(pl.Calls.All, plainCallees) {
		for _, fn := range group {
			p.group[fn] = i + 1 // 0: not in the call graph
		}
		p.size[i+1] = len(group)
	}
	return p
}

// plainCallees returns the functions that fn calls by plain calls.
func plainCallees(fn *callgraph.Function) (list []*callgraph.Function) {
	for _, t := range fn.Sites {
		if t.Kind == callgraph.PlainCall {
			list = append(list, t.Callees...)
		}
	}
	return list
}

// function returns the cost of a call of a function, without the calls in it
// that lead back to it.
func (p *costModel) function(fn *callgraph.Function) float64 {
	if t, ok := p.times[fn]; ok {
		return t
	}
	p.times[fn] = 0
	t := p.node(fn, fn.Body)
	p.times[fn] = t
	return t
}

// iteration returns the cost of an iteration of a loop. It follows calls that
// lead back to the loop's function once.
func (p *costModel) iteration(fn *callgraph.Function, n ast.Node) float64 {
	p.followRecursion = true
	defer func() { p.followRecursion = false }()
	return p.body(fn, n)
}

// body returns the cost of an iteration of a loop.
func (p *costModel) body(fn *callgraph.Function, n ast.Node) float64 {
	switch n := n.(type) {
	case *ast.ForStmt:
		return p.parts(fn, n.Cond, n.Post) + p.node(fn, n.Body)
	case *ast.RangeStmt:
		return 1 + p.node(fn, n.Body)
	}
	return 0
}

// trips returns how many iterations of a loop count.
func (p *costModel) trips(n ast.Node) float64 {
	if t, ok := p.in.knownTrips(n); ok {
		return float64(min(max(1, t), maxTrips))
	}
	return float64(p.unknownTrips)
}

func (p *costModel) parts(fn *callgraph.Function, list ...ast.Node) (sum float64) {
	for _, n := range list {
		switch n := n.(type) {
		case nil:
		case ast.Expr:
			sum += p.node(fn, n)
		case ast.Stmt:
			sum += p.node(fn, n)
		}
	}
	return sum
}

// node returns the cost of a piece of a function.
func (p *costModel) node(fn *callgraph.Function, root ast.Node) (sum float64) {
	info := fn.Pkg.Info
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			sum += costAlloc
			return false
		case *ast.BlockStmt:
			part := 1.0 // the part of the times that this statement is reached
			for _, s := range n.List {
				sum += part * p.node(fn, s)
				if mayContinue(s) {
					part /= 2
				}
			}
			return false
		case *ast.ForStmt:
			if n.Init != nil {
				sum += p.node(fn, n.Init)
			}
			sum += p.trips(n) * p.body(fn, n)
			return false
		case *ast.RangeStmt:
			sum += p.node(fn, n.X) + p.trips(n)*p.body(fn, n)
			return false
		case *ast.IfStmt:
			if n.Init != nil {
				sum += p.node(fn, n.Init)
			}
			both := 0.0
			if !fails(info, n) {
				both = p.branch(fn, n.Body)
			}
			if n.Else != nil {
				both += p.node(fn, n.Else)
			}
			sum += 1 + p.node(fn, n.Cond) + both/2
			return false
		case *ast.SwitchStmt:
			sum += p.parts(fn, n.Init, n.Tag) + p.cases(fn, n.Body)
			return false
		case *ast.TypeSwitchStmt:
			sum += p.parts(fn, n.Init, n.Assign) + p.cases(fn, n.Body)
			return false
		case *ast.SelectStmt:
			sum += costWait + p.cases(fn, n.Body)
			return false
		case *ast.CallExpr:
			sum += p.call(fn, n)
		case *ast.IndexExpr:
			sum++
			if t := info.TypeOf(n.X); t != nil {
				if _, ok := t.Underlying().(*types.Map); ok {
					sum += costMap
				}
			}
		case *ast.BinaryExpr:
			sum++
			if t := info.TypeOf(n); n.Op == token.ADD && t != nil && info.Types[n].Value == nil {
				if b, ok := t.Underlying().(*types.Basic); ok && b.Info()&types.IsString != 0 {
					sum += costAlloc
				}
			}
		case *ast.UnaryExpr:
			switch n.Op {
			case token.ARROW:
				sum += costWait
			case token.AND:
				if _, ok := ast.Unparen(n.X).(*ast.CompositeLit); ok {
					sum += costAlloc
				}
			}
		case *ast.SendStmt:
			sum += costWait
		case *ast.AssignStmt, *ast.IncDecStmt, *ast.ReturnStmt, *ast.StarExpr:
			sum++
		}
		return true
	})
	return min(sum, costMax)
}

// mayContinue reports whether a statement may skip the rest of an iteration.
func mayContinue(s ast.Stmt) bool {
	i, ok := s.(*ast.IfStmt)
	if !ok || len(i.Body.List) == 0 {
		return false
	}
	b, ok := i.Body.List[len(i.Body.List)-1].(*ast.BranchStmt)
	return ok && b.Tok == token.CONTINUE
}

// fails reports whether the branch of an if statement leaves because of an
// error: if err != nil { … return err }. Such a branch is rare, and what prints
// the error may look like much work.
func fails(info *types.Info, n *ast.IfStmt) bool {
	c, ok := ast.Unparen(n.Cond).(*ast.BinaryExpr)
	if !ok || c.Op != token.NEQ || !info.Types[c.Y].IsNil() || !isError(info.TypeOf(c.X)) || len(n.Body.List) == 0 {
		return false
	}
	switch s := n.Body.List[len(n.Body.List)-1].(type) {
	case *ast.BranchStmt:
		return s.Tok != token.FALLTHROUGH
	case *ast.ReturnStmt: // of the error, and not of what another function has made instead
		return len(s.Results) == 0 || isError(info.TypeOf(s.Results[len(s.Results)-1])) && !info.Types[s.Results[len(s.Results)-1]].IsNil()
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		if !ok {
			return false
		}
		switch f := typeutil.Callee(info, call).(type) {
		case *types.Builtin:
			return f.Name() == "panic"
		case *types.Func:
			return f.FullName() == "os.Exit" || strings.HasPrefix(f.FullName(), "log.Fatal")
		}
	}
	return false
}

func isError(t types.Type) bool {
	return t != nil && types.Identical(t, types.Universe.Lookup("error").Type())
}

// branch returns the cost of a branch, nothing if it only ends the program.
func (p *costModel) branch(fn *callgraph.Function, b *ast.BlockStmt) float64 {
	if len(b.List) > 0 {
		if s, ok := b.List[len(b.List)-1].(*ast.ExprStmt); ok {
			if c, ok := s.X.(*ast.CallExpr); ok {
				if id, ok := c.Fun.(*ast.Ident); ok && id.Name == "panic" {
					return 0
				}
			}
		}
	}
	return p.node(fn, b)
}

// cases returns the mean cost of the cases of a switch.
func (p *costModel) cases(fn *callgraph.Function, b *ast.BlockStmt) (sum float64) {
	for _, c := range b.List {
		switch c := c.(type) {
		case *ast.CaseClause:
			for _, s := range c.Body {
				sum += p.node(fn, s)
			}
		case *ast.CommClause:
			for _, s := range c.Body {
				sum += p.node(fn, s)
			}
		}
	}
	return 2 + sum/float64(max(1, len(b.List)))
}

// slow are libraries whose functions take long.
var slow = []string{"fmt", "os", "io", "bufio", "regexp", "log", "net", "encoding/json", "encoding/csv", "encoding/gob", "compress/gzip", "compress/flate", "sort", "os/exec"}

// call returns the cost of a call, without its arguments.
func (p *costModel) call(fn *callgraph.Function, n *ast.CallExpr) float64 {
	info := fn.Pkg.Info
	if tv := info.Types[n.Fun]; tv.IsType() {
		return 1
	} else if tv.IsBuiltin() {
		if id, ok := ast.Unparen(n.Fun).(*ast.Ident); ok && (id.Name == "append" || id.Name == "make" || id.Name == "new" || id.Name == "copy") {
			return costAlloc / 2
		}
		return 1
	}
	if rewrite.CallbackFunction(info, n) == "(*sync.Once).Do" { // other calls do nothing
		return costCall
	}
	t := p.calls[n]
	if t == nil || t.Kind == callgraph.SyncCallback || t.Kind == callgraph.AsyncCallback {
		f := typeutil.StaticCallee(info, n)
		switch {
		case f == nil || f.Pkg() == nil:
			return costLibrary
		case f.Pkg().Path() == "math" || f.Pkg().Path() == "math/bits" || f.Pkg().Path() == "sync/atomic" || f.Pkg().Path() == "unsafe":
			return costCall
		case slices.Contains(slow, f.Pkg().Path()):
			return costSlow
		}
		return costLibrary
	}
	if t.Kind == callgraph.GoCall {
		return costWait
	}
	sum := 0.0
	for _, to := range t.Callees {
		switch {
		case p.group[to] != p.group[fn]:
			one := p.function(to)
			if p.recursive(to) {
				one *= float64(p.unknownTrips)
			}
			sum += one
		case p.followRecursion:
			p.followRecursion = false // once
			sum += p.function(to)
			p.followRecursion = true
		}
	}
	if rewrite.RepeatsCallback(rewrite.CallbackFunction(info, n)) {
		sum *= float64(p.unknownTrips)
	}
	return costCall + sum/float64(max(1, len(t.Callees)))
}

// recursive reports whether a function calls itself, directly or not.
func (p *costModel) recursive(fn *callgraph.Function) bool {
	return p.size[p.group[fn]] > 1 || slices.ContainsFunc(fn.Sites, func(t *callgraph.Site) bool {
		return t.Kind == callgraph.PlainCall && slices.Contains(t.Callees, fn)
	})
}

// heapVars returns the cost of the variables of a function that move to the
// heap if it is on the resumable path: those whose address is taken.
func (p *costModel) heapVars(fn *callgraph.Function) (cost float64) {
	seen := map[types.Object]bool{}
	note := func(e ast.Expr) {
		for {
			switch x := ast.Unparen(e).(type) {
			case *ast.SelectorExpr:
				if t := fn.Pkg.Info.TypeOf(x.X); t == nil || load.IsPointer(t) {
					return
				}
				e = x.X
				continue
			case *ast.IndexExpr:
				if t := fn.Pkg.Info.TypeOf(x.X); t != nil {
					if _, ok := t.Underlying().(*types.Array); ok {
						e = x.X
						continue
					}
				}
				return
			case *ast.Ident:
				if v, ok := fn.Pkg.Info.Uses[x].(*types.Var); ok && !v.IsField() && v.Pos() >= fn.Node.Pos() && v.Pos() < fn.Node.End() {
					seen[v] = true
				}
			}
			return
		}
	}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				note(n.X)
			}
		case *ast.SliceExpr:
			if t := fn.Pkg.Info.TypeOf(n.X); t != nil {
				if _, ok := t.Underlying().(*types.Array); ok {
					note(n.X)
				}
			}
		case *ast.SelectorExpr: // a method with a pointer receiver
			if sel := fn.Pkg.Info.Selections[n]; sel != nil && sel.Kind() == types.MethodVal && !load.IsPointer(sel.Recv()) {
				if f, ok := sel.Obj().(*types.Func); ok && f.Signature().Recv() != nil && load.IsPointer(f.Signature().Recv().Type()) {
					note(n.X)
				}
			}
		}
		return true
	})
	for v := range seen {
		cost += costBox
		if !fn.Generic() {
			cost += float64(p.sizes.Sizeof(v.Type())) / bytesPerUnit
		}
	}
	return cost
}
