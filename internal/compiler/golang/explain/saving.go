package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite/emit"
)

// PointInfo is a place where checkpoints may be taken.
type PointInfo struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Function string `json:"function"`
}

// Saving says what the checkpoints of a program hold. cairn explain --json
// prints it together with the explanation.
type Saving struct {
	*Explanation
	// Points are where checkpoints may be taken.
	Points []PointInfo `json:"points"`
	// Frames are the functions on the path to a point, and what is saved of
	// each.
	Frames []emit.FrameInfo `json:"frames,omitempty"`
	// Globals are the package variables that are saved.
	Globals []string `json:"globals,omitempty"`
	// Rebuilt are package variables that functions make again after a restart.
	Rebuilt []string `json:"rebuilt,omitempty"`
	// Uncovered says which work is not saved, and what to do about it.
	Uncovered []string `json:"uncovered,omitempty"`
	// Notes are remarks on the points.
	Notes []string `json:"notes,omitempty"`
	// Refused says why loops have no point, or why there is none at all.
	Refused []string `json:"refused,omitempty"`

	// Reported holds those of Refused that are shown elsewhere already.
	Reported map[string]bool `json:"-"`
}

// Text writes what is saved for people. It follows the text of the explanation.
func (s *Saving) Text(w io.Writer) error {
	var b strings.Builder
	if len(s.Frames) > 0 {
		b.WriteString("\nSaved of the functions on the path to a point\n")
	}
	for _, f := range s.Frames {
		what := "at its point"
		if f.Call {
			what = "in its call"
		}
		fmt.Fprintf(&b, "  %s %s at %s:%d\n", strings.ReplaceAll(f.Func, "_", "."), what, f.File, f.Line)
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, v := range f.Saved {
			name := cmp.Or(v.Name, "("+v.What+")")
			size := fmt.Sprintf("%d B", v.Size)
			if v.Refers {
				size += " and what it refers to"
			}
			why := ""
			if v.Read > 0 {
				why = fmt.Sprintf("read at line %d", v.Read)
			}
			if v.Captured {
				why = strings.TrimSuffix("captured, "+why, ", ")
			}
			fmt.Fprintf(t, "    %s\t%s\t%s\t%s\n", name, v.Type, size, why)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for _, a := range f.Again {
			fmt.Fprintf(&b, "    computed again: %s, line %d\n", a.What, a.Line)
		}
	}
	if len(s.Globals) > 0 {
		fmt.Fprintf(&b, "Saved package variables\n  %s\n", strings.Join(s.Globals, ", "))
	}
	if len(s.Rebuilt) > 0 {
		fmt.Fprintf(&b, "Made again after a restart\n  %s\n", strings.Join(s.Rebuilt, "\n  "))
	}
	if len(s.Frames) > 0 {
		b.WriteString("Package initialisation runs again at every start\n")
	}
	if len(s.Uncovered) > 0 {
		b.WriteString("Work that is not saved\n")
		for _, n := range s.Uncovered {
			fmt.Fprintf(&b, "  %s\n", n)
		}
	}
	if len(s.Notes) > 0 {
		b.WriteString("Notes\n")
		for _, n := range s.Notes {
			fmt.Fprintf(&b, "  %s\n", n)
		}
	}
	if refused := slices.DeleteFunc(slices.Clone(s.Refused), func(r string) bool { return s.Reported[r] }); len(refused) > 0 {
		b.WriteString("Refused\n")
		for i, r := range refused {
			if i == len(refused)-1 && strings.HasSuffix(r, ":") {
				r += " no chosen loop can have a point, see above"
			}
			fmt.Fprintf(&b, "  %s\n", r)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
