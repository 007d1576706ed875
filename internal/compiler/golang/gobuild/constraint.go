package gobuild

import (
	"bytes"
	"go/build/constraint"
	"slices"
	"strings"
)

// laidConstraint settles the tags laidTags in a file's build constraint. It
// returns nil if the file is never built then.
func laidConstraint(text []byte) []byte {
	for at := 0; at < len(text); {
		end := at + bytes.IndexByte(text[at:], '\n') + 1
		if end == at {
			end = len(text)
		}
		line := strings.TrimSpace(string(text[at:end]))
		if constraint.IsGoBuild(line) {
			x, err := constraint.Parse(line)
			if err != nil {
				return text // the compiler complains
			}
			x, known, value := settle(x)
			switch {
			case known && !value:
				return nil
			case known:
				return slices.Concat(text[:at], []byte("\n"), text[end:])
			}
			return slices.Concat(text[:at], []byte("//go:build "+x.String()+"\n"), text[end:])
		}
		if line != "" && !strings.HasPrefix(line, "//") {
			break
		}
		at = end
	}
	return text
}

// settle simplifies a constraint in which laidTags are set. If it is known by
// that, it returns its value.
func settle(x constraint.Expr) (_ constraint.Expr, known, value bool) {
	switch x := x.(type) {
	case *constraint.TagExpr:
		if slices.Contains(laidTags, x.Tag) {
			return nil, true, true
		}
	case *constraint.NotExpr:
		y, known, value := settle(x.X)
		if known {
			return nil, true, !value
		}
		return &constraint.NotExpr{X: y}, false, false
	case *constraint.AndExpr:
		return settleTwo(x.X, x.Y, false, func(a, b constraint.Expr) constraint.Expr { return &constraint.AndExpr{X: a, Y: b} })
	case *constraint.OrExpr:
		return settleTwo(x.X, x.Y, true, func(a, b constraint.Expr) constraint.Expr { return &constraint.OrExpr{X: a, Y: b} })
	}
	return x, false, false
}

// settleTwo settles two constraints of which one with the value decides.
func settleTwo(x, y constraint.Expr, decides bool, join func(a, b constraint.Expr) constraint.Expr) (constraint.Expr, bool, bool) {
	a, knownA, valueA := settle(x)
	b, knownB, valueB := settle(y)
	switch {
	case knownA && valueA == decides, knownB && valueB == decides:
		return nil, true, decides
	case knownA && knownB:
		return nil, true, !decides
	case knownA:
		return b, false, false
	case knownB:
		return a, false, false
	}
	return join(a, b), false, false
}

// laidTags are in force there, whatever tags the program is built with.
var laidTags = []string{"static", "cairnrt"}
