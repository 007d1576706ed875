// Command variadic covers variadic calls with points inside: none, several, a
// slice passed on, and mixed with method values.
package main

import "fmt"

type tally struct{ n, calls int }

func (t *tally) add(label string, xs ...int) *tally {
	t.calls++
	for i, x := range xs { //difftest:loop
		for k := range 1500 {
			t.n = (t.n*3 + x + k) % 5003
		}
		xs[i] = t.n
		fmt.Println(label, i, t.n)
	}
	return t
}

func pass(f func(string, ...int) *tally, xs ...int) int {
	return f("pass", append(xs, len(xs))...).n
}

func show(args ...any) string { return fmt.Sprintln(append([]any{"show"}, args...)...) }

func main() {
	t := &tally{n: 1}
	list := []int{5, 6}
	t.add("none").add("two", 1, 2).add("list", list...)
	n := pass(t.add, 9) + pass(t.add) + pass(t.add, list...)
	fmt.Print(show(n, t.calls, list), show())
}
