// Command deferliteral covers defers in blocks, before a point, that call func
// literals of the same block, and the usual way to write a profile.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
)

var cpuprofile = flag.String("cpuprofile", "", "write a profile")

func work(n int) (s int) {
	for i := range 2 { //difftest:loop
		for k := range 1000 {
			s = (s*3 + k*n + i) % 2003
		}
		fmt.Println("work", n, i, s)
	}
	return s
}

func profiled() int {
	if *cpuprofile != "" {
		f, err := os.Create(*cpuprofile)
		if err != nil {
			panic(err)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			panic(err)
		}
		defer pprof.StopCPUProfile()
	} else {
		close := func() { fmt.Println("no profile") }
		defer close()
	}
	return work(1)
}

// counted defers a literal that calls two others of its block, which share a
// variable.
func counted(n int) (sum int) {
	if n > 0 {
		calls := 0
		count := func(by int) { calls += by }
		report := func(what string) {
			count(10)
			fmt.Println(what, calls, sum)
		}
		count(n)
		defer func() {
			count(100)
			report("deferred")
		}()
		sum = work(n)
		count(1000)
	}
	return sum + work(n+1)
}

// each defers such literals in a loop.
func each() (sum int) {
	for i := range 3 {
		tell := func() { fmt.Println("iteration", i, sum) }
		if i != 1 {
			defer func() { tell() }()
		}
		sum += work(i)
	}
	return sum
}

// inside does it in a literal.
func inside() int {
	f := func(n int) int {
		switch {
		case n > 1:
			done := func() { fmt.Println("done", n) }
			defer func() { done() }()
		}
		return work(n)
	}
	return f(1) + f(2)
}

func main() {
	flag.Parse()
	fmt.Println(profiled())
	fmt.Println(counted(0), counted(3))
	fmt.Println(each())
	fmt.Println(inside())
}
