package gobuild

import (
	"bytes"
	"go/build/constraint"
	"slices"
	"strings"
)

// runtimeTags are set for the run time, whatever tags the program is built
// with.
var runtimeTags = []string{"static", "cairnrt"}

// simplifyConstraint evaluates runtimeTags in a file's build constraint. It
// returns nil if the file is never built.
func simplifyConstraint(text []byte) []byte {
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
			x, known, value := simplify(x)
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

// simplify returns a constraint in which runtimeTags are set, or its value if
// that is known then.
func simplify(x constraint.Expr) (_ constraint.Expr, known, value bool) {
	switch x := x.(type) {
	case *constraint.TagExpr:
		if slices.Contains(runtimeTags, x.Tag) {
			return nil, true, true
		}
	case *constraint.NotExpr:
		y, known, value := simplify(x.X)
		if known {
			return nil, true, !value
		}
		return &constraint.NotExpr{X: y}, false, false
	case *constraint.AndExpr:
		return simplifyTwo(x.X, x.Y, false, func(a, b constraint.Expr) constraint.Expr { return &constraint.AndExpr{X: a, Y: b} })
	case *constraint.OrExpr:
		return simplifyTwo(x.X, x.Y, true, func(a, b constraint.Expr) constraint.Expr { return &constraint.OrExpr{X: a, Y: b} })
	}
	return x, false, false
}

// simplifyTwo simplifies two constraints. One that has the value decides is
// enough.
func simplifyTwo(x, y constraint.Expr, decides bool, join func(a, b constraint.Expr) constraint.Expr) (constraint.Expr, bool, bool) {
	a, knownA, valueA := simplify(x)
	b, knownB, valueB := simplify(y)
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
