package lower

import (
	"fmt"
	"go/ast"
	"go/token"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

func (f *fn) switchStmt(s *ast.SwitchStmt) {
	if s.Init != nil {
		f.stmt(s.Init, "")
	}
	sw := &ir.Switch{Pos: f.pos(s.Pos()), Tag: ir.Const{Value: 1}}
	if s.Tag != nil {
		sw.Tag = f.value(s.Tag)
	}
	f.cases(sw, s.Body, func(c *ast.CaseClause) (values []ir.Expr) {
		for _, e := range c.List {
			var x ir.Expr
			early := f.nested(func() {
				if s.Tag == nil {
					x, _ = f.condition(e, terminates(f.s, c.Body))
				} else {
					x = f.value(e)
				}
			})
			if len(early) > 0 {
				f.emit(&ir.If{Pos: f.pos(e.Pos()), Cond: rankDependent(), Then: early})
				x = rankDependent()
			}
			values = append(values, x)
		}
		return values
	})
}

func (f *fn) cases(sw *ir.Switch, body *ast.BlockStmt, values func(*ast.CaseClause) []ir.Expr) {
	label := ""
	for _, c := range body.List {
		c := c.(*ast.CaseClause)
		k := ir.Case{Pos: f.pos(c.Pos()), Values: values(c)}
		if c.List != nil && k.Values == nil {
			k.Values = []ir.Expr{ir.Unknown{}}
		}
		old := f.next
		k.Body = f.nested(func() {
			if label != "" {
				f.emit(&ir.Label{Pos: k.Pos, Name: label})
				label = ""
			}
			if n := len(c.Body); n > 0 {
				if b, ok := c.Body[n-1].(*ast.BranchStmt); ok && b.Tok == token.FALLTHROUGH {
					f.fall++
					label = fmt.Sprintf("fallthrough %d", f.fall)
					f.next = label
				}
			}
			f.stmts(c.Body)
		})
		f.next = old
		sw.Cases = append(sw.Cases, k)
	}
	f.emit(sw)
}

func (f *fn) typeSwitch(s *ast.TypeSwitchStmt) {
	if s.Init != nil {
		f.stmt(s.Init, "")
	}
	var x ir.Expr
	switch a := s.Assign.(type) {
	case *ast.ExprStmt:
		x = f.value(a.X.(*ast.TypeAssertExpr).X)
	case *ast.AssignStmt:
		x = f.value(a.Rhs[0].(*ast.TypeAssertExpr).X)
	}
	sw := &ir.Switch{Pos: f.pos(s.Pos()), Tag: x}
	f.cases(sw, s.Body, func(c *ast.CaseClause) (values []ir.Expr) {
		for range c.List {
			values = append(values, ir.Unknown{Vars: vars(x)})
		}
		return values
	})
}

func (f *fn) selectStmt(s *ast.SelectStmt) {
	// Which case is ready may differ between ranks.
	sw := &ir.Switch{Pos: f.pos(s.Pos()), Tag: rankDependent()}
	for _, c := range s.Body.List {
		c := c.(*ast.CommClause)
		k := ir.Case{Pos: f.pos(c.Pos())}
		if c.Comm != nil {
			k.Values = []ir.Expr{ir.Unknown{}}
		}
		k.Body = f.nested(func() {
			if c.Comm != nil {
				f.stmt(c.Comm, "")
			}
			f.stmts(c.Body)
		})
		sw.Cases = append(sw.Cases, k)
	}
	f.emit(sw)
}
