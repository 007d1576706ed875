package lower

import (
	"go/types"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// worldComms returns the variables and fields that hold no other communicator
// than the world, in any assignment.
func (l *lowerer) worldComms(p *ir.Program) map[types.Object]bool {
	other := make(map[*ir.Var]bool) // may hold something else
	changed := true
	mark := func(v *ir.Var) {
		if v != nil && !other[v] {
			other[v], changed = true, true
		}
	}
	set := func(v *ir.Var, e ir.Expr) {
		switch e := e.(type) {
		case ir.Const:
			if e.Value == 0 || e.Value == -1 { // -1 is nil
				return
			}
		case ir.Field:
			if !other[e.Var] {
				return
			}
		case ir.Ref:
			if !other[e.Var] {
				return
			}
		}
		mark(v)
	}
	for changed {
		changed = false
		for _, q := range p.Procs {
			ir.Each(q.Body, func(s ir.Stmt) {
				switch s := s.(type) {
				case *ir.Assign:
					for i, v := range s.Dst {
						if i < len(s.Src) {
							set(v, s.Src[i])
						}
					}
				case *ir.Call:
					for _, r := range s.Procs {
						for i, v := range r.Params {
							if len(s.Args) == len(r.Params) {
								set(v, s.Args[i])
							} else {
								mark(v)
							}
						}
						for i, v := range s.Results {
							if len(s.Results) == len(r.Results) {
								set(v, ir.Ref{Var: r.Results[i]})
							} else {
								mark(v)
							}
						}
					}
					if len(s.Procs) == 0 {
						for _, v := range s.Results {
							mark(v)
						}
					}
				case *ir.Put:
					set(s.Field, s.Src)
				case *ir.Launch:
					if s.Proc != nil {
						for _, v := range s.Proc.Params {
							mark(v)
						}
					}
				case *ir.Comm:
					for _, v := range s.Status {
						mark(v)
					}
				case *ir.Jump:
					for i, e := range s.Results {
						if i < len(q.Results) {
							set(q.Results[i], e)
						}
					}
				}
			})
		}
	}
	world := make(map[types.Object]bool)
	for obj, v := range l.vars {
		if isComm(obj.Type()) && !other[v] {
			if u := l.use[obj]; u == nil || !u.address {
				world[obj] = true
			}
		}
	}
	return world
}
