// Command rangefuncbad covers functions that continue after the loop over them
// has ended, or hide a panic of its body: Go itself panics then.
package main

//difftest:exit 2

import (
	"fmt"
	"runtime"
)

func mix(x int) int {
	for i := range 500 {
		x = (x*7 + i) % 6007
	}
	return x
}

func deaf(yield func(int) bool) {
	yield(1)
	yield(2)
	yield(3)
}

func swallows(yield func(int) bool) {
	defer func() { fmt.Println("swallowed:", recover()) }()
	for i := range 3 {
		yield(i)
	}
}

func again(yield func(int) bool) {
	func() {
		defer func() { fmt.Println("swallowed:", recover()) }()
		yield(7)
	}()
	yield(8)
}

var kept func(int) bool

func keeps(yield func(int) bool) {
	kept = yield
	yield(5)
}

func try(what string, f func()) {
	defer func() {
		r := recover()
		_, is := r.(runtime.Error)
		fmt.Println(what, "|", r, "|", is)
	}()
	f()
}

func main() {
	x := 0
	try("deaf", func() {
		for i := range deaf { //difftest:loop
			x = mix(x + i)
			fmt.Println("body", i, x)
			if i == 2 {
				break
			}
		}
	})
	try("swallows", func() {
		for i := range swallows { //difftest:loop
			x = mix(x + i)
			fmt.Println("body", i, x)
			if i == 1 {
				panic("one")
			}
		}
	})
	try("again", func() {
		for i := range again { //difftest:loop
			x = mix(x + i)
			fmt.Println("body", i, x)
			panic("body")
		}
	})
	for i := range keeps { //difftest:loop
		x = mix(x + i)
		fmt.Println("body", i, x)
	}
	try("kept", func() { kept(6) })
	for i := range 3 { //difftest:loop
		x = mix(x + i)
	}
	fmt.Println(x)
	for i := range deaf { //difftest:loop
		x = mix(x + i)
		fmt.Println("ends", i, x)
		if i == 2 {
			return
		}
	}
}
