// Command deferkinds covers deferred builtins, method values, functions from
// variables, nil checks, and the order of their effects.
package main

import "fmt"

type stack []string

func (s *stack) push(v string)     { *s = append(*s, v) }
func (s stack) show(prefix string) { fmt.Println(prefix, s) }

func run(m map[string]int, n int) (out string, err error) {
	var s stack
	defer s.show("value at defer:")
	defer func() { s.show("value at end:") }()
	defer s.push("deferred push")
	defer delete(m, "gone")
	f := func(x int) { s.push(fmt.Sprint("f", x)) }
	defer f(n)
	f = func(x int) { s.push("never") }
	ch := make(chan int, 1)
	defer func() {
		_, ok := <-ch
		out += fmt.Sprint(" closed ", !ok)
	}()
	defer close(ch)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("recovered: %v", r)
		}
	}()
	x := n
	for i := range 4 { //difftest:loop
		for k := range 2000 {
			x = (x*3 + k) % 1009
		}
		s.push(fmt.Sprint(x))
		m[fmt.Sprint(i)] = x
		if i == n {
			panic(fmt.Sprint("at ", i))
		}
	}
	m["gone"] = 1
	return fmt.Sprint("x", x), nil
}

func main() {
	m := map[string]int{"gone": 1}
	for n := 2; n < 5; n++ {
		out, err := run(m, n)
		fmt.Println(n, out, err, m)
	}
}
