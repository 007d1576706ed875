package hotloops

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/ir"
	"github.com/cairnrun/cairn/internal/compiler/ir/irtext"
)

// mustParse returns the program that the text describes.
func mustParse(text string) *ir.Program {
	p, err := irtext.Parse("test", text)
	if err != nil {
		panic(err)
	}
	return p
}

// TestMeasure_Counts checks the statements and accesses that each kind of
// statement counts for.
func TestMeasure_Counts(t *testing.T) {
	const f = "\nproc f(p) { p = p + p; p = p }\n" // 2, 3
	for _, c := range []struct {
		name, body string
		s, a       float64
	}{
		{"assignment", "x = y + y * z", 1, 3},
		{"constant", "x = 1", 1, 0},
		{"declaration", "var v; v = 2", 1, 0},
		{"initialiser", "var v; v = x", 1, 1},
		{"label", "label L; goto L", 1, 0},
		{"break", "for { break }", 1, 0},
		{"continue", "for { continue }", 2, 0},
		{"return", "return x, y", 1, 2},
		{"if", "if x < y { a = b; a = b; a = b } else { a = b; a = b }", 2, 2},
		{"if without else", "if x { a = b; a = b; a = b }", 1, 1},
		{"if of one", "if x { a = b }", 0, 0},
		{"nested if", "if x { if y { a = b; a = b; a = b; a = b } }", 1, 1},
		{"switch", "switch x { case 1, 2 { a = b } case y { } default { a = b + c } }", 5, 3},
		{"loop", "for i = x; i < y; i = i + z { a = b }", 2, 1},
		{"nested loops", "for i < n { for j < n { a = b + c } }", 3, 2},
		{"do while", "do { a = b } while i < n", 2, 3},
		{"call", "call f(x + y + z)", 2, 3},
		{"two calls", "call f(x); call f(x)", 4, 6},
		{"call in loop", "for i < n { call f(x) }", 3, 3},
		{"library", "call sin(x + y)", 1, 2},
		{"no source", "call nosource(x, y, z)", 1, 3},
		{"dynamic", "call f|g|nosource(x, x)", 3, 4},
		{"dynamic, any order", "call nosource|g|f(x, x)", 3, 4},
		{"send", "send to x tag y", 1, 2},
		{"barrier", `collective "barrier"`, 1, 0},
		{"launch", "launch f; join", 3, 3},
		{"launch of unknown", "launch ? reads x", 1, 1},
		{"kernel", `kernel "k" in x, y out y`, 1, 2},
		{"never", "for 0 { a = b }", 1, 0},
		{"no iteration", "for i = 0; i < 0; i = i + 1 trip 0 { a = b; call f(x) }", 1, 0},
		{"single iteration", "for i = 0; i < 1; i = i + 1 trip 1 { a = b }", 2, 1},
		{"do while false", "do { a = b } while 0", 2, 1},
	} {
		p := mustParse("proc main { " + c.body + " }" + f + "proc g() { a = b; a = b; a = b + c }\nextern nosource(a)\n")
		if r := Measure(p); r.S != c.s || r.A != c.a {
			t.Errorf("%s: %s has s %v and a %v, not %v and %v", c.name, c.body, r.S, r.A, c.s, c.a)
		}
	}
}

// TestMeasure_Recursion checks the counts of procedures that call each other,
// and why loops in them are not ranked.
func TestMeasure_Recursion(t *testing.T) {
	p := mustParse(`
		proc main { call even(n); call odd(n) }
		proc even(n) {
			for i < n {
				a = b + c
				call odd(n)
			}
		}
		proc odd(n) {
			x = y
			for j < n { x = z }
			call even(n)
			call leaf(n)
		}
		proc leaf(n) { for k < n { x = z } }
	`)
	r := Measure(p)
	// even: loop 1, assignment 1 and 2, call 1 and 1; odd: 1 and 1, loop 2 and
	// 1, call 1 and 1, leaf 2 and 1.
	const s, a = 3 + 6, 3 + 4
	if r.S != 2*s || r.A != 2*a {
		t.Errorf("s %v and a %v, not %v and %v", r.S, r.A, 2*s, 2*a)
	}
	want := map[int]string{4: "9 7 ", 11: "2 1 ", 15: "2 1 its procedure leaf is called in the loop at test:4"}
	for _, l := range r.Loops {
		if got := fmt.Sprintf("%v %v %s", l.S, l.A, l.Out); got != want[l.Line] {
			t.Errorf("line %d: %s", l.Line, got)
		}
	}
	if r.Population != 2 || len(r.Loops) != 3 {
		t.Errorf("%d of %d loops count", r.Population, len(r.Loops))
	}
	// A search that calls itself in its loop: the loop is the outermost one.
	r = Measure(mustParse("proc main { call solve(0) }\nproc solve(r) { for c < 8 { if ok { call solve(r + 1); x = y } } }"))
	if r.Population != 1 || r.Loops[0].S != 2 || r.S != 2 {
		t.Errorf("search: %+v", r.Loops[0])
	}
	// Two loops whose bodies call each other's procedure: the first one is
	// outermost.
	r = Measure(mustParse("proc main { call f() }\nproc f() { for x { x = y; call g() } }\nproc g() { for x { x = y; call f() } }"))
	if r.Population != 1 || r.Loops[0].Line != 2 || !strings.Contains(r.Loops[1].Out, "only through other loops of the same recursion") {
		t.Errorf("%+v", r.Loops)
	}
}

func lines(list []*Loop) (l []int) {
	for _, x := range list {
		l = append(l, x.Line)
	}
	return l
}

// TestMeasure_WhichLoopsAreRanked shows which loops are ranked, and that each
// of the others has a reason.
func TestMeasure_WhichLoopsAreRanked(t *testing.T) {
	p := mustParse(`proc main {
		for i < n {                    # 2
			for j < n { a = b }    # 3
			call inner(a)
		}
		call inner(a)
		call outer(a)
		for c { a = 1 }                # 8: no accesses
		for ; i < 1; i = i + 1 trip 1 {   # 9
			for j < n { a = b + c }      # 10
			call deep(a)
		}
		for 0 { for x { a = b }; call dead(a) }
		do { for y { x = y } } while 0    # 14
		launch worker
	}
	proc inner(a) { for k { a = b } }      # 17
	proc outer(a) { if x { for k { a = b + b + b } } }      # 18
	proc deep(a) { call deeper(a) }
	proc deeper(a) { for k { a = b + b } }  # 20
	proc dead(a) { for k { a = b } }  # 21
	proc never(a) { for k { a = b } }  # 22
	proc worker() { for k { a = b } } # 23
	`)
	r := Measure(p)
	in := lines(r.Loops[:r.Population])
	slices.Sort(in)
	if want := []int{2, 10, 14, 18, 20, 23}; !slices.Equal(in, want) {
		t.Errorf("the population is in lines %v, not %v", in, want)
	}
	why := map[int]string{
		3:  "it is inside the loop at test:2",
		17: "its procedure inner is called in the loop at test:2",
		8:  "it reads no variables",
		9:  "it has only one iteration",
		13: "it never runs",
		14: "it has only one iteration",
	}
	for _, l := range r.Loops[r.Population:] {
		if l.Out != why[l.Line] {
			t.Errorf("line %d: %q", l.Line, l.Out)
		}
	}
	if len(r.Loops) != 12 {
		t.Errorf("%d loops: %v", len(r.Loops), lines(r.Loops))
	}
	if r := Measure(&ir.Program{}); r.Population != 0 || len(r.Choose(Options{}).Warnings) != 1 {
		t.Error("a program without main")
	}
}

// TestChoose_SeveralLoopsOnALine distinguishes loops on one line.
func TestChoose_SeveralLoopsOnALine(t *testing.T) {
	r := Measure(mustParse("proc main { for i { a = b }; for j { a = b + c; a = b + c } }"))
	for col, want := range map[int]int{0: 13, 13: 13, 30: 30, 7: 13} {
		c := r.Choose(Options{Skip: []ir.Pos{at(1)}, Points: []ir.Pos{{File: "test", Line: 1, Col: col}}, Profile: map[ir.Pos]float64{}})
		if v := c.byLoop[c.find(ir.Pos{File: "test", Line: 1, Col: col}, true)]; v.Col != want || !v.Chosen {
			t.Errorf("column %d means %d", col, v.Col)
		}
	}
}

// TestMeasure_UntimedIteration has the shape of NPB CG: all code runs once
// before the main loop.
func TestMeasure_UntimedIteration(t *testing.T) {
	c := Measure(mustParse(`proc main {
		for i < n { x = 1; z = y }
		for i = 1; i <= 1; i = i + 1 trip 1 { call grad(x); for j < n { n1 = n1 + x; n2 = n2 + z } }
		for i = 1; i <= niter; i = i + 1 { call grad(x); for j < n { n1 = n1 + x; n2 = n2 + z }; zeta = n1 }
	}
	proc grad(x) { for i < 25 trip 25 { for j < n { sum = sum + a + p; q = sum; d = d + p + q; z = z + p } ; send to p reads q } }
	`)).Choose(Options{})
	if l := lines(c.Chosen()); !slices.Equal(l, []int{4}) || len(c.Warnings) > 0 {
		t.Errorf("lines %v, warnings %q\n%s", l, c.Warnings, c.Curve())
	}
}

// work is a program with a main loop and small loops around it.
const work = `proc main {
	for i < n { a = b }                        # 2
	for i < n { a = b; a = b }                 # 3
	for t < steps {                            # 4
		for i < n { for j < n { a = b + c + d; b = a; c = a; d = a; a = b + c + d; b = a; c = a; d = a } }
		for i < n { a = b }
		call f(a)
	}
	for i < n { a = b }                        # 9
	call report(a)
}
proc f(a) { for i < n { a = b + c; a = b + c; a = b + c; a = b + c } }   # 12
proc report(a) { a = b }
`

func at(n int) ir.Pos { return ir.Pos{File: "test", Line: n} }

// TestChoose_Options checks which loops are chosen, and the warnings, with each
// option.
func TestChoose_Options(t *testing.T) {
	r := Measure(mustParse(work))
	for _, c := range []struct {
		name     string
		o        Options
		want     []int
		warnings int
	}{
		{"heuristic", Options{}, []int{4}, 0},
		{"point", Options{Points: []ir.Pos{at(3)}}, []int{4, 3}, 0},
		{"point above", Options{Points: []ir.Pos{at(11)}}, []int{4, 12}, 0},
		{"nested point", Options{Points: []ir.Pos{at(6)}}, []int{4, 6}, 0},
		{"no loop", Options{Points: []ir.Pos{at(13)}, Skip: []ir.Pos{at(10)}}, []int{4}, 2},
		{"skip", Options{Skip: []ir.Pos{at(4)}}, []int{3}, 0},
		{"both", Options{Points: []ir.Pos{at(4)}, Skip: []ir.Pos{at(4)}}, []int{4}, 1},
		{"profile", Options{Profile: map[ir.Pos]float64{at(3): 0.4, at(9): 0.1, at(4): 0.05}}, []int{3, 9}, 0},
		{"inner profile", Options{Profile: map[ir.Pos]float64{at(6): 0.9}}, []int{4}, 0},
		{"empty profile", Options{Profile: map[ir.Pos]float64{at(3): 0.01}}, []int{4}, 1},
		{"profile and skip", Options{Profile: map[ir.Pos]float64{at(3): 0.4, at(9): 0.3}, Skip: []ir.Pos{at(3)}}, []int{9}, 0},
	} {
		got := r.Choose(c.o)
		if l := lines(got.Chosen()); !slices.Equal(l, c.want) || len(got.Warnings)+len(got.Comments) != c.warnings {
			t.Errorf("%s: lines %v and warnings %q %q, not %v", c.name, l, got.Warnings, got.Comments, c.want)
		}
		for _, v := range got.Loops {
			if strings.HasPrefix(v.Why, "chosen: ") != v.Chosen || !v.Chosen && !strings.HasPrefix(v.Why, "not chosen: ") {
				t.Errorf("%s: %s: %q", c.name, v.Pos, v.Why)
			}
		}
	}
}

// TestChoose_Reasons checks the reason for each loop that is chosen or not.
func TestChoose_Reasons(t *testing.T) {
	p := mustParse(work)
	c := Measure(p).Choose(Options{})
	var got []string
	for _, v := range c.Loops {
		got = append(got, fmt.Sprintf("%s: %s", v.Pos, v.Why))
	}
	want := []string{
		"test:4: chosen: number 1 of 4 loops, as its h is 0.2525, with 18 of 26 statements and 21 of 26 accesses; the gap is after number 1",
		"test:3: not chosen: number 2 of 4 loops, as its h is",
		"test:2: not chosen: number 3 of 4 loops, as its h is",
		"test:9: not chosen: number 4 of 4 loops, as its h is",
		"test:5: not chosen: it is inside the loop at test:4",
		"test:5: not chosen: it is inside the loop at test:5",
		"test:6: not chosen: it is inside the loop at test:4",
		"test:12: not chosen: its procedure f is called in the loop at test:4",
	}
	if len(got) != len(want) {
		t.Fatalf("%q", got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%q, not %q", got[i], want[i])
		}
	}
	curve := c.Curve()
	t.Log("\n" + curve + strings.Join(got, "\n"))
	if l := strings.Split(curve, "\n"); len(l) != 8 || !strings.HasPrefix(l[1], "*    1 ") || !strings.HasSuffix(l[2], " gap") || !strings.HasSuffix(l[4], " knee") {
		t.Errorf("curve:\n%s", curve)
	}
	if chosen := c.Chosen(); len(chosen) != 1 || chosen[0].Stmt != p.Main.Body[2].(*ir.Loop) {
		t.Errorf("%v are chosen", chosen)
	}
}

// TestChoose_Descends shows that a loop inside is chosen as well if the chosen
// one has few iterations.
func TestChoose_Descends(t *testing.T) {
	text := strings.Replace(work, "for t < steps {", "for t < steps trip 5 {", 1)
	r := Measure(mustParse(text))
	for few, want := range map[int][]int{0: {4, 5}, 5: {4, 5}, 4: {4}, -1: {4}} {
		c := r.Choose(Options{Descend: few})
		if l := lines(c.Chosen()); !slices.Equal(l, want) {
			t.Errorf("up to %d rounds: lines %v, not %v", few, l, want)
		}
	}
	// A loop with hardly any of the outer loop's work stays closed.
	body := strings.Repeat("x = y + z + y + z; ", 20)
	r = Measure(mustParse("proc main { for i < 3 trip 3 { " + body + "; for j < n { x = y } } }"))
	if c := r.Choose(Options{}); len(c.Chosen()) != 1 || !strings.Contains(c.Loops[1].Why, "too little of the loop at test:1") {
		t.Errorf("%d chosen: %s", len(c.Chosen()), c.Loops[1].Why)
	}
	// A comment overrides the descent.
	r = Measure(mustParse("proc main { for i < 3 trip 3 {\n for j < n { x = y }\n } }"))
	if c := r.Choose(Options{Skip: []ir.Pos{at(2)}}); !slices.Equal(lines(c.Chosen()), []int{1}) {
		t.Errorf("lines %v", lines(c.Chosen()))
	}
	// Two levels, through calls and a loop with a single iteration.
	r = Measure(mustParse(`proc main { for i < 3 trip 3 { x = y; for j < 1 trip 1 { call f(x) } } }
		proc f(x) { call g(x); x = 1 }
		proc g(x) { for i < 2 trip 2 { for j < n { x = y + z } } }`))
	c := r.Choose(Options{})
	if l := lines(c.Chosen()); !slices.Equal(l, []int{1, 3, 3}) {
		t.Errorf("lines %v", l)
	}
	for _, v := range c.Loops {
		if v.Chosen && v.Line == 3 && !strings.Contains(v.Why, "iterations; its h is") {
			t.Error(v.Why)
		}
	}
}

// TestChoose_WarnsOfDominantLoop shows which loops are reported because they
// have most of the communication and are not chosen.
func TestChoose_WarnsOfDominantLoop(t *testing.T) {
	const big = "a = b + c + d; a = b + c + d; a = b + c + d; a = b + c + d; a = b + c + d; a = b + c + d; a = b + c + d"
	for _, c := range []struct{ name, body, warn string }{
		{"no communication", "for x { " + big + " }", ""},
		{"in the chosen loop", "for x { " + big + "; send to 1 }\n for x { a = b }", ""},
		{"outside any loop", "send to 1\n for x { " + big + " }", ""},
		{"in the small loop", "for x { " + big + " }\n for x { for y { send to p } }", "test:2: this loop has most of the program's communication"},
		{"deeper in the small loop", "for x { " + big + "; send to p }\n for x { for y { send to p } }", "test:2: this loop"},
		{"deeper in the chosen loop", "for x { " + big + "; for y { send to p } }\n for x { send to p }", ""},
		{"by calls", "for x { " + big + " }\n for x { call f(x) }", "test:2: this loop has most of the program's kernel launches"},
		{"by calls in the chosen loop", "for x { " + big + "; call f(x) }\n for x { a = b }", ""},
		{"by launches in the chosen loop", "for x { " + big + "; launch f }\n for x { a = b }", ""},
		{"launched once", "for x { " + big + " }\n launch l", "test:5: this loop has most of the program's communication"},
		{"recursive", "for x { " + big + " }\n call r(x)", "test:4: this loop has most of the program's communication"},
	} {
		p := mustParse("proc main { " + c.body + " }\nproc f(x) { kernel \"k\" in x }\nproc r(x) { for y { call r(x); send to x } }\nproc l() { for y { send to x } }")
		got := Measure(p).Choose(Options{}).Warnings
		if c.warn == "" && len(got) > 0 || c.warn != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.warn)) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// modes is a program with several modes.
const modes = `
proc main(x) {
    call setup(x)
    call "run" heavy|light(x)
    switch x {
    case 1 { for i = 0; i < x; i = i + 1 { x = x + i } }
    case 2 { x = 1 }
    }
}
proc setup(x) { for i = 0; i < x; i = i + 1 { x = i } }
proc heavy(x) {
    for i = 0; i < x; i = i + 1 {
        x = x + i + i; x = x + i + i; x = x + i + i; x = x + i + i; x = x + i + i
        x = x + i + i; x = x + i + i; x = x + i + i; x = x + i + i; x = x + i + i
        x = x + i + i; x = x + i + i; x = x + i + i; x = x + i + i; x = x + i + i
        x = x + i + i; x = x + i + i; x = x + i + i; x = x + i + i; x = x + i + i
    }
}
proc light(x) {
    for i = 0; i < x; i = i + 1 { x = x + i; x = x + i; x = x + i }
}
`

// TestModes_Several has a program that does one of two things, each with a hot
// loop of its own.
func TestModes_Several(t *testing.T) {
	p := mustParse(modes)
	if l := lines(Measure(p).Choose(Options{}).Chosen()); !slices.Equal(l, []int{12}) {
		t.Errorf("without modes lines %v are chosen", l)
	}
	list := Modes(p, Options{})
	if len(list) != 2 || list[0].Name != "heavy" || list[1].Name != "light" {
		t.Fatalf("modes %v", list)
	}
	for i, want := range [][]int{{12}, {20}} {
		if l := lines(list[i].Chosen()); !slices.Equal(l, want) {
			t.Errorf("in %s lines %v are chosen, want %v", list[i].Name, l, want)
		}
	}
	if list := Modes(mustParse(work), Options{}); len(list) > 0 {
		t.Errorf("a program that does one thing has modes %v", list)
	}
}

// TestMeasure_KernelProcedures checks the counts of procedures that launch
// kernels.
func TestMeasure_KernelProcedures(t *testing.T) {
	p := mustParse(`
proc main(x) {
    for i = 0; i < x; i = i + 1 { kernel "k" in x }
    kernel "k" in x
}
proc k(x) { for j = 0; j < x; j = j + 1 { x = x + j } }
`)
	k := p.Procs[1]
	ir.Each(p.Main.Body, func(s ir.Stmt) {
		if s, ok := s.(*ir.Kernel); ok {
			s.Procs = []*ir.Proc{k}
		}
	})
	r := Measure(p)
	if r.Population != 1 || r.Loops[0].S != 3 || r.Loops[0].A != 2 {
		t.Errorf("the loop counts %v and %v, of %d", r.Loops[0].S, r.Loops[0].A, r.Population)
	}
}
