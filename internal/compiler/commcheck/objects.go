package commcheck

import (
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// look says how a procedure uses a reference.
type look struct {
	reads bool // it reads fields that communications depend on
	null  bool // it tests whether the reference is 0
}

// followed reports whether the analysis follows the values of a field.
func (in *info) followed(f *ir.Var) bool {
	return f.Type != "" && !in.raced[f.Type] && slices.Contains(in.fields[f.Type], f)
}

// objects returns the fields that list and its callees may write to, and the
// types of objects that they may make.
func (in *info) objects(list []ir.Stmt) (puts []*ir.Var, news []string) {
	fields, types := map[*ir.Var]bool{}, map[string]bool{}
	ir.Each(list, func(s ir.Stmt) {
		switch s := s.(type) {
		case *ir.New:
			types[s.Type] = true
		case *ir.Put:
			fields[s.Field] = true
		case *ir.Call:
			for _, p := range s.Procs {
				spread(in.procs[p].puts, fields)
				spread(in.procs[p].news, types)
			}
		}
	})
	for f := range fields {
		if in.followed(f) {
			puts = append(puts, f)
		}
	}
	for t := range types {
		if in.types[t] {
			news = append(news, t)
		}
	}
	slices.Sort(news)
	return puts, news
}

// look finds how procedures use the references that are passed to them.
func (in *info) look(procs []*ir.Proc) {
	if len(in.types) == 0 {
		return
	}
	for _, pr := range procs {
		looks := in.procs[pr].looks
		var visit func(e ir.Expr)
		visit = func(e ir.Expr) {
			switch e := e.(type) {
			case ir.Field:
				if r, ok := e.Of.(ir.Ref); ok && in.decide[e.Var] && in.followed(e.Var) {
					l := looks[r.Var]
					l.reads = true
					looks[r.Var] = l
				}
				visit(e.Of)
				visit(e.Index)
			case ir.Unary:
				visit(e.X)
			case ir.Binary:
				if r, ok := e.X.(ir.Ref); ok && (e.Op == ir.Eq || e.Op == ir.Ne) {
					l := looks[r.Var]
					l.null = true
					looks[r.Var] = l
				}
				visit(e.X)
				visit(e.Y)
			case ir.Rank:
				visit(e.Group)
			case ir.Size:
				visit(e.Group)
			}
		}
		ir.Each(pr.Body, func(s ir.Stmt) {
			for _, e := range exprs(s) {
				visit(e)
			}
		})
	}
}

// exprs returns the expressions of a statement, without those of nested
// statements.
func exprs(s ir.Stmt) []ir.Expr {
	switch s := s.(type) {
	case *ir.Assign:
		return s.Src
	case *ir.Call:
		return s.Args
	case *ir.Jump:
		return s.Results
	case *ir.Comm:
		return []ir.Expr{s.Group, s.Peer, s.Tag}
	case *ir.New:
		return []ir.Expr{s.From}
	case *ir.Put:
		return []ir.Expr{s.Of, s.Index, s.Src}
	}
	return conds(s)
}
