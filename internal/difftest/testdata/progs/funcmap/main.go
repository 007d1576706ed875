// Command funcmap covers modes chosen by a map of functions, each with its own
// main loop, and functions compared with nil.
package main

//difftest:args heat -n 5

import (
	"flag"
	"fmt"
	"os"
)

var n int

type mode struct {
	run   func(n int) float64
	after func(float64) string
}

func heat(n int) float64 {
	rod := make([]float64, 50)
	rod[0] = 100
	for step := range n { //difftest:loop
		for range 100 {
			for i := 1; i < 49; i++ {
				rod[i] = (rod[i-1] + rod[i+1]) / 2
			}
		}
		fmt.Printf("heat %d %.9f\n", step, rod[10])
	}
	return rod[25]
}

func wave(n int) float64 {
	x, v := 1.0, 0.0
	for step := range n { //difftest:loop
		for range 1000 {
			v -= x * 0.001
			x += v * 0.001
		}
		fmt.Printf("wave %d %.9f\n", step, x)
	}
	return x
}

func main() {
	modes := map[string]mode{
		"heat": {run: heat},
		"wave": {wave, func(x float64) string { return fmt.Sprint("phase ", x > 0) }},
	}
	m, ok := modes[os.Args[1]]
	if !ok {
		fmt.Println("no such mode")
		os.Exit(1)
	}
	set := flag.NewFlagSet("funcmap", flag.ExitOnError)
	set.IntVar(&n, "n", 3, "steps")
	set.Parse(os.Args[2:])
	x := m.run(n)
	y := modes["wave"].run(3)
	if m.after == nil {
		m.after = modes["wave"].after
	}
	fmt.Printf("%.9f %.9f %s\n", x, y, m.after(y))
}
