// Command unwindasked covers functions that unwind when a checkpoint is due,
// where they call each other by interfaces, as values and across packages; and
// what else such a call may lead to: functions without points, libraries that
// call back, panics.
package main

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"progs/unwindasked/tree"
)

// An interpreter: eval and apply are of one kind, builtins are values.
type value interface{ show() string }

type number int

func (n number) show() string { return fmt.Sprint(int(n)) }

type list []value

// show has points, and calls itself by the interface.
func (l list) show() string {
	var parts []string
	for _, v := range l { //difftest:loop
		parts = append(parts, v.show())
	}
	return "(" + strings.Join(parts, " ") + ")"
}

type builtin struct {
	name string
	fn   func(args ...value) value
}

func (b builtin) show() string { return b.name }

var calls int

var builtins = map[string]builtin{
	"len":  {"len", func(args ...value) value { return number(len(args)) }},
	"sum":  {"sum", sum},
	"sort": {"sort", sorts},
	"show": {"show", shows},
}

func sum(args ...value) value {
	total := number(0)
	for _, a := range args { //difftest:loop
		if n, ok := a.(number); ok {
			total += n
		} else {
			total += number(len(a.show()))
		}
	}
	return total
}

// sorts has no points; the library calls what has some.
func sorts(args ...value) value {
	calls++
	out := slices.Clone(args)
	sort.SliceStable(out, func(i, j int) bool { return list{out[i], number(calls)}.show() < list{out[j], number(calls)}.show() })
	return list(out)
}

func shows(args ...value) value {
	fmt.Println("shows", list(args).show())
	return list(args)
}

type call struct {
	name string
	args []any
}

func eval(x any) value {
	switch x := x.(type) {
	case int:
		return number(x)
	case call:
		return apply(x.name, evalAll(x.args))
	}
	return list(nil)
}

func evalAll(xs []any) (out []value) {
	for _, x := range xs { //difftest:loop
		out = append(out, eval(x))
	}
	return out
}

func apply(name string, args []value) value {
	b, ok := builtins[name]
	if !ok {
		panic(errors.New("no " + name))
	}
	return b.fn(args...)
}

// tries recovers from a panic of eval, which is below functions that can be
// unwound.
func tries(x any) (out string) {
	defer func() {
		if e := recover(); e != nil {
			out = fmt.Sprint("failed: ", e, " ", list{number(1), list{number(2)}}.show())
		}
	}()
	return eval(x).show()
}

// A machine changes the function that is being called, and what it is called on.
type machine struct {
	step func(m *machine, k int) int
	next *machine
	log  []string
}

func first(m *machine, k int) int {
	m.step = second
	s := 0
	for i := range k { //difftest:loop
		s += i * i
		m.log = append(m.log, fmt.Sprint("first ", i))
	}
	return s
}

func second(m *machine, k int) int {
	m.step, m.next = first, &machine{step: first}
	s := 1
	for i := range k { //difftest:loop
		s += i + m.next.step(m.next, k-1)
		m.log = append(m.log, fmt.Sprint("second ", i))
	}
	return s
}

func runs(m *machine, k int) (s int) {
	for i := range k { //difftest:loop
		s += m.step(m, i)
		if m := m.next; m != nil {
			s += m.step(m, 1)
		}
	}
	return s
}

// A state is replaced by what it returns.
type state interface{ move(k int) state }

type low struct{ seen []int }

type high struct{ low }

func (l low) move(k int) state {
	for i := range k { //difftest:loop
		l.seen = append(l.seen, i)
	}
	return &high{l}
}

func (h *high) move(k int) state {
	var s state = h.low
	for i := range k - 1 { //difftest:loop
		s = s.move(i)
	}
	return s
}

func moves(k int) string {
	var s state = low{}
	f := s.move
	for i := range k { //difftest:loop
		s = s.move(i)
		if i%2 == 0 {
			f = s.move
		} else {
			s = f(i)
		}
	}
	return fmt.Sprintf("%T %v", s, s)
}

// given is called with what a library computes by calling back.
func given(k int) int {
	for i := range 3 { //difftest:loop
		k += i
	}
	return k
}

func finds(k int) int {
	if k == 0 {
		return 0
	}
	return given(sort.Search(8, func(i int) bool { return given(i) > k })) + finds(k-1)
}

// across calls functions of another package, which call functions of this one.
type visitor struct{ out []string }

func (v *visitor) Visit(t *tree.Tree, depth int) bool {
	for i := range 2 { //difftest:loop
		v.out = append(v.out, fmt.Sprint(strings.Repeat("-", depth), t.Key, i))
	}
	return t.Key%5 != 4
}

func (v *visitor) Failed(t *tree.Tree) error {
	if t.Key == 10 {
		panic(fmt.Sprint("at ", t.Key))
	}
	return fmt.Errorf("stopped at %d", t.Key)
}

func across(n int) {
	var t *tree.Tree
	for i := range n { //difftest:loop
		t = t.Add(i * 7 % 13)
	}
	v := &visitor{}
	fmt.Println(t.Walk(v, 1), v.out)
	fmt.Println(tree.Fold(t, func(a, b int) int { return a*3 + b }), tree.Fold(t, add))
	func() {
		defer func() { fmt.Println("recovered", recover(), t.Sum(add)) }()
		fmt.Println(t.Check(v))
	}()
	fmt.Println(t.Sum(add))
}

func add(a, b int) int {
	for range 2 { //difftest:loop
		a += b
	}
	return a
}

func main() {
	deep := any(call{"sum", []any{1, call{"len", []any{2, 3}}, call{"sort", []any{5, call{"show", []any{4, 6}}, 1}}}})
	for range 2 { //difftest:loop
		deep = call{"show", []any{deep, call{"sum", []any{deep, 1}}}}
		fmt.Println(eval(deep).show())
	}
	fmt.Println(tries(call{"sum", []any{1, call{"none", []any{deep}}}}))
	fmt.Println(tries(call{"sum", []any{1}}), calls)
	m := &machine{step: first}
	fmt.Println(runs(m, 5), m.log)
	fmt.Println(moves(5))
	fmt.Println(finds(4))
	across(9)
}
