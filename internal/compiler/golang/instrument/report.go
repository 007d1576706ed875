package instrument

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/explain"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// Save adds what is saved to an explanation. in is nil if the program cannot be
// made restartable; err says why.
func Save(e *explain.Explanation, in *Result, err error) *explain.Saving {
	s := &explain.Saving{Explanation: e, Reported: map[string]bool{}}
	var refused *refusedError
	switch {
	case in != nil:
		e.SetPoints(s, in.Points, in.without)
		if e.Devices != nil && in.Explanation != nil && in.Explanation.Devices != nil {
			e.Devices.LeftOut = in.Explanation.Devices.LeftOut
		}
	case errors.As(err, &refused):
		e.SetPoints(s, nil, refused.without)
	case errors.Is(err, ErrOwnCheckpoints): // it is built unchanged
	default:
		e.SetPoints(s, nil, nil)
	}
	if in == nil {
		s.Refused = strings.Split(err.Error(), "\n")
		return s
	}
	s.Points, s.Globals, s.Rebuilt, s.Uncovered = in.Points, in.Globals, in.Rebuilt, in.Uncovered
	for _, f := range in.Frames {
		f.File = in.short(f.File)
		f.Line = in.lineOf(f)
		s.Frames = append(s.Frames, f)
	}
	s.Notes = in.Warnings[in.commentWarnings:] // the explanation has the others
	for _, r := range in.Refused {
		s.Refused = append(s.Refused, r.Error())
	}
	for _, r := range in.reported {
		s.Reported[r] = true
	}
	return s
}

// lineOf returns the line of a frame's place. For a point it is the line of the
// loop.
func (in *Result) lineOf(f frameInfo) int {
	line := f.Line
	for i, p := range in.Points {
		head := in.heads[i]
		switch {
		case f.Call || p.File != f.File || f.Line < head.begin || f.Line > head.end:
		case f.Line == head.end:
			return p.Line
		default:
			line = p.Line
		}
	}
	return line
}

// refusedError is the error of a program that cannot have points.
type refusedError struct {
	text    string
	without map[explain.Location]*rewrite.Refusal // why chosen loops have no point
}

func (e *refusedError) Error() string { return e.text }

func (e *refusedError) Unwrap() error { return ErrRefused }

// Notes returns the remarks on points, except those in Uncovered.
func (in *Result) Notes() []string {
	if len(in.Points) == 0 {
		return nil
	}
	list := slices.Clone(in.Warnings)
	refused := slices.DeleteFunc(slices.Clone(in.Refused), func(r *rewrite.Refusal) bool { return slices.Contains(in.reported, r.Error()) })
	for i, r := range refused {
		if i == 3 {
			return append(list, fmt.Sprintf("no point: %s more; 'cairn explain' says why", explain.Plural(len(refused)-i, "loop")))
		}
		list = append(list, "no point: "+r.Error())
	}
	return list
}
