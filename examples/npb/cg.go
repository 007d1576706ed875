package main

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/cairnrun/cairn/mpi"
)

// CG, conjugate gradient: the smallest eigenvalue of a large sparse symmetric
// matrix, by the inverse power method.
//
// The ranks form a grid with as many columns as rows, or twice as many. Each
// rank has a block of the matrix, and the part of every vector that belongs to
// its column of the grid. All ranks of a column have the same parts.

const cgSteps = 25 // steps of conjugate gradients in an iteration

var cgClasses = map[byte]struct {
	n, nonzer, iterations int
	shift, zeta           float64
}{
	'S': {1400, 7, 15, 10, 8.5971775078648},
	'W': {7000, 8, 15, 12, 10.362595087124},
	'A': {14000, 11, 15, 20, 17.130235054029},
	'B': {75000, 13, 75, 60, 22.712745482631},
}

func cg(c *mpi.Comm, class byte, g guard) (*report, error) {
	p, ok := cgClasses[class]
	if !ok {
		return nil, errClass(class)
	}
	if err := powerOfTwo(c); err != nil {
		return nil, err
	}
	s, err := newSolver(c, p.n, p.nonzer, p.shift)
	if err != nil {
		return nil, err
	}

	var (
		iteration      int
		zeta, residual float64
		x              = make([]float64, s.part)
		z              = make([]float64, s.part)
	)
	for i := range x {
		x[i] = 1
	}
	resumed, err := g.restore(named("iteration", &iteration), named("zeta", &zeta), named("x", &x))
	if err != nil {
		return nil, err
	}
	start := time.Now()
	for ; iteration < p.iterations; iteration++ {
		if err := g.point(); err != nil {
			return nil, err
		}
		if residual, err = s.solve(x, z); err != nil {
			return nil, err
		}
		xz, err := s.dot(x, z)
		if err != nil {
			return nil, err
		}
		zz, err := s.dot(z, z)
		if err != nil {
			return nil, err
		}
		zeta = p.shift + 1/xz
		norm := math.Sqrt(zz)
		for i := range x {
			x[i] = z[i] / norm
		}
	}

	perRow := float64(p.nonzer * (p.nonzer + 1))
	r := &report{
		size: fmt.Sprint(p.n), iterations: p.iterations, operation: "floating point",
		mop:      2e-6 * float64(p.iterations*p.n) * (3 + perRow + cgSteps*(5+perRow) + 3),
		verified: true, resumed: resumed, took: time.Since(start),
	}
	r.compare("zeta", zeta, p.zeta, 1e-10)
	r.note("residual of the last solution: %v", residual)
	r.values = append(r.values, residual)
	return r, nil
}

// solver solves A·z = x. Several ranks compute the same part of a vector, each
// for itself. Products are rounded before they are added, so that all ranks get
// the same bits on any architecture.
type solver struct {
	world, row *mpi.Comm
	a          *matrix // this rank's block
	part       int     // length of this rank's part of a vector
	partner    int     // the rank with which parts of products are exchanged
	give       int     // … and where the part that it needs begins in ours
	giveLen    int
	r, p, q    []float64
	w, sum     []float64 // the part of a product that belongs to the block's rows
}

// newSolver makes the matrix. All ranks call it.
func newSolver(c *mpi.Comm, n, nonzer int, shift float64) (*solver, error) {
	log := bits.Len(uint(c.Size())) - 1
	rows := 1 << (log / 2)
	cols := c.Size() / rows
	ratio := cols / rows // 1 or 2
	i, j := c.Rank()/cols, c.Rank()%cols

	row, err := c.Split(i, j)
	if err != nil {
		return nil, err
	}
	rowBegin, rowEnd := share(n, rows, i), share(n, rows, i+1)
	colBegin, colEnd := share(n, cols, j), share(n, cols, j+1)
	// The rows of part j belong to row j/ratio of the grid. One rank there
	// gives us the part, and needs a part of our rows itself.
	partnerRow, partnerCol := j/ratio, i*ratio+j%ratio
	s := &solver{
		world: c, row: row, a: makeMatrix(n, nonzer, shift, rowBegin, rowEnd, colBegin, colEnd),
		part:    colEnd - colBegin,
		partner: partnerRow*cols + partnerCol,
		give:    share(n, cols, partnerCol) - rowBegin,
		giveLen: share(n, cols, partnerCol+1) - share(n, cols, partnerCol),
		w:       make([]float64, rowEnd-rowBegin),
		sum:     make([]float64, rowEnd-rowBegin),
	}
	s.r, s.p, s.q = make([]float64, s.part), make([]float64, s.part), make([]float64, s.part)
	return s, nil
}

// share returns the start of part i if n elements are divided into parts.
func share(n, parts, i int) int { return n * i / parts }

// solve does some steps of conjugate gradients from z = 0, and returns
// |x − A·z|.
func (s *solver) solve(x, z []float64) (float64, error) {
	r, p, q := s.r, s.p, s.q
	for i := range x {
		z[i], r[i], p[i] = 0, x[i], x[i]
	}
	rho, err := s.dot(r, r)
	if err != nil {
		return 0, err
	}
	for range cgSteps {
		if err := s.multiply(q, p); err != nil {
			return 0, err
		}
		d, err := s.dot(p, q)
		if err != nil {
			return 0, err
		}
		alpha := rho / d
		for i := range z {
			z[i] += float64(alpha * p[i])
			r[i] -= float64(alpha * q[i])
		}
		old := rho
		if rho, err = s.dot(r, r); err != nil {
			return 0, err
		}
		beta := rho / old
		for i := range p {
			p[i] = r[i] + float64(beta*p[i])
		}
	}
	if err := s.multiply(r, z); err != nil {
		return 0, err
	}
	for i := range r {
		r[i] = x[i] - r[i]
	}
	rr, err := s.dot(r, r)
	return math.Sqrt(rr), err
}

// multiply sets q to A·p.
func (s *solver) multiply(q, p []float64) error {
	s.a.multiply(s.w, p)
	// The product of a row is a sum over the ranks of our row of the grid.
	// To add up, exchange sums with the rank 1 away, then 2, 4 and so on.
	for away := 1; away < s.row.Size(); away *= 2 {
		other := s.row.Rank() ^ away
		if _, err := mpi.Sendrecv(s.row, s.w, other, 0, s.sum, other, 0); err != nil {
			return err
		}
		for i := range s.w {
			s.w[i] += s.sum[i]
		}
	}
	// Now we have our rows of q and need our column's.
	give := s.w[s.give : s.give+s.giveLen]
	if s.partner == s.world.Rank() {
		copy(q, give)
		return nil
	}
	_, err := mpi.Sendrecv(s.world, give, s.partner, 1, q, s.partner, 1)
	return err
}

// dot returns the scalar product of two vectors.
func (s *solver) dot(a, b []float64) (float64, error) {
	sum := []float64{0}
	for i := range a {
		sum[0] += float64(a[i] * b[i])
	}
	err := mpi.Allreduce(s.row, sum, sum, mpi.Sum)
	return sum[0], err
}
