// Command stringer covers embedded interfaces, interface-typed fields and maps
// with interface keys, and types that print themselves.
package main

import (
	"fmt"
	"strings"
)

type namer interface{ Name() string }
type valuer interface{ Value() int }
type thing interface {
	namer
	valuer
	fmt.Stringer
}

type base struct{ name string }

func (b base) Name() string { return b.name }

type num struct {
	base
	v int
}

func (n *num) Value() int     { n.v++; return n.v }
func (n *num) String() string { return fmt.Sprintf("<%s %d>", n.Name(), n.v) }

type group struct {
	namer
	parts []thing
}

func (g group) Value() (s int) {
	for range 300 {
		for _, p := range g.parts {
			s = (s*5 + p.Value()) % 1409
		}
	}
	return s
}
func (g group) String() string {
	var b strings.Builder
	for _, p := range g.parts {
		b.WriteString(p.String())
	}
	return g.Name() + b.String()
}

func main() {
	a, b := &num{base{"a"}, 1}, &num{base{"b"}, 2}
	inner := group{base{"g"}, []thing{a, b, a}}
	var all thing = group{inner, []thing{inner, b}} // a group as a namer
	seen := map[any]int{}
	var keys []any
	for i := range 6 { //difftest:loop
		v := all.Value()
		key := []any{i, fmt.Sprint(i), a, base{"k"}, [2]int{i, i}, nil}[i]
		seen[key] = v
		keys = append(keys, key)
		fmt.Println(i, v, all)
	}
	for _, k := range keys {
		fmt.Print(seen[k], " ")
	}
	fmt.Println(seen[any(a)] == seen[keys[2]], len(seen))
}
