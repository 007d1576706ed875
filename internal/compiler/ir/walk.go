package ir

// Each calls f for all statements of a list, outer ones first.
func Each(list []Stmt, f func(Stmt)) {
	for _, s := range list {
		f(s)
		switch s := s.(type) {
		case *If:
			Each(s.Then, f)
			Each(s.Else, f)
		case *Switch:
			for _, c := range s.Cases {
				Each(c.Body, f)
			}
		case *Loop:
			Each(s.Init, f)
			Each(s.Body, f)
			Each(s.Post, f)
		}
	}
}

// Vars calls f for the variables that an expression consists of. For a Field,
// these are the field itself and the variables of Of, Index and Else.
func Vars(e Expr, f func(*Var)) {
	switch e := e.(type) {
	case Ref:
		f(e.Var)
	case Rank:
		Vars(e.Group, f)
	case Size:
		Vars(e.Group, f)
	case Unary:
		Vars(e.X, f)
	case Binary:
		Vars(e.X, f)
		Vars(e.Y, f)
	case Field:
		f(e.Var)
		Vars(e.Of, f)
		Vars(e.Index, f)
		Vars(e.Else, f)
	case Unknown:
		for _, v := range e.Vars {
			f(v)
		}
	}
}

// Ranked reports whether an expression depends on a rank.
func Ranked(e Expr) bool {
	switch e := e.(type) {
	case Rank:
		return true
	case Field:
		return Ranked(e.Of) || Ranked(e.Index) || Ranked(e.Else)
	case Unary:
		return Ranked(e.X)
	case Binary:
		return Ranked(e.X) || Ranked(e.Y)
	}
	return false
}
