// Nbody moves the planets.
package main

import (
	"flag"
	"fmt"
	"math"
)

type body struct{ x, y, z, vx, vy, vz, mass float64 }

const (
	solar = 4 * math.Pi * math.Pi
	year  = 365.24
)

var bodies = []body{
	{0, 0, 0, 0, 0, 0, solar},
	{4.84143144246472090e+00, -1.16032004402742839e+00, -1.03622044471123109e-01, 1.66007664274403694e-03 * year, 7.69901118419740425e-03 * year, -6.90460016972063023e-05 * year, 9.54791938424326609e-04 * solar},
	{8.34336671824457987e+00, 4.12479856412430479e+00, -4.03523417114321381e-01, -2.76742510726411021e-03 * year, 4.99852801234917238e-03 * year, 2.30417297573763929e-05 * year, 2.85885980666130812e-04 * solar},
	{1.28943695621391310e+01, -1.51111514016986312e+01, -2.23307578892655734e-01, 2.96460137564761618e-03 * year, 2.37847173959480950e-03 * year, -2.96589568540237556e-05 * year, 4.36624404335156298e-05 * solar},
	{1.53796971148509165e+01, -2.59193146099879641e+01, 1.79258772950371181e-01, 2.68067772490389322e-03 * year, 1.62824170038242295e-03 * year, -9.51592254519715870e-05 * year, 5.15138902046611451e-05 * solar},
}

func advance(dt float64) {
	for i := range bodies {
		a := &bodies[i]
		for j := i + 1; j < len(bodies); j++ {
			b := &bodies[j]
			dx, dy, dz := a.x-b.x, a.y-b.y, a.z-b.z
			d2 := dx*dx + dy*dy + dz*dz
			m := dt / (d2 * math.Sqrt(d2))
			a.vx -= dx * b.mass * m
			a.vy -= dy * b.mass * m
			a.vz -= dz * b.mass * m
			b.vx += dx * a.mass * m
			b.vy += dy * a.mass * m
			b.vz += dz * a.mass * m
		}
	}
	for i := range bodies {
		b := &bodies[i]
		b.x += dt * b.vx
		b.y += dt * b.vy
		b.z += dt * b.vz
	}
}

func energy() float64 {
	e := 0.0
	for i, a := range bodies {
		e += 0.5 * a.mass * (a.vx*a.vx + a.vy*a.vy + a.vz*a.vz)
		for _, b := range bodies[i+1:] {
			dx, dy, dz := a.x-b.x, a.y-b.y, a.z-b.z
			e -= a.mass * b.mass / math.Sqrt(dx*dx+dy*dy+dz*dz)
		}
	}
	return e
}

func main() {
	rounds := flag.Int("rounds", 3_000_000, "steps")
	flag.Parse()
	fmt.Printf("%.9f\n", energy())
	for i := 0; i < *rounds; i++ {
		advance(0.001)
	}
	fmt.Printf("%.9f\n", energy())
}
