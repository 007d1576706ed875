package rewrite

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// Marks for programs whose goroutines are saved. ParkMark is at an operation
// that may block: after the arrow, the word select or range, or the opening
// parenthesis. GoMark is after the word go, or the opening parenthesis of a
// call of WaitGroup.Go; GoPointsMark likewise, if the goroutine's function
// leads to points or waits; BackgroundMark if it does not matter for the state;
// RebuiltMark if a function with a comment //cairn:rebuild starts it.
const (
	ParkMark       = "/*cairn:park*/"
	GoMark         = "/*cairn:go*/"
	GoPointsMark   = "/*cairn:gopoints*/"
	BackgroundMark = "/*cairn:background*/"
	RebuiltMark    = "/*cairn:rebuilt*/"
)

// EachWait calls f for the operations that may block and that the run time can
// wait for, with the place of the mark. walk walks over the nodes of a
// function.
func EachWait(info *types.Info, walk func(func(ast.Node) bool), f func(n ast.Node, at token.Pos)) {
	skip := map[ast.Node]bool{}
	walk(func(n ast.Node) bool {
		if skip[n] {
			return true
		}
		switch n := n.(type) {
		case *ast.LabeledStmt:
			if s, ok := n.Stmt.(*ast.SelectStmt); ok { // a goto would evaluate its operands again
				skip[s] = true
				skipCases(s, skip)
			}
		case *ast.GoStmt:
			skip[n.Call] = true
		case *ast.DeferStmt:
			skip[n.Call] = true
		case *ast.SelectStmt:
			if skipCases(n, skip) {
				f(n, n.Select+token.Pos(len("select")))
			}
		case *ast.UnaryExpr:
			if n.Op == token.ARROW && isChan(info, n.X) {
				f(n, n.OpPos+token.Pos(len("<-")))
			}
		case *ast.SendStmt:
			if isChan(info, n.Chan) {
				f(n, n.Arrow+token.Pos(len("<-")))
			}
		case *ast.RangeStmt:
			if isChan(info, n.X) {
				f(n, n.Range+token.Pos(len("range")))
			}
		case *ast.CallExpr:
			switch calledName(info, n) {
			case "(*sync.WaitGroup).Wait", "(*sync.Cond).Wait":
				if CanName(info, n) {
					f(n, n.Lparen+1)
				}
			case "time.Sleep":
				f(n, n.Lparen+1)
			}
		}
		return true
	})
}

// syncCalls are the methods of package sync that the run time replaces, besides
// those of WaitGroup, with the functions that stand for them.
var syncCalls = map[string]string{
	"(*sync.Mutex).Lock":      "Lock",
	"(*sync.Mutex).Unlock":    "Unlock",
	"(*sync.RWMutex).Lock":    "LockRW",
	"(*sync.RWMutex).Unlock":  "UnlockRW",
	"(*sync.RWMutex).RLock":   "RLock",
	"(*sync.RWMutex).RUnlock": "RUnlock",
	"(sync.Locker).Lock":      "LockAny",
	"(sync.Locker).Unlock":    "UnlockAny",
	"(*sync.Cond).Wait":       "CondWait",
	"(*sync.Cond).Signal":     "Signal",
	"(*sync.Cond).Broadcast":  "Broadcast",
}

// SyncCall returns the function of the run time that stands for a call of a
// method of a lock or a sync.Cond, or "". waits says whether it may block.
func SyncCall(info *types.Info, c *ast.CallExpr) (function string, waits bool) {
	function = syncCalls[calledName(info, c)]
	return function, strings.Contains(function, "Lock") && !strings.HasPrefix(function, "Unlock") || function == "CondWait"
}

// CanName reports whether the file of a method call can name the receiver: the
// method may be that of an embedded field which another package does not
// export.
func CanName(info *types.Info, c *ast.CallExpr) bool {
	sel, ok := ast.Unparen(c.Fun).(*ast.SelectorExpr)
	if !ok {
		return false
	}
	s := info.Selections[sel]
	if s == nil || s.Kind() != types.MethodVal {
		return false
	}
	t := info.TypeOf(sel.X)
	for _, i := range s.Index()[:len(s.Index())-1] {
		if p, ok := t.Underlying().(*types.Pointer); ok {
			t = p.Elem()
		}
		u, ok := t.Underlying().(*types.Struct)
		if !ok || !u.Field(i).Exported() && u.Field(i).Pkg() != packageOf(info) {
			return false
		}
		t = u.Field(i).Type()
	}
	return true
}

// packageOf returns the package that info describes.
func packageOf(info *types.Info) *types.Package {
	for _, o := range info.Defs {
		if o != nil && o.Pkg() != nil {
			return o.Pkg()
		}
	}
	return nil
}

// skipCases notes the operations of a select statement. It reports whether the
// statement blocks.
func skipCases(s *ast.SelectStmt, skip map[ast.Node]bool) bool {
	blocks := true
	for _, c := range s.Body.List {
		op := CaseOperation(c.(*ast.CommClause))
		if op == nil {
			blocks = false
		} else {
			skip[op] = true
		}
	}
	return blocks
}

// CaseOperation returns the send or receive of a case: *ast.SendStmt or
// *ast.UnaryExpr; nil for default.
func CaseOperation(c *ast.CommClause) ast.Node {
	switch s := c.Comm.(type) {
	case *ast.SendStmt:
		return s
	case *ast.ExprStmt:
		return ast.Unparen(s.X)
	case *ast.AssignStmt:
		return ast.Unparen(s.Rhs[0])
	}
	return nil
}

func isChan(info *types.Info, x ast.Expr) bool {
	t := info.TypeOf(x)
	if t == nil {
		return false
	}
	_, ok := types.Unalias(t).Underlying().(*types.Chan)
	return ok
}

// calledName returns the full name of the function that a call names.
func calledName(info *types.Info, c *ast.CallExpr) string {
	var id *ast.Ident
	switch f := ast.Unparen(c.Fun).(type) {
	case *ast.Ident:
		id = f
	case *ast.SelectorExpr:
		id = f.Sel
	default:
		return ""
	}
	if f, ok := info.Uses[id].(*types.Func); ok {
		return f.FullName()
	}
	return ""
}

// CallbackFunction returns the full name of the function of the standard
// library that a call names, if normalize.LowerCallbacks can replace it by a
// copy that can be resumed while it calls functions of the program; otherwise
// "".
func CallbackFunction(info *types.Info, c *ast.CallExpr) string {
	name := calledName(info, &ast.CallExpr{Fun: uninstantiated(c.Fun)})
	if i := strings.LastIndexByte(name, '.'); i > 0 && slices.Contains(callbackFuncs[name[:i]], name[i+1:]) {
		if strings.HasPrefix(name, "(") && !CanName(info, c) {
			return ""
		}
		return name
	}
	return ""
}

// RepeatsCallback reports whether CallbackFunction's function mostly calls the
// program's functions many times, and does little else.
func RepeatsCallback(name string) bool {
	return name != "" && name != "(*sync.Once).Do" && !strings.Contains(name, ".Walk")
}

// callbackFuncs are functions of the standard library that call the program's
// functions, by their packages or types.
var callbackFuncs = map[string][]string{
	"(*sync.Once)":   {"Do"},
	"path/filepath":  {"Walk", "WalkDir"},
	"io/fs":          {"WalkDir"},
	"sort":           {"Search", "Find", "Slice", "SliceStable", "SliceIsSorted", "Sort", "Stable", "IsSorted"},
	"slices":         {"SortFunc", "SortStableFunc", "IsSortedFunc", "MinFunc", "MaxFunc", "BinarySearchFunc", "EqualFunc", "CompareFunc", "IndexFunc", "ContainsFunc", "DeleteFunc", "CompactFunc"},
	"maps":           {"EqualFunc", "DeleteFunc"},
	"strings":        textFuncs,
	"bytes":          textFuncs,
	"container/heap": {"Init", "Push", "Pop", "Remove", "Fix"},
}

var textFuncs = []string{"Map", "FieldsFunc", "IndexFunc", "LastIndexFunc", "ContainsFunc", "TrimFunc", "TrimLeftFunc", "TrimRightFunc"}

// uninstantiated returns a function without its type arguments.
func uninstantiated(e ast.Expr) ast.Expr {
	switch x := ast.Unparen(e).(type) {
	case *ast.IndexExpr:
		return ast.Unparen(x.X)
	case *ast.IndexListExpr:
		return ast.Unparen(x.X)
	}
	return ast.Unparen(e)
}

// ReversesOrder reports whether a call is one of sort.Reverse.
func ReversesOrder(info *types.Info, c *ast.CallExpr) bool {
	return calledName(info, c) == "sort.Reverse"
}

// CalledBack returns the function of a call of CallbackFunction, without type
// arguments.
func CalledBack(c *ast.CallExpr) ast.Expr { return uninstantiated(c.Fun) }

// StartsGoroutine returns the func value that a call of WaitGroup.Go starts, or
// nil.
func StartsGoroutine(info *types.Info, c *ast.CallExpr) ast.Expr {
	if calledName(info, c) == "(*sync.WaitGroup).Go" && len(c.Args) == 1 {
		return c.Args[0]
	}
	return nil
}

// ServesDebug reports whether a go statement only starts a server for the
// handlers that packages have registered, as net/http/pprof does.
func ServesDebug(info *types.Info, g *ast.GoStmt) bool {
	serves := func(c *ast.CallExpr) bool {
		switch calledName(info, c) {
		case "net/http.ListenAndServe":
			return len(c.Args) == 2 && info.Types[c.Args[1]].IsNil()
		}
		return false
	}
	if serves(g.Call) {
		return true
	}
	lit, ok := g.Call.Fun.(*ast.FuncLit)
	if !ok || len(g.Call.Args) > 0 || len(lit.Body.List) != 1 {
		return false
	}
	x, ok := lit.Body.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	c, ok := x.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	switch calledName(info, c) {
	case "log.Print", "log.Println", "fmt.Print", "fmt.Println":
		if len(c.Args) != 1 {
			return false
		}
		if c, ok = ast.Unparen(c.Args[0]).(*ast.CallExpr); !ok {
			return false
		}
	}
	return serves(c)
}

// RegistersHandlers reports whether a package gives handlers to package
// net/http.
func RegistersHandlers(info *types.Info) bool {
	for _, o := range info.Uses {
		if f, ok := o.(*types.Func); ok {
			switch f.FullName() {
			case "net/http.Handle", "net/http.HandleFunc":
				return true
			}
		}
		if v, ok := o.(*types.Var); ok && v.Pkg() != nil && v.Pkg().Path() == "net/http" && v.Name() == "DefaultServeMux" {
			return true
		}
	}
	return false
}

// CanStart reports whether the run time can start the goroutine of a go
// statement.
func CanStart(info *types.Info, g *ast.GoStmt) bool {
	c := g.Call
	tv := info.Types[c.Fun]
	if tv.IsType() || tv.IsBuiltin() {
		return false
	}
	sig, ok := types.Unalias(tv.Type).Underlying().(*types.Signature)
	if !ok {
		return false
	}
	if lit, ok := ast.Unparen(c.Fun).(*ast.FuncLit); ok {
		return lit.Type.Results.NumFields() == 0
	}
	if len(c.Args) == 1 && sig.Params().Len() > 1 { // f(g())
		return false
	}
	for _, a := range c.Args {
		tv := info.Types[a]
		if tv.Value != nil || tv.IsNil() {
			continue
		}
		b, ok := tv.Type.(*types.Basic)
		if _, tuple := tv.Type.(*types.Tuple); tuple || ok && b.Info()&types.IsUntyped != 0 {
			return false
		}
	}
	return true
}
