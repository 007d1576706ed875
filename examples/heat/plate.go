package main

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/cairnrun/cairn/mpi"
)

const (
	hot         = 100.0 // the upper edge; the others are at 0
	diffusivity = 0.2   // diffusivity × time step ÷ (distance of points)²; stable below 1/4
)

// Tags of messages: the direction in which they are sent.
const (
	up = iota
	down
)

// plate is a rank's part of the plate.
type plate struct {
	N    int // points along a side of the whole plate
	Step int
	// The temperatures of the rank's rows, and of one more row above and
	// below: a neighbour's, or the edge. Each row has an edge point at both
	// ends.
	U        []float64
	Residual float64 // the largest change in a step, as last measured
}

func newPlate(c *mpi.Comm, n int) (*plate, error) {
	if n < c.Size() {
		return nil, fmt.Errorf("%d rows are too few for %d ranks: use a larger -n or fewer ranks", n, c.Size())
	}
	rows := share(n, c.Size(), c.Rank()+1) - share(n, c.Size(), c.Rank())
	p := &plate{N: n, U: make([]float64, (rows+2)*(n+2)), Residual: math.Inf(1)}
	if c.Rank() == 0 {
		for x := range n + 2 {
			p.U[x] = hot
		}
	}
	return p, nil
}

// share returns the first row of part i if n rows are divided into parts.
func share(n, parts, i int) int { return n * i / parts }

// run computes time steps until it has done all of them, or until no
// temperature changes by more than tolerance. It calls point at the beginning
// of each step.
func (p *plate) run(c *mpi.Comm, steps, check int, tolerance float64, out io.Writer, point func() error) error {
	next := make([]float64, len(p.U))
	copy(next, p.U) // for the edges
	for p.Step < steps && p.Residual > tolerance {
		if err := point(); err != nil {
			return err
		}
		if err := p.exchange(c); err != nil {
			return err
		}
		change := p.advance(next)
		p.U, next = next, p.U
		p.Step++
		if p.Step%check == 0 || p.Step == steps {
			largest := []float64{change}
			if err := mpi.Allreduce(c, largest, largest, mpi.Max); err != nil {
				return err
			}
			p.Residual = largest[0]
			if _, err := fmt.Fprintf(out, "step %d residual %v\n", p.Step, p.Residual); err != nil {
				return err
			}
		}
	}
	return nil
}

// exchange receives the neighbours' outermost rows, and sends them its own.
func (p *plate) exchange(c *mpi.Comm) error {
	width := p.N + 2
	last := len(p.U)/width - 2
	row := func(y int) []float64 { return p.U[y*width : (y+1)*width] }
	var pending []*mpi.Request
	if above := c.Rank() - 1; above >= 0 {
		pending = append(pending, mpi.Irecv(c, row(0), above, down), mpi.Isend(c, row(1), above, up))
	}
	if below := c.Rank() + 1; below < c.Size() {
		pending = append(pending, mpi.Irecv(c, row(last+1), below, up), mpi.Isend(c, row(last), below, down))
	}
	return mpi.WaitAll(pending...)
}

// advance sets next to the temperatures after a time step, and returns the
// largest change on this rank.
func (p *plate) advance(next []float64) float64 {
	u, width := p.U, p.N+2
	change := 0.0
	for y := width; y < len(u)-width; y += width {
		for i := y + 1; i <= y+p.N; i++ {
			flow := u[i-1] + u[i+1] + u[i-width] + u[i+width] - 4*u[i]
			next[i] = u[i] + diffusivity*flow
			change = max(change, math.Abs(next[i]-u[i]))
		}
	}
	return change
}

// gather returns the whole plate without its edges on rank 0, and nil on the
// others.
func (p *plate) gather(c *mpi.Comm) ([]float64, error) {
	width := p.N + 2
	var ours []float64
	for y := width; y < len(p.U)-width; y += width {
		ours = append(ours, p.U[y+1:y+1+p.N]...)
	}
	var all []float64
	counts, begins := make([]int, c.Size()), make([]int, c.Size())
	if c.Rank() == 0 {
		all = make([]float64, p.N*p.N)
		for r := range counts {
			begins[r] = share(p.N, c.Size(), r) * p.N
			counts[r] = share(p.N, c.Size(), r+1)*p.N - begins[r]
		}
	}
	err := mpi.Gatherv(c, ours, all, counts, begins, 0)
	return all, err
}

// digest returns the SHA-256 of the numbers, little-endian.
func digest(field []float64) string {
	h := sha256.New()
	var word [8]byte
	for _, v := range field {
		binary.LittleEndian.PutUint64(word[:], math.Float64bits(v))
		h.Write(word[:])
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
