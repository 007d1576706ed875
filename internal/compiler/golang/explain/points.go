package explain

import (
	"fmt"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// Location is the line of a loop.
type Location struct {
	File string
	Line int
}

// SetPoints records which loops get a point, and why chosen ones get none.
func (e *Explanation) SetPoints(s *Saving, points []PointInfo, without map[Location]*rewrite.Refusal) {
	e.saving = s
	has := map[Location]bool{}
	for _, p := range points {
		has[Location{p.File, p.Line}] = true
	}
	for i := range e.Loops {
		l := &e.Loops[i]
		at := Location{l.File, l.Line}
		if l.Point = has[at]; l.Point || !l.Chosen {
			continue
		}
		l.NoPoint = "the program cannot be made restartable"
		if r := without[at]; r != nil {
			l.NoPoint, s.Reported[r.Error()] = r.Reason, true
			if r.Remedy != "" {
				l.NoPoint += "; " + r.Remedy
			}
		}
	}
}

// reason says why a loop was chosen or not, and whether it gets a point.
func (l LoopInfo) reason() string {
	switch {
	case l.Point && !l.Chosen:
		return l.Why + "; it gets a point too"
	case l.NoPoint != "":
		return l.Why + "; but it gets no point"
	}
	return l.Why
}

// pointCount returns the number of points as the end of a sentence.
func (e *Explanation) pointCount() string {
	if e.saving == nil {
		return ""
	}
	return "; " + Plural(len(e.saving.Points), "point")
}

// writePoints writes the loops that get a point, in the order in which cairn
// build names them, then the chosen loops without a point. If points are not
// placed yet, it writes the chosen loops.
func (e *Explanation) writePoints(b *strings.Builder) {
	byPlace := map[Location]LoopInfo{}
	var chosen, without []LoopInfo
	for _, l := range e.Loops {
		byPlace[Location{l.File, l.Line}] = l
		if l.Chosen && l.NoPoint != "" {
			without = append(without, l)
		} else if l.Chosen {
			chosen = append(chosen, l)
		}
	}
	const sentence = "\nPoints are at the beginning of each iteration of\n"
	if e.saving == nil {
		if len(chosen) > 0 {
			b.WriteString(sentence)
		}
		for _, l := range chosen {
			e.writeLoop(b, l)
		}
		return
	}
	if len(e.saving.Points) > 0 {
		b.WriteString(sentence)
	}
	for _, p := range e.saving.Points {
		if l, ok := byPlace[Location{p.File, p.Line}]; ok {
			e.writeLoop(b, l)
		} else {
			fmt.Fprintf(b, "  %s:%d in %s\n    not counted; it gets a point too\n", p.File, p.Line, p.Function)
		}
	}
	if len(without) > 0 {
		b.WriteString("\nThese are chosen, but get NO point\n")
	}
	for _, l := range without {
		e.writeLoop(b, l)
		fmt.Fprintf(b, "    no point: %s\n", l.NoPoint)
	}
}
