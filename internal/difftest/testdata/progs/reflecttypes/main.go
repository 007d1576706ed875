// Command reflecttypes has values of reflect.Type in its state: as keys of a
// package variable, in local variables, in interfaces and in structs.
package main

import (
	"fmt"
	"reflect"
	"sort"
)

type circle struct{ r int }

type square struct{ a int }

func (c circle) area() int { return 3 * c.r * c.r }

func (s *square) area() int { return s.a * s.a }

type shape interface{ area() int }

type pair[A, B any] struct {
	a A
	b B
}

var handlers = map[reflect.Type]func(any) int{
	reflect.TypeFor[circle]():  func(v any) int { return v.(circle).r },
	reflect.TypeFor[*square](): func(v any) int { return v.(*square).a },
}

var counts = map[reflect.Type]int{}

var last reflect.Type

// sprint is made anew by the initialization of packages.
var sprint = reflect.ValueOf(fmt.Sprint)

type entry struct {
	t    reflect.Type
	name string
}

func main() {
	type local struct{ x int }
	kinds := []entry{{reflect.TypeFor[shape](), "shape"}, {reflect.TypeFor[local](), "local"}, {nil, "none"}}
	var held any = reflect.TypeOf(pair[string, []int]{})
	intType := reflect.TypeOf(0)
	for i := range 6 { //difftest:loop
		var v any = circle{i}
		if i%2 == 1 {
			v = &square{i}
		}
		t := reflect.TypeOf(v)
		fmt.Println(sprint.Call([]reflect.Value{reflect.ValueOf(i)})[0])
		if last == t {
			fmt.Println("twice the same")
		}
		last = t
		counts[t] += handlers[t](v) + v.(shape).area()
		counts[intType]++
		counts[reflect.SliceOf(t)]++
		kinds = append(kinds, entry{t, t.Kind().String()})
		fmt.Println(i, t, counts[t], t.Implements(kinds[0].t), len(counts))
	}
	var lines []string
	for t, n := range counts {
		lines = append(lines, fmt.Sprint(t, " ", n))
	}
	sort.Strings(lines)
	fmt.Println(lines)
	for _, k := range kinds {
		fmt.Println(k.name, k.t)
	}
	fmt.Println(held, held == reflect.TypeFor[pair[string, []int]](), kinds[1].t == reflect.TypeFor[local](), kinds[2].t == nil)
}
