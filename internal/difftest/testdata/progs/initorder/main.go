// Command initorder covers package variables that depend on each other, init
// functions, and variables that init changed and the program changes again.
package main

//difftest:supervised

import (
	"fmt"

	"progs/initorder/conf"
	"progs/initorder/unit"
)

var (
	c = b + 1
	b = f()
	a = 3
)

var registry = map[string]func(int) int{}
var order []string

func f() int { a++; return a * 10 }

func init() {
	registry["twice"] = func(n int) int { return n * 2 }
	order = append(order, "first")
}

func init() {
	registry["less"] = less
	order = append(order, "second", conf.Mode)
	fmt.Println("init", a, b, c)
}

func less(n int) int { return n - unit.Size }

func main() {
	n := 1
	for i := range 6 { //difftest:loop
		for k := range 2000 {
			n = (n + k*i) % 997
		}
		n = registry["less"](registry["twice"](n))
		a, b, c = b, c, a+i
		unit.Resize(i)
		conf.Set(fmt.Sprint("mode", i))
		order = append(order, conf.Mode)
		fmt.Println(i, n, a, b, c, unit.Size, conf.Table["size"])
	}
	delete(registry, "less")
	fmt.Println(order, len(registry), conf.History())
}
