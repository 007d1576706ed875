package irtext

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

const everything = `
global step, shared total, shared low of grid
extern dgemm(a, b) (c)

proc main(n) (code) {
	var i, shared x
	i, x = 0, n + 1
	_ = ?(i, x)
	call f(i, n*2) -> x, _
	call "op.Run" f|g(i) reads
	call strings.Cut(i, i); call "f" ?(1); call "a b" ?(2); call "send" nothing(i) reads
	if rank == 0 { step = 1 } else if !(i < 2) { step = 2 } else { exit }
	switch i { case 1, 2 { step = 3 }
		default { break } }
	switch { case i < 2 { i = 2 } }
	for { break }
	for trip 3 { i = 1 }
	for i < n { continue }
	for i = 0; i < 10; i = i + 1 trip 10 { total = total + i }
	L: for i = 0; i < n; i = i + 1 { break L }
	for { call f(1, 2); i = 2 }; i < n; { call g(3) } { continue }
	for ; ; { call g(3) } { i = 2 }
	M: do { i = i - 1 } while i > 0 trip 3 reads i, n
	do { i = 2 } while i < n
	goto N
	label N
	send to rank + 1 tag 3 reads x, x
	recv from ? tag 3 status i, x
	recv
	isend "MPI_Isend" to (rank + 1) % size tag 3 request q
	irecv from rank(c) ^ 1 request q
	wait request q; wait; wait group c
	sendrecv to 1 tag 2; probe from 1
	collective "bcast" root 0 group c
	launch g group wg reads i; launch ?
	join group wg; join
	kernel "saxpy" in a, b out b
	x = -1 - -i * (2 - 3) - (4 - 5) << 2 | ^i & -(7)
	x = size(c) / 2 >> 1 == 1 && i != 2 || i >= 2
	new o grid; new u grid from o
	put(o, low) = 1; put(u, low, i) = i + 1; put(u, low)
	x = get(o, low) + get(u, low, i + 1 else ?(u, low)) * wrap(len(i), -32)
	if assume -1 x != 0 { exit }
	if assume 1 ?(x) { i = 1 }
	return i, x reads x
}
proc f(a, b) (r, s) { return }
proc g(a) { _ = dgemm }
`

// mustParse returns the program that the text describes.
func mustParse(text string) *ir.Program {
	p, err := Parse("test", text)
	if err != nil {
		panic(err)
	}
	return p
}

// same compares programs without their positions.
func same(t *testing.T, a, b *ir.Program) {
	t.Helper()
	if x, y := Format(a), Format(b); x != y {
		t.Fatalf("programs differ:\n%s\n--- and ---\n%s", x, y)
	}
}

// TestPrint_ParsedAgain shows that a program that was printed and parsed again
// is the same.
func TestPrint_ParsedAgain(t *testing.T) {
	p := mustParse(everything)
	text := Format(p)
	q, err := Parse("again", text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	same(t, p, q)
	if strip(p) == nil || !reflect.DeepEqual(strip(p), strip(q)) {
		t.Fatalf("programs differ in what Format does not show:\n%s", text)
	}
	if os.Getenv("SHOW") != "" {
		t.Log(text)
	}
}

// strip lists a program's statements without positions.
func strip(p *ir.Program) (list []any) {
	var walk func(body []ir.Stmt)
	walk = func(body []ir.Stmt) {
		for _, s := range body {
			v := reflect.New(reflect.TypeOf(s).Elem()).Elem()
			v.Set(reflect.ValueOf(s).Elem())
			v.FieldByName("Pos").SetZero()
			for _, name := range []string{"Then", "Else", "Body", "Init", "Post"} {
				if f := v.FieldByName(name); f.IsValid() {
					walk(f.Interface().([]ir.Stmt))
					f.SetZero()
				}
			}
			if sw, ok := v.Addr().Interface().(*ir.Switch); ok {
				for _, c := range sw.Cases {
					list = append(list, len(c.Values))
					walk(c.Body)
				}
				sw.Cases = nil
			}
			for _, name := range []string{"Procs", "Proc"} { // these are cyclic
				if f := v.FieldByName(name); f.IsValid() {
					list = append(list, f.IsZero())
					f.SetZero()
				}
			}
			if f := v.FieldByName("Reads"); f.IsValid() && f.Len() == 0 {
				f.SetZero()
			}
			list = append(list, v.Interface())
		}
	}
	for _, q := range p.Procs {
		list = append(list, q.Name, q.Known, q.Params, q.Results)
		walk(q.Body)
	}
	return list
}

// TestParse_Meaning checks what a text with all kinds of statements means.
func TestParse_Meaning(t *testing.T) {
	p := mustParse(everything)
	if p.Main.Name != "main" || len(p.Procs) != 4 || p.Procs[0].Known || !p.Main.Known {
		t.Fatal("wrong procedures")
	}
	calls, comms := 0, 0
	for _, s := range p.Main.Body {
		switch s := s.(type) {
		case *ir.Call:
			calls++
			if want := map[string]int{"f": 1, "op.Run": 2}[s.Name]; len(s.Procs) != want && s.Args[0] != ir.Expr(ir.Const{Value: 1}) {
				t.Errorf("call of %s has %d procedures, not %d", s.Name, len(s.Procs), want)
			}
			if want := map[string]int{"f": 2, "strings.Cut": 2}[s.Name]; len(s.Reads) != want && s.Args[0] != ir.Expr(ir.Const{Value: 1}) {
				t.Errorf("call of %s reads %d, not %d", s.Name, len(s.Reads), want)
			}
		case *ir.Comm:
			comms++
		case *ir.Decl:
			if s.Vars[0].Shared || !s.Vars[1].Shared || s.Pos != (ir.Pos{File: "test", Line: 6, Col: 2}) {
				t.Errorf("wrong Decl %+v", s)
			}
		case *ir.Loop:
			if s.Label == "M" && (!s.AtEnd || s.Trip != 3 || len(s.Reads) != 2) {
				t.Errorf("wrong do-while %+v", s)
			}
		}
	}
	if calls != 6 || comms != 11 {
		t.Errorf("%d calls and %d communications", calls, comms)
	}
	for text, want := range map[string]string{
		"1 + 2 * 3 - 4":       "1 + 2 * 3 - 4",
		"(1 + 2) * 3":         "(1 + 2) * 3",
		"1 - (2 - 3)":         "1 - (2 - 3)",
		"a || b && c == d":    "a || b && c == d",
		"(a || b) && c":       "(a || b) && c",
		"-(a + b)":            "-(a + b)",
		"(rank - 1 + size)%2": "(rank - 1 + size) % 2",
	} {
		a := mustParse("proc main { x = " + text + " }").Main.Body[0].(*ir.Assign)
		if got := String(a.Src[0]); got != want {
			t.Errorf("%s became %s", text, got)
		}
	}
}

// TestParse_Errors checks the messages for wrong texts.
func TestParse_Errors(t *testing.T) {
	for text, want := range map[string]string{
		"x = 1":                                             "where proc, extern or global",
		"proc main { x = }":                                 "where a name should be",
		"proc main { x = 1":                                 "block not ended",
		"proc main { x, y = 1 }":                            "2 variables get 1 values",
		"proc main { x = 1 y = 2 }":                         "where the statement should end",
		"proc main { call f|g() }":                          "no procedure f",
		"proc main { launch f }":                            "no procedure f",
		"proc main { send to 1 from 2 }":                    "only one of to, from and root",
		"proc main { send tag 1 tag 2 }":                    "does not belong here",
		"proc main { join tag 2 }":                          "does not belong here",
		"proc main { x = \"a\n\" }":                         "string not ended",
		"proc main { x = 1 $ 2 }":                           `unexpected '$'`,
		"proc main { for i = 0 { } }":                       "where ; should be",
		"proc main { for trip x { } }":                      "number of rounds",
		"proc main { var x, x }":                            "declared twice",
		"proc a { }\nproc a { }":                            "is there twice",
		"proc main { x = 9223372036854775808 }":             "too large",
		"proc main { x = " + strings.Repeat("(", 1e5) + "}": "nested too deeply",
	} {
		_, err := Parse("f", text)
		if !errors.Is(err, ErrSyntax) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error %v, not %q", text, err, want)
		}
	}
}

// FuzzParse shows that a text is refused, or is the same program after it was
// printed and parsed again.
func FuzzParse(f *testing.F) {
	f.Add(everything)
	f.Add("proc main { L: for { for i, j = 1, 2; ; { } trip 3 { } } }")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse("f", text)
		if err != nil {
			if !errors.Is(err, ErrSyntax) {
				t.Fatal(err)
			}
			return
		}
		one := Format(p)
		q, err := Parse("f", one)
		if err != nil {
			t.Fatalf("%v in\n%s", err, one)
		}
		same(t, p, q)
	})
}
