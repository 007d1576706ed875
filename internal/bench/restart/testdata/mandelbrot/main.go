// Mandelbrot counts the points of the Mandelbrot set on a grid.
package main

import (
	"flag"
	"fmt"
)

func main() {
	rounds := flag.Int("rounds", 1000, "points on a side")
	flag.Parse()
	n := *rounds
	inside := 0
	for y := 0; y < n; y++ {
		ci := 2*float64(y)/float64(n) - 1
		for x := 0; x < n; x++ {
			cr := 2*float64(x)/float64(n) - 1.5
			zr, zi := 0.0, 0.0
			k := 0
			for ; k < 200 && zr*zr+zi*zi <= 4; k++ {
				zr, zi = zr*zr-zi*zi+cr, 2*zr*zi+ci
			}
			if k == 200 {
				inside++
			}
		}
	}
	fmt.Println(inside)
}
