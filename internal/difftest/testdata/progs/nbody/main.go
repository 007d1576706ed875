// Command nbody covers a physical simulation with floating-point state that
// must be the same to the last bit.
package main

import (
	"fmt"
	"math"
)

type vec [3]float64
type body struct {
	pos, vel vec
	mass     float64
}

func (v *vec) axpy(k float64, w *vec) {
	for i := range v {
		v[i] += k * w[i]
	}
}

func advance(bs []body, dt float64) {
	for i := range bs {
		for j := i + 1; j < len(bs); j++ {
			var d vec
			r := 0.01
			for k := range d {
				d[k] = bs[i].pos[k] - bs[j].pos[k]
				r += d[k] * d[k]
			}
			f := dt / (r * math.Sqrt(r))
			bs[i].vel.axpy(-bs[j].mass*f, &d)
			bs[j].vel.axpy(bs[i].mass*f, &d)
		}
	}
	for i := range bs {
		bs[i].pos.axpy(dt, &bs[i].vel)
	}
}

func main() {
	bs := []body{
		{mass: 40},
		{pos: vec{5, 0, 1}, vel: vec{0, 2.5, 0}, mass: 1},
		{pos: vec{-8, 1, 0}, vel: vec{0, -2, 0.3}, mass: 0.5},
		{pos: vec{0, 12, -1}, vel: vec{-1.7, 0, 0}, mass: 0.1},
	}
	for step := 0; step < 10; step++ { //difftest:loop
		for range 200 {
			advance(bs, 0.001)
		}
		fmt.Printf("%d %x %.12f\n", step, math.Float64bits(bs[1].pos[0]), bs[3].pos)
	}
}
