// Command rangefuncdefer covers deferred calls in the bodies of loops over
// functions, which are run when the function around the loop ends, and panics.
package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
)

func count(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		defer fmt.Println("  iterator ends")
		for i := 0; i < n && yield(i); i++ {
		}
	}
}

func mix(x int) int {
	for i := range 500 {
		x = (x*7 + i) % 6007
	}
	return x
}

type bell struct{ n int }

func (b bell) ring(what string, more ...int) { fmt.Println("  ring", b.n, what, more) }
func (b *bell) stop()                        { fmt.Println("  stop", b.n) }

var mu sync.Mutex

func late(n int) (sum int, err error) {
	defer func() { fmt.Println("  first", sum, err) }()
	b := bell{n}
	for i := range count(n) { //difftest:loop
		mu.Lock()
		defer func() { sum += i; fmt.Println("  deferred", i, sum) }()
		defer fmt.Println("  args", i, b.n, mix(i))
		defer b.ring("by value", i, n)
		defer b.stop()
		b.n++
		mu.Unlock()
		if i == 2 {
			mu.Lock()
			defer mu.Unlock()
			return mix(i), errors.New("two")
		}
		for j := range count(2) { //difftest:loop
			defer fmt.Println("  inner", i, j)
			mix(j)
		}
	}
	defer fmt.Println("  last")
	return mix(n), nil
}

func panics(n int) (out string) {
	defer func() { out = fmt.Sprint("recovered ", recover(), " ", out) }()
	for i := range count(n) { //difftest:loop
		out += fmt.Sprint(mix(i))
		defer func() { out += "!" }()
		if i == 2 {
			panic("out of the loop")
		}
	}
	return "none"
}

func many() {
	for round := range 3 {
		for i := range count(2) { //difftest:loop
			defer fmt.Println("  many", round, i, mix(i))
		}
	}
	fmt.Println("  many ends")
}

func main() {
	fmt.Println(late(2))
	fmt.Println(late(5))
	fmt.Println(panics(5))
	fmt.Println(panics(1))
	many()
	for i := range count(3) { //difftest:loop
		if mix(i) < 0 {
			os.Exit(1)
		}
	}
}
