// Package commcheck finds safe points: places of a program that no message
// crosses, so that each rank can save there by itself, and the saved states fit
// together.
//
// It follows the communication analysis of Rodríguez, Martín, González and
// Touriño. It interprets the program once for all ranks, in step, on values
// that have an entry for each rank. Sends, receives, collectives, requests and
// launched work go into a buffer, and leave it when they are matched. A place
// is safe if the buffer is empty whenever all ranks pass it.
//
//	commcheck.go       what callers use
//	scan.go, flow.go   before: which variables and statements matter
//	value.go           a value: one entry per rank, which is a number, a symbol
//	                   (not known, but the same wherever the symbol is the same)
//	                   or anything
//	state.go           a state: values, buffer, and which ranks are here
//	interpret.go       statements
//	branch.go,         conditions: ranks that know their way take it; a
//	divergence.go      condition that is the same symbol on all ranks makes two
//	                   states, which are joined where their buffers are the same
//	loop.go            loops: unrolled while the condition is known and
//	                   iterations are few, else to a fixed point
//	call.go,           calls: interpreted with the caller's state, and
//	recursion.go       remembered by it; recursion to a fixed point
//	comm.go            matching of messages and collectives
//	objects.go,        fields of objects, which are followed like variables; a
//	references.go,     reference that may lead to several objects is split
//	heap*.go,
//	object_pool.go,    persistent tables, so that a state costs what it changes
//	global_table.go
//
// The package is large because real programs keep peers, tags and communicators
// in structs, and compute them in functions and loops. Without objects,
// recursion and fixed points, many of their loops would be Unknown, and saving
// there would need coordination; the persistent tables keep the cost linear in
// the program's size.
//
// A place is Safe only if that is proved. What cannot be evaluated and decides
// about messages makes all that follows Unknown.
//
// The analysis relies on the program's form:
//
//   - A Group that is nil or evaluates to 0 is the world; one that is -1 is
//     none.
//   - A Collective whose name contains "dup" or "split" writes the new
//     communicator to Status[0]. For a split, Peer is the colour (negative:
//     none) and Tag the key (nil: as in the old one). The groups of a split
//     without Peer are not known.
//   - A source or tag of -1 is any. A send without a tag has tag 0.
//   - A break without a label ends the innermost loop or switch.
//   - A library's function (a Call without Procs) does not communicate.
package commcheck

import (
	"fmt"
	"sort"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// Options say what to prove. The zero value asks for 2, 3 and 4 ranks.
type Options struct {
	// Ranks are the numbers of ranks for which a place must be safe.
	Ranks []int
	// Uniform takes values that cannot be evaluated, and are not made of a
	// rank, a message or another value that differs, to be the same on all
	// ranks: arguments of the program, say, or what was read from a file that
	// all read. Conditions for which it mattered are in Result.Given. Without
	// it such values may differ from rank to rank.
	Uniform bool
	// Budget bounds the work: statements times ranks, for each number of ranks.
	// Beyond it everything is Unknown. Default four million.
	Budget int
}

// Kind says what is known of a place.
type Kind uint8

// Kinds.
const (
	// Safe: whenever all ranks come here, no message and no work is under way.
	Safe Kind = iota + 1
	// Unknown: it could not be proved.
	Unknown
	// Unsafe: there is a way on which something is, or not all ranks come here.
	Unsafe
)

func (k Kind) String() string {
	if names := []string{Safe: "safe", Unknown: "unknown", Unsafe: "unsafe"}; k > 0 && int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Reason is one cause of a verdict: the statement at At, called What, and why
// it counts.
type Reason struct {
	At   ir.Pos
	What string
	Why  string
}

func (r Reason) String() string {
	s := r.Why
	if r.What != "" {
		s = r.What + " " + s
	}
	if r.At == (ir.Pos{}) {
		return s
	}
	return r.At.String() + ": " + s
}

// Verdict is what is known of a place, and because of what. A safe place has no
// reasons. There are at most eight; those for Unsafe come first.
type Verdict struct {
	Kind    Kind
	Because []Reason
	// Never are the numbers of ranks with which no run without errors comes
	// here: the others decide.
	Never []int
}

// Result holds the verdicts of a program. It is only read, and may be by many.
type Result struct {
	// Given are the conditions that were taken to be the same on all ranks,
	// because of Options.Uniform, in the order of the source.
	Given []Reason
	// Work is how much was done, in small steps: statements looked at and
	// interpreted, values and objects copied or compared. It is the same each
	// time, and grows as the program does.
	Work int

	places map[any]int
	found  []Verdict
}

const maxReasons = 8

// Body is the verdict for the beginning of each iteration of l.
func (r *Result) Body(l *ir.Loop) Verdict { return r.at(bodyOf{l}) }

func (r *Result) at(key any) Verdict {
	if i, ok := r.places[key]; ok {
		v := r.found[i]
		v.Because = append([]Reason(nil), v.Because...)
		v.Never = append([]int(nil), v.Never...)
		return v
	}
	return Verdict{Kind: Unknown, Because: []Reason{{Why: "is not a statement of the program"}}}
}

// bodyOf is the key of the place at the beginning of a loop's body.
type bodyOf struct{ l *ir.Loop }

// Analyze interprets p for all numbers of ranks asked for. It does not change
// p.
func Analyze(p *ir.Program, o Options) *Result {
	if len(o.Ranks) == 0 {
		o.Ranks = []int{2, 3, 4}
	}
	if o.Budget <= 0 {
		o.Budget = 4 << 20
	}
	info := scan(p)
	res := &Result{places: info.places, found: make([]Verdict, len(info.places))}
	given := map[Reason]bool{}
	for _, n := range o.Ranks {
		var vs []Verdict
		if n < 1 {
			vs = make([]Verdict, len(info.places))
			for i := range vs {
				vs[i] = Verdict{Kind: Unknown, Because: []Reason{{Why: fmt.Sprintf("there is no run of %d ranks", n)}}}
			}
		} else {
			a := newAnalyzer(p, info, n, o)
			a.run()
			vs = a.verdicts()
			res.Work += a.steps + a.work + len(a.log)
			for _, g := range a.given {
				if !given[g] {
					given[g] = true
					res.Given = append(res.Given, g)
				}
			}
		}
		for i, v := range vs {
			res.found[i] = worse(res.found[i], v)
		}
	}
	res.Work += info.work
	for i, v := range res.found {
		if v.Kind == 0 {
			res.found[i] = Verdict{Unknown, []Reason{{Why: "no rank was seen to come here"}}, v.Never}
		}
	}
	sort.SliceStable(res.Given, func(i, j int) bool {
		x, y := res.Given[i].At, res.Given[j].At
		if x.File != y.File {
			return x.File < y.File
		}
		return x.Line < y.Line || x.Line == y.Line && x.Col < y.Col
	})
	return res
}

// worse joins two verdicts of one place.
func worse(a, b Verdict) Verdict {
	if b.Kind > a.Kind {
		a, b = b, a
	}
	for _, r := range b.Because {
		a.Because = addReason(a.Because, r)
	}
	a.Never = append(a.Never, b.Never...)
	sort.Ints(a.Never)
	return a
}

func addReason(list []Reason, r Reason) []Reason {
	if len(list) >= maxReasons {
		return list
	}
	for _, x := range list {
		if x.At == r.At && x.What == r.What {
			return list
		}
	}
	return append(list, r)
}
