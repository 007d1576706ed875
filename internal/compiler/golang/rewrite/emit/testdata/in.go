package main

import "fmt"

type grid struct {
	rows [][]float64
}

// sweep has a point in a labelled loop, and a local variable that is pointed to.
func (g *grid) sweep(epoch int) (sum float64) {
	x := 0
	p := &x
outer:
	for i := 1; i < len(g.rows)-1; i++ {
		//cairn:point 1
		if i%3 == 0 {
			continue outer
		}
		*p += i
		sum += g.rows[i][0] * float64(x+epoch)
	}
	return
}

type area interface{ area(depth int) float64 }

type square struct{ side []area }

// area is called by way of an interface, by itself too.
func (s square) area(depth int) float64 {
	sum := 0.0
	for i := 0; i < len(s.side); i++ {
		a := s.side[i]
		//cairn:call 1
		x := a.area(depth + 1)
		sum += x
	}
	return sum
}

// run has a call that leads to the point, a local closure and a deferred call.
func run(n, epochs int) float64 {
	g := &grid{}
	for i := 0; i < n; i++ {
		g.rows = append(g.rows, []float64{float64(i)})
	}
	total := 0.0
	add := func(v float64) { total += v }
	defer func() { fmt.Println("done", total) }()
	for e := 0; e < epochs; e++ {
		//cairn:call 1
		s := g.sweep(e)
		add(s)
	}
	return total
}

// main has variables that hide others and a type.
func main() {
	x := 1
	grid := 2
	for x := x; x < 3; x++ {
		//cairn:call 1
		cairn_t1 := run(8, x+grid)
		fmt.Println(cairn_t1)
	}
	fmt.Println(x)
}
