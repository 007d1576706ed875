// Package explain finds where a program does its work and what is in flight
// there. Explain ranks the loops (package hotloops), analyses messages
// (package commcheck), goroutines (goroutines.go) and devices (devices.go).
// Its result is what cairn explain prints.
package explain

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cairnrun/cairn/internal/compiler/commcheck"
	"github.com/cairnrun/cairn/internal/compiler/golang/divide"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/lower"
	"github.com/cairnrun/cairn/internal/compiler/hotloops"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// Options are the options of Explain. The zero value analyses messages for 2, 3
// and 4 ranks.
type Options struct {
	// Ranks are the numbers of ranks for which points must be safe.
	Ranks []int
	// Samples, if not nil, choose the loops in place of the count.
	Samples *Samples
}

// Explanation says where the checkpoints of a program are taken, and why. cairn
// explain --json prints it.
type Explanation struct {
	Package    string  `json:"package"`
	Files      int     `json:"files"`
	Lines      int     `json:"lines"`
	Statements float64 `json:"statements"` // of the whole program, as package hotloops counts
	Accesses   float64 `json:"accesses"`
	// Ranks are the numbers of ranks for which messages were analysed;
	// empty if the program has no messages.
	Ranks []int `json:"ranks,omitempty"`
	// Loops are the loops that main reaches, the ranked ones first.
	Loops []LoopInfo `json:"loops"`
	// Knee and Gap are how many ranked loops are before the knee and before
	// the gap.
	Knee int `json:"knee"`
	Gap  int `json:"gap"`
	// Modes are the modes of work, of which a run does one. Loops are
	// chosen in each as if there were no other. Empty if there is only one.
	Modes []ModeInfo `json:"modes,omitempty"`
	// Devices describes the use of devices; nil if there is none.
	Devices *DeviceInfo `json:"devices,omitempty"`
	// Uniform lists what was assumed to be the same on all ranks.
	Uniform    []string     `json:"uniform,omitempty"`
	AssumedNil int          `json:"assumed_nil"` // conditions in which an error is assumed to be nil
	Warnings   []string     `json:"warnings,omitempty"`
	Phases     []load.Phase `json:"phases"`

	// Division says how the program divides its work among devices; nil if
	// it has none, or saves its state itself.
	Division *divide.Result `json:"-"`

	curve string
	// Work is the number of steps of the analysis of messages.
	Work int `json:"-"`

	liveness *liveness
	saving   *Saving // set by SetPoints
}

// ModeInfo describes a mode of a program.
type ModeInfo struct {
	Name string `json:"name"`
	File string `json:"file"` // where the program decides
	Line int    `json:"line"`
	// Statements, Accesses, Knee and Gap are those of the mode.
	Statements float64 `json:"statements"`
	Accesses   float64 `json:"accesses"`
	Knee       int     `json:"knee"`
	Gap        int     `json:"gap"`
	// Malleable reports whether the mode can continue with another number
	// of devices; nil if the program has none.
	Malleable *bool `json:"malleable,omitempty"`

	curve string
}

// LoopInfo describes a loop.
type LoopInfo struct {
	File     string   `json:"file"`
	Line     int      `json:"line"`
	Function string   `json:"function"`
	Rank     int      `json:"rank,omitempty"` // from 1; 0 if it is not ranked
	S        float64  `json:"s"`
	A        float64  `json:"a"`
	H        *float64 `json:"h,omitempty"` // nil if infinite
	Chosen   bool     `json:"chosen"`
	Why      string   `json:"why"`
	// Messages is safe, unsafe or unknown, for the beginning of the body.
	// It is empty if the loop is not chosen or the program has no messages.
	Messages string   `json:"messages,omitempty"`
	Reasons  []string `json:"reasons,omitempty"`
	// Unreached are the numbers of ranks for which no run without errors comes
	// here.
	Unreached []int `json:"unreached,omitempty"`
	// Goroutines are those that may be alive here.
	Goroutines []string `json:"goroutines,omitempty"`
	// Point reports whether the loop gets a point. A chosen loop may get
	// none; NoPoint says why. SetPoints sets both.
	Point   bool   `json:"point"`
	NoPoint string `json:"no_point,omitempty"`

	// Loop is the loop as hotloops counted it.
	Loop *hotloops.Loop `json:"-"`
}

// Explain chooses the loops of a program, and finds which messages may be in
// flight and which goroutines may be alive there.
func Explain(p *lower.Program, o Options) *Explanation {
	e := &Explanation{Package: p.Package, Files: p.Files, Lines: p.Lines, AssumedNil: p.AssumedNil, Warnings: slices.Clone(p.Warnings), Phases: slices.Clone(p.Source.Phases)}
	begin := time.Now()
	phase := func(name string) {
		now := time.Now()
		e.Phases = append(e.Phases, load.Phase{Name: name, Seconds: now.Sub(begin).Seconds()})
		begin = now
	}
	p.Source.Begin("ranking loops")
	r := hotloops.Measure(p.Program)
	how := hotloops.Options{Points: p.Points, Skip: p.Skip}
	if o.Samples != nil {
		how.Profile = o.Samples.Shares(p)
	}
	c := r.Choose(how)
	var modes []hotloops.Mode
	if how.Profile == nil {
		modes = hotloops.Modes(p.Program, how)
	}
	chosen := e.chooseInModes(c, modes)
	phase("loops")
	e.Statements, e.Accesses = r.S, r.A
	e.Knee, e.Gap, e.curve = c.Candidates, c.Kept, c.Curve()
	e.Warnings = append(e.Warnings, c.Comments...)
	if len(modes) == 0 {
		e.Warnings = append(e.Warnings, c.Warnings...)
	}
	e.liveness = newLiveness(p.Program)
	var found *commcheck.Result
	if r.Comm > 0 && len(chosen) > 0 {
		e.Ranks = o.Ranks
		if len(e.Ranks) == 0 {
			e.Ranks = []int{2, 3, 4}
		}
		found = commcheck.Analyze(p.Program, commcheck.Options{Ranks: e.Ranks, Uniform: true})
		e.Work = found.Work
		for _, g := range found.Given {
			e.Uniform = append(e.Uniform, g.String())
		}
		phase("messages")
	}
	for _, v := range c.Loops {
		l := LoopInfo{File: v.File, Line: v.Line, Function: v.Proc.Name, S: v.S, A: v.A, Chosen: v.Chosen, Why: v.Why,
			Rank: slices.Index(c.Ranked, v.Loop) + 1, Loop: v.Loop}
		if len(modes) > 0 {
			why, ok := chosen[v.Stmt]
			switch {
			case ok:
				l.Why = why
			case v.Chosen:
				l.Why = "not chosen: it is before the gap in none of the program's modes"
			}
			l.Chosen, v.Chosen = ok, ok
		}
		if !math.IsInf(v.H, 0) {
			h := v.H
			l.H = &h
		}
		if v.Chosen {
			l.Goroutines = e.liveness.at(v.Loop)
			if found != nil {
				verdict := found.Body(v.Stmt)
				l.Messages, l.Unreached = verdict.Kind.String(), verdict.Never
				for _, b := range verdict.Because {
					l.Reasons = append(l.Reasons, b.String())
				}
			}
		}
		e.Loops = append(e.Loops, l)
	}
	e.Devices, e.Division = deviceInfo(p)
	for i, m := range modes {
		e.Modes[i].setMalleable(e.Devices, m)
	}
	return e
}

// setMalleable sets whether a mode is malleable, by what it saves.
func (i *ModeInfo) setMalleable(d *DeviceInfo, m hotloops.Mode) {
	if d == nil {
		return
	}
	yes := true
	for _, x := range d.Depends {
		if x.Type != "" {
			yes = yes && !strings.Contains(m.Name, "(*"+x.Type+")") && !strings.Contains(m.Name, "("+x.Type+")")
		} else {
			yes = yes && x.Function != "" && !m.Report.Reaches(x.Function)
		}
	}
	i.Malleable = &yes
}

// chooseInModes returns the chosen loops with the reason for each, and records
// the modes.
func (e *Explanation) chooseInModes(c *hotloops.Choice, modes []hotloops.Mode) map[*ir.Loop]string {
	chosen := make(map[*ir.Loop]string)
	for _, v := range c.Loops {
		switch {
		case !v.Chosen:
		case len(modes) == 0:
			chosen[v.Stmt] = ""
		case v.ByComment: // also in parts that are no mode
			chosen[v.Stmt] = v.Why
		}
	}
	for _, m := range modes {
		for _, v := range m.Loops {
			if !v.Chosen || v.ByComment {
				continue
			}
			if old, ok := chosen[v.Stmt]; !ok {
				chosen[v.Stmt] = "in " + m.Name + " " + v.Why
			} else if !strings.HasSuffix(old, "too") {
				chosen[v.Stmt] = old + "; in other modes too"
			}
		}
		for _, w := range m.Warnings {
			if !slices.Contains(e.Warnings, w) {
				e.Warnings = append(e.Warnings, w)
			}
		}
		e.Modes = append(e.Modes, ModeInfo{m.Name, m.At.File, m.At.Line, m.Report.S, m.Report.A, m.Candidates, m.Kept, nil, m.Curve()})
	}
	return chosen
}

// Text writes the explanation for people: all of it, or only the ranked loops;
// with times, or without.
func (e *Explanation) Text(w io.Writer, all, times bool) error {
	var b strings.Builder
	ranked, chosen := 0, 0
	for _, l := range e.Loops {
		if l.Rank > 0 {
			ranked++
		}
		if l.Chosen {
			chosen++
		}
	}
	fmt.Fprintf(&b, "%s: %s in %s; %s, of which %d %s ranked and %d chosen%s\n", e.Package,
		Plural(e.Lines, "line"), Plural(e.Files, "file"), Plural(len(e.Loops), "loop"), ranked, are(ranked), chosen, e.pointCount())
	fmt.Fprintf(&b, "main and its callees count %.6g statements and %.6g accesses\n", e.Statements, e.Accesses)
	if len(e.Modes) > 0 {
		fmt.Fprintf(&b, "\nThe program has several modes of work, and loops are chosen for each:\n")
		for _, m := range e.Modes {
			fmt.Fprintf(&b, "  %s, decided at %s:%d; it counts %.6g statements and %.6g accesses", m.Name, m.File, m.Line, m.Statements, m.Accesses)
			switch {
			case m.Malleable == nil:
			case *m.Malleable:
				b.WriteString(", and is malleable")
			default:
				b.WriteString(", and is pseudo-malleable")
			}
			b.WriteString("\n")
		}
	}
	e.writePoints(&b)
	b.WriteString("\nLoops\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "  \trank\tloop\tfunction\ts\ta\th\n")
	for _, l := range e.Loops {
		if l.Rank == 0 && !l.Chosen && !l.Point && !all {
			continue
		}
		mark, rank, h := " ", "-", "-"
		if l.Chosen {
			mark = "*"
		} else if l.Point {
			mark = "+"
		}
		if l.Rank > 0 {
			rank = fmt.Sprint(l.Rank)
		}
		if l.H != nil {
			h = fmt.Sprintf("%.4f", *l.H)
		}
		fmt.Fprintf(t, "%s\t%s\t%s:%d\t%s\t%.6g\t%.6g\t%s\n", mark, rank, l.File, l.Line, l.Function, l.S, l.A, h)
	}
	t.Flush()
	if all {
		b.WriteString("\nWhy\n")
		for _, l := range e.Loops {
			fmt.Fprintf(&b, "  %s:%d: %s\n", l.File, l.Line, l.reason())
		}
	}
	if len(e.Modes) > 0 {
		for _, m := range e.Modes {
			b.WriteString("\nh, in " + m.Name + "\n" + m.curve)
		}
	} else if ranked > 1 {
		b.WriteString("\nh\n" + e.curve)
	}
	if len(e.Ranks) > 0 {
		b.WriteString("\nMessages were analysed for " + joinNumbers(e.Ranks) + " ranks, in runs without errors")
		if len(e.Uniform) > 0 {
			b.WriteString(".\nAssumed to be the same on all ranks:\n")
			for i, g := range e.Uniform {
				if i == 5 && len(e.Uniform) > 6 && !all {
					fmt.Fprintf(&b, "  and %d more, which --all shows\n", len(e.Uniform)-i)
					break
				}
				b.WriteString("  " + g + "\n")
			}
		} else {
			b.WriteString(".\n")
		}
	}
	if e.Devices != nil {
		e.Devices.writeText(&b, all)
	}
	if len(e.Warnings) > 0 {
		b.WriteString("\nWarnings\n")
		for _, s := range e.Warnings {
			b.WriteString("  " + s + "\n")
		}
	}
	if times {
		b.WriteString("\nTimes\n")
		for _, p := range e.Phases {
			fmt.Fprintf(&b, "  %-22s %8.3f s\n", p.Name, p.Seconds)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (e *Explanation) writeLoop(b *strings.Builder, l LoopInfo) {
	fmt.Fprintf(b, "  %s:%d in %s\n", l.File, l.Line, l.Function)
	why := l.Why
	if l.NoPoint == "" {
		why = l.reason()
	}
	fmt.Fprintf(b, "    %s\n", why)
	switch l.Messages {
	case "safe":
		b.WriteString("    messages: safe, none is in flight there\n")
	case "unsafe":
		b.WriteString("    messages: unsafe; a checkpoint there needs a round of all ranks, and saves the messages in flight\n")
	case "unknown":
		b.WriteString("    messages: unknown; a checkpoint there needs a round of all ranks, and saves the messages in flight\n")
	}
	for _, s := range l.Reasons {
		fmt.Fprintf(b, "      %s\n", s)
	}
	if len(l.Unreached) > 0 {
		fmt.Fprintf(b, "      with %s ranks, only runs with an error come here\n", joinNumbers(l.Unreached))
	}
	if strings.HasPrefix(l.NoPoint, "goroutines") {
		return // they are named there
	}
	if len(l.Goroutines) > 0 {
		b.WriteString("    goroutines that may be alive there:\n")
	}
	for _, s := range l.Goroutines {
		fmt.Fprintf(b, "      %s\n", s)
	}
}

// Plural returns a number with a noun, in the plural if there is not one.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func joinNumbers(list []int) string {
	var s []string
	for _, n := range list {
		s = append(s, fmt.Sprint(n))
	}
	if n := len(s); n > 1 {
		return strings.Join(s[:n-1], ", ") + " and " + s[n-1]
	}
	return strings.Join(s, "")
}
