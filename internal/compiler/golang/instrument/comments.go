package instrument

import (
	"fmt"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/explain"
	"github.com/cairnrun/cairn/internal/compiler/golang/lower"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// checkComments checks the comments that ask for points or against them. It
// returns an error if a point would be missing that the user counts on, and
// warnings for the rest.
func checkComments(p *lower.Program, e *explain.Explanation) (warnings []string, err error) {
	var errs []string
	for _, s := range p.Strays {
		if s.Own && s.Name == "point" {
			errs = append(errs, s.String())
		} else {
			warnings = append(warnings, s.String())
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%w:\n%s", ErrRefused, strings.Join(errs, "\n"))
	}
	reached := make(map[ir.Pos]bool)
	for _, l := range e.Loops {
		reached[ir.Pos{File: l.File, Line: l.Line}] = true
	}
	for _, at := range p.Points {
		next := at
		next.Line++
		if !reached[at] && !reached[next] {
			warnings = append(warnings, fmt.Sprintf("%s: //cairn:point has no effect: main does not reach the loop; call its function from main, or remove the comment", at))
		}
	}
	return warnings, nil
}
