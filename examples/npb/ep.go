package main

import (
	"fmt"
	"math"
	"time"

	"github.com/cairnrun/cairn/mpi"
)

// EP, embarrassingly parallel: make Gaussian deviates from pairs of random
// numbers by the polar method, and count those in each square annulus.

const (
	epSeed  = 271828183
	epPairs = 1 << 16 // pairs in a block
	annuli  = 10
)

var epClasses = map[byte]struct {
	m      int // there are 2^m pairs
	sx, sy float64
}{
	'S': {24, -3.247834652034740e3, -6.958407078382297e3},
	'W': {25, -2.863319731645753e3, -6.320053679109499e3},
	'A': {28, -4.295875165629892e3, -1.580732573678431e4},
	'B': {30, 4.033815542441498e4, -2.660669192809235e4},
}

func ep(c *mpi.Comm, class byte, g guard) (*report, error) {
	p, ok := epClasses[class]
	if !ok {
		return nil, errClass(class)
	}
	rank, size := c.Rank(), c.Size()
	blocks := 1 << p.m / epPairs
	steps := (blocks + size - 1) / size

	var (
		step   int
		sums   [2]float64
		counts [annuli]int64
	)
	resumed, err := g.restore(named("step", &step), named("sums", &sums), named("counts", &counts))
	if err != nil {
		return nil, err
	}
	start := time.Now()
	for ; step < steps; step++ {
		if err := g.point(); err != nil {
			return nil, err
		}
		block := step*size + rank
		if block >= blocks {
			continue
		}
		random := newRandom(epSeed, 2*epPairs*block)
		for range epPairs {
			x := 2*random.next() - 1
			y := 2*random.next() - 1
			t := x*x + y*y
			if t > 1 {
				continue
			}
			f := math.Sqrt(-2 * math.Log(t) / t)
			x, y = x*f, y*f
			counts[int(max(math.Abs(x), math.Abs(y)))]++
			sums[0] += x
			sums[1] += y
		}
	}
	if err := mpi.Allreduce(c, sums[:], sums[:], mpi.Sum); err != nil {
		return nil, err
	}
	if err := mpi.Allreduce(c, counts[:], counts[:], mpi.Sum); err != nil {
		return nil, err
	}

	r := &report{
		size: fmt.Sprint(int64(2) << p.m), iterations: steps, operation: "random numbers generated",
		mop: math.Ldexp(2e-6, p.m), verified: true, resumed: resumed, took: time.Since(start),
	}
	r.compare("sum of x", sums[0], p.sx, 1e-8)
	r.compare("sum of y", sums[1], p.sy, 1e-8)
	var pairs int64
	for i, n := range counts {
		r.note("annulus %d: %d", i, n)
		r.values = append(r.values, float64(n))
		pairs += n
	}
	r.note("Gaussian pairs: %d", pairs)
	return r, nil
}
