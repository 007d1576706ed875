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

// Ranked says whether an expression is made of a rank.
func Ranked(e Expr) bool {
	switch e := e.(type) {
	case Rank:
		return true
	case Unary:
		return Ranked(e.X)
	case Binary:
		return Ranked(e.X) || Ranked(e.Y)
	}
	return false
}
