package commcheck

import (
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

func (v Verdict) String() string {
	if len(v.Because) == 0 {
		return v.Kind.String()
	}
	var b []string
	for _, r := range v.Because {
		b = append(b, r.String())
	}
	return v.Kind.String() + " (" + strings.Join(b, "; ") + ")"
}

// Before returns the verdict for the place just before s. A statement that is
// not in the program, or that no rank reaches, is Unknown. Callers of the
// package need loop bodies only; the tests compare all places.
func (r *Result) Before(s ir.Stmt) Verdict { return r.at(s) }
