package normalize

import (
	"go/types"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite/rewritetest"
)

// TestRenameLocals_Types renames local types whose names are taken, except
// where the program may show them.
func TestRenameLocals_Types(t *testing.T) {
	const head = `package main

import ("fmt"; "slices"; "sort"; "sync/atomic")

var _ = fmt.Sprint
var _ = slices.Max[[]int]
var _ = sort.Ints
var _ atomic.Pointer[int]

type taken int

func reach() int { return 0 }
func see(x any) any { return x }
func sees(x ...any) {}
func generic[T any](x T) any { return x }
func two() (x int, e error) { return }

func main() { reach() }

func f(b any, c chan any) any {
	type taken struct{ a int }
	reach()
	var x taken
	_ = x
`
	for _, c := range []struct {
		name, src string
		shown     bool
	}{
		{"variable", `y := []taken{x}; y[0].a++`, false},
		{"printed", `fmt.Println(x, &x)`, false},
		{"formatted", `fmt.Printf("%v %+v %%\n", x, []taken{x})`, false},
		{"sorted", `s := []taken{x}; sort.Slice(s, func(i, j int) bool { return s[i].a < s[j].a })`, false},
		{"standard generic", `slices.SortFunc([]taken{x}, func(a, b taken) int { return a.a - b.a })`, false},
		{"atomic", `var p atomic.Pointer[taken]; p.Store(&x)`, false},
		{"channel", `d := make(chan taken, 1); d <- x; <-d`, false},
		{"map", `m := map[taken]int{x: 1}; _ = m[x]; delete(m, x)`, false},
		{"type", `fmt.Printf("%T", x)`, true},
		{"syntax", `fmt.Printf("%#v", x)`, true},
		{"wrong verb", `fmt.Printf("%d", x)`, true},
		{"extra", `fmt.Printf("", x)`, true},
		{"unknown format", `s := "%v"; fmt.Printf(s, x)`, true},
		{"argument", `see(x)`, true},
		{"variadic argument", `sees(1, &x)`, true},
		{"part of an argument", `see([]map[string]*taken{})`, true},
		{"in another local type", `type list []taken; see(list{})`, true},
		{"conversion", `_ = any(x)`, true},
		{"assignment", `b = x`, true},
		{"declaration", `var y any = x; _ = y`, true},
		{"send", `c <- x`, true},
		{"result", `if x.a > 0 { return x }`, true},
		{"result of a literal", `_ = func() any { return x }`, true},
		{"element", `_ = []any{x}`, true},
		{"keyed element", `_ = map[string]any{"a": x}`, true},
		{"key", `_ = map[any]int{x: 1}`, true},
		{"index", `m := map[any]int{}; m[x]++`, true},
		{"deleted", `delete(map[any]int{}, x)`, true},
		{"field", `_ = struct{ v any }{v: x}`, true},
		{"appended", `_ = append([]any{}, x)`, true},
		{"panic", `panic(x)`, true},
		{"comparison", `_ = b == x`, true},
		{"switch", `switch b { case x: }`, true},
		{"type switch", `switch b.(type) { case taken: }`, true},
		{"assertion", `_ = b.(taken)`, true},
		{"range", `for _, b = range []taken{x} {}`, true},
		{"generic", `_ = generic(x)`, true},
		{"generic literal", `_ = generic(func(taken) {})`, true},
		{"embedded", `_ = struct{ taken }{x}`, true},
		{"embedded pointer", `_ = struct{ *taken }{&x}`, true},
		{"embedded alias", `{ type taken = int32; _ = struct{ taken }{} }`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := rewritetest.Load(t, "main.go", head+c.src+"\n\treturn nil\n}\n", "go1.26")
			q, err := RenameLocals(p, normalizePath(p))
			if err != nil {
				t.Fatal(err)
			}
			if c.name == "embedded alias" { // the other one is renamed
				return
			}
			if kept := len(q.KeptTypes) > 0; kept != c.shown {
				t.Errorf("the type keeps its name: %v, want %v", kept, c.shown)
			}
			h, err := HoistTypes(q, normalizePath)
			if err != nil {
				t.Fatal(err)
			}
			_, moved := h.Types.Scope().Lookup("f_taken").(*types.TypeName)
			if moved == c.shown {
				t.Errorf("the type is moved: %v, want %v\n%s", moved, !c.shown, h.Source["main.go"])
			}
		})
	}
}

// TestRenameLocals_SameType renames types of several functions, and of a
// variable's literal, with one name.
// The one that must keep the name keeps it.
func TestRenameLocals_SameType(t *testing.T) {
	const src = `package main

import "fmt"

func reach() int { return 0 }

func a() {
	type item struct{ n int }
	reach()
	fmt.Println(item{1})
}

type list[K comparable] []K

func (l *list[K]) all() {
	type item struct{ k K }
	reach()
	fmt.Println(item{(*l)[0]})
}

func b() {
	type item struct{ n int64 }
	reach()
	fmt.Printf("%T\n", item{2})
	{
		type item string
		reach()
		fmt.Println(item("three"))
	}
}

func c() {
	type item struct{ n int8 }
	reach()
	fmt.Printf("%T\n", item{2})
}

func main() {
	a()
	(&list[string]{"two"}).all()
	b()
	c()
	d()
}

var d = func() {
	type item struct{ n uint8 }
	reach()
	fmt.Println(item{4})
}
`
	p := rewritetest.Load(t, "main.go", src, "go1.26")
	q, err := RenameLocals(p, normalizePath(p))
	if err != nil {
		t.Fatal(err)
	}
	if len(q.KeptTypes) != 1 {
		t.Errorf("kept: %v, want the one of c", q.KeptTypes)
	}
	for _, why := range q.KeptTypes {
		if want := "the type item of b; it cannot get another name, as the program may show its name (line 35)"; why != want {
			t.Errorf("kept because of %q, want %q", why, want)
		}
	}
	if q, err = HoistTypes(q, normalizePath); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"item", "a_item", "list_all_item", "b_item", "d_value_item"} {
		if q.Types.Scope().Lookup(name) == nil {
			t.Errorf("no type %s at package level:\n%s", name, q.Source["main.go"])
		}
	}
	want, got := runBoth(t, "go1.26", src, string(q.Source["main.go"]))
	if got != want || !strings.Contains(want, "main.item") {
		t.Errorf("the program prints\n%s\nand after\n%s", want, got)
	}
}
