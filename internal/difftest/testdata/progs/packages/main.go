// Command packages covers a program of several packages with points in more
// than one of them, unexported state, and calls back into main.
package main

import (
	"fmt"

	"progs/packages/engine"
	"progs/packages/internal/stats"
)

type probe struct{ seen []int }

func (p *probe) Observe(step, value int) bool {
	p.seen = append(p.seen, value)
	stats.Add("observed", 1)
	fmt.Println("observe", step, value)
	return len(p.seen) < 9
}

func main() {
	p := &probe{}
	e := engine.New(4, p)
	for cycle := 0; cycle < 3; cycle++ {
		ok := e.Run(4)
		fmt.Println("cycle", cycle, ok, e, stats.Get("observed"))
	}
	fmt.Println(stats.All(), p.seen)
}
