// Command oncevalues has functions of sync.OnceValue, OnceValues and OnceFunc in
// package variables, local variables and structs, called and not yet called.
package main

import (
	"errors"
	"fmt"
	"sync"
)

var base = 7

var table = sync.OnceValue(func() []int {
	fmt.Println("table")
	base++
	return []int{base, 2, 3}
})

var (
	late   = sync.OnceValue(func() int { fmt.Println("late"); return base * 2 })
	pair   = sync.OnceValues(func() (string, error) { fmt.Println("pair"); return "x", errors.New("none") })
	hello  = sync.OnceFunc(func() { fmt.Println("hello") })
	never  = sync.OnceValue[map[string]int](func() map[string]int { panic("never called") })
	broken = sync.OnceFunc(func() { panic("broken") })
)

type lazy[T any] struct {
	get func() T
}

func newLazy[T any](v T) *lazy[T] {
	return &lazy[T]{sync.OnceValue(func() T { fmt.Println("lazy", v); return v })}
}

func try() (err any) {
	defer func() { err = recover() }()
	broken()
	return nil
}

func main() {
	hello()
	words, count := newLazy("word"), newLazy(3)
	sum := 0
	local := sync.OnceValue(func() int { sum += 100; return sum })
	for i := range 8 { //difftest:loop
		hello()
		table()[1] += i
		if i >= 3 {
			sum += late() + len(words.get())
		}
		if i >= 4 {
			sum += local() + count.get()
		}
		if i%3 == 2 {
			s, err := pair()
			fmt.Println(s, err, try())
		}
		fmt.Println(i, sum, table(), base)
	}
	fmt.Println(never != nil)
}
