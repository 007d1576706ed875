package golang

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// refusedError is the error of a program that can't have points.
type refusedError struct {
	text    string
	without map[place]*rewrite.Refusal // why chosen loops have none
}

func (e *refusedError) Error() string { return e.text }
func (e *refusedError) Unwrap() error { return ErrRefused }

// place is the line of a loop.
type place struct {
	file string
	line int
}

// without says why chosen loops have no point.
func (in *instrumenter) without() map[place]*rewrite.Refusal {
	out := map[place]*rewrite.Refusal{}
	for n, l := range in.infos {
		if !l.Chosen || in.pointed(n) {
			continue
		}
		if r := in.why(n); r != nil {
			out[place{l.File, l.Line}] = r
		}
	}
	return out
}

// placed notes which loops get a point, and why chosen ones get none: what build
// does. A program that takes its own checkpoints gets none, and is left alone.
func (e *Explanation) placed(s *Saving, in *Instrumented, err error) {
	s.told = map[string]bool{}
	var without map[place]*rewrite.Refusal
	points := map[place]bool{}
	var refused *refusedError
	switch {
	case in != nil:
		without = in.without
		for _, p := range in.Points {
			points[place{p.File, p.Line}] = true
		}
	case errors.As(err, &refused):
		without = refused.without
	case errors.Is(err, ErrOwn):
		return
	}
	e.saves = s
	for i := range e.Loops {
		l := &e.Loops[i]
		at := place{l.File, l.Line}
		if l.Point = points[at]; l.Point || !l.Chosen {
			continue
		}
		l.NoPoint = "the program can't be made restartable"
		if r := without[at]; r != nil {
			l.NoPoint, s.told[r.Error()] = r.Reason, true
			if r.Remedy != "" {
				l.NoPoint += "; " + r.Remedy
			}
		}
	}
}

// why says why a loop was chosen or not, and that it gets a point all the same.
func (l LoopInfo) why() string {
	switch {
	case l.Point && !l.Chosen:
		return l.Why + "; it gets a point too"
	case l.NoPoint != "":
		return l.Why + "; but it gets no point"
	}
	return l.Why
}

// count is how many points there are.
func (e *Explanation) count() string {
	if e.saves == nil {
		return ""
	}
	return "; " + many(len(e.saves.Points), "point")
}

// points tells of the chosen loops; where it is known, of all that get a point, in
// the order in which build names them, and of the chosen ones that get none.
func (e *Explanation) points(b *strings.Builder) {
	byPlace := map[place]LoopInfo{}
	var chosen, without []LoopInfo
	for _, l := range e.Loops {
		byPlace[place{l.File, l.Line}] = l
		if l.Chosen && l.NoPoint != "" {
			without = append(without, l)
		} else if l.Chosen {
			chosen = append(chosen, l)
		}
	}
	const sentence = "\nPoints would be at the beginning of each round of\n"
	if e.saves == nil {
		if len(chosen) > 0 {
			b.WriteString(sentence)
		}
		for _, l := range chosen {
			e.chosen(b, l)
		}
		return
	}
	if len(e.saves.Points) > 0 {
		b.WriteString(sentence)
	}
	for _, p := range e.saves.Points {
		if l, ok := byPlace[place{p.File, p.Line}]; ok {
			e.chosen(b, l)
		} else {
			fmt.Fprintf(b, "  %s:%d in %s\n    not counted; it gets a point too\n", p.File, p.Line, p.Function)
		}
	}
	if len(without) > 0 {
		b.WriteString("\nThese are chosen, but get NO point\n")
	}
	for _, l := range without {
		e.chosen(b, l)
		fmt.Fprintf(b, "    no point: %s\n", l.NoPoint)
	}
}
