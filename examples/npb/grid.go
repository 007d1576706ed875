package main

import (
	"fmt"
	"math"

	"github.com/cairnrun/cairn/mpi"
)

// grid is a rank's part of a periodic cubic grid. An array on it has the
// part's points and a border of one point around them, in the order
// [z][y][x]; the border holds copies of the neighbours' points.
type grid struct {
	c     *mpi.Comm // nil: this rank has the whole grid
	side  int       // of the whole grid
	n     [3]int    // points here, in x, y and z
	at    [3]int    // where they begin in the whole grid
	ranks [3]int    // how many ranks there are along each side
	low   [3]int    // the neighbours
	high  [3]int
}

// newGrid divides a grid of side³ points among the ranks.
func newGrid(c *mpi.Comm, side int) (*grid, error) {
	g := &grid{c: c, side: side, ranks: [3]int{1, 1, 1}}
	for axis, rest := 2, c.Size(); rest > 1; axis, rest = (axis+2)%3, rest/2 {
		g.ranks[axis] *= 2
	}
	for axis := range 3 {
		if g.ranks[axis] > side/4 {
			return nil, fmt.Errorf("a grid of %d points a side is too small for %d ranks: use fewer", side, c.Size())
		}
		g.n[axis] = side / g.ranks[axis]
		me := g.place(c.Rank())
		g.at[axis] = me[axis] * g.n[axis]
		lower, higher := me, me
		lower[axis] = (me[axis] + g.ranks[axis] - 1) % g.ranks[axis]
		higher[axis] = (me[axis] + 1) % g.ranks[axis]
		g.low[axis], g.high[axis] = g.rank(lower), g.rank(higher)
	}
	return g, nil
}

// place returns the position of a rank in the grid of ranks; rank is its
// inverse.
func (g *grid) place(rank int) [3]int {
	return [3]int{rank % g.ranks[0], rank / g.ranks[0] % g.ranks[1], rank / g.ranks[0] / g.ranks[1]}
}

func (g *grid) rank(at [3]int) int { return (at[2]*g.ranks[1]+at[1])*g.ranks[0] + at[0] }

// coarse returns the grid with 1/factor of the points along each side. It
// returns nil if that grid is too small to be divided among the ranks.
func (g *grid) coarse(factor int) *grid {
	coarse := *g
	coarse.side /= factor
	for axis := range 3 {
		if coarse.n[axis] /= factor; g.c != nil && coarse.n[axis] < 2 {
			return nil
		}
		coarse.at[axis] /= factor
	}
	return &coarse
}

// array returns an array for the grid.
func (g *grid) array() []float64 { return make([]float64, (g.n[0]+2)*(g.n[1]+2)*(g.n[2]+2)) }

// row returns where row (z, y) begins in an array. The borders are at 0 and
// n+1.
func (g *grid) row(z, y int) int { return (z*(g.n[1]+2) + y) * (g.n[0] + 2) }

// exchange fills the border of a. What is sent along an axis includes the
// borders of the axes before it, so that edges and corners are right in the
// end.
func (g *grid) exchange(a []float64) error {
	for axis := range 3 {
		last := g.n[axis]
		if g.c == nil || g.ranks[axis] == 1 {
			g.unpack(a, axis, 0, g.pack(a, axis, last))
			g.unpack(a, axis, last+1, g.pack(a, axis, 1))
			continue
		}
		down, up := g.pack(a, axis, 1), g.pack(a, axis, last)
		fromAbove, fromBelow := make([]float64, len(down)), make([]float64, len(up))
		if _, err := mpi.Sendrecv(g.c, down, g.low[axis], 2*axis, fromAbove, g.high[axis], 2*axis); err != nil {
			return err
		}
		if _, err := mpi.Sendrecv(g.c, up, g.high[axis], 2*axis+1, fromBelow, g.low[axis], 2*axis+1); err != nil {
			return err
		}
		g.unpack(a, axis, last+1, fromAbove)
		g.unpack(a, axis, 0, fromBelow)
	}
	return nil
}

// pack copies plane i of an axis, with its borders, out of a.
func (g *grid) pack(a []float64, axis, i int) []float64 {
	plane := make([]float64, 0, len(a)/(g.n[axis]+2))
	width := g.n[0] + 2
	switch axis {
	case 0:
		for at := i; at < len(a); at += width {
			plane = append(plane, a[at])
		}
	case 1:
		for z := range g.n[2] + 2 {
			plane = append(plane, a[g.row(z, i):][:width]...)
		}
	case 2:
		plane = append(plane, a[g.row(i, 0):g.row(i+1, 0)]...)
	}
	return plane
}

// unpack copies a plane into plane i of an axis of a.
func (g *grid) unpack(a []float64, axis, i int, plane []float64) {
	width := g.n[0] + 2
	switch axis {
	case 0:
		for k, at := 0, i; at < len(a); k, at = k+1, at+width {
			a[at] = plane[k]
		}
	case 1:
		for z := range g.n[2] + 2 {
			copy(a[g.row(z, i):][:width], plane[z*width:])
		}
	case 2:
		copy(a[g.row(i, 0):], plane)
	}
}

// residual sets r to v − A·u. r and v may be the same.
func (g *grid) residual(r, v, u []float64) error {
	side, cross := make([]float64, g.n[0]+2), make([]float64, g.n[0]+2)
	for z := 1; z <= g.n[2]; z++ {
		for y := 1; y <= g.n[1]; y++ {
			g.around(side, cross, u, z, y)
			at := g.row(z, y)
			for x := 1; x <= g.n[0]; x++ {
				i := at + x
				r[i] = v[i] - mgA[0]*u[i] -
					mgA[2]*(cross[x]+side[x-1]+side[x+1]) -
					mgA[3]*(cross[x-1]+cross[x+1]) // mgA[1] is 0
			}
		}
	}
	return g.exchange(r)
}

// smooth adds S·r to u.
func (g *grid) smooth(u, r []float64, s stencil) error {
	side, cross := make([]float64, g.n[0]+2), make([]float64, g.n[0]+2)
	for z := 1; z <= g.n[2]; z++ {
		for y := 1; y <= g.n[1]; y++ {
			g.around(side, cross, r, z, y)
			at := g.row(z, y)
			for x := 1; x <= g.n[0]; x++ {
				i := at + x
				u[i] += s[0]*r[i] +
					s[1]*(r[i-1]+r[i+1]+side[x]) +
					s[2]*(cross[x]+side[x-1]+side[x+1]) // s[3] is 0
			}
		}
	}
	return g.exchange(u)
}

// around adds up, for every x of a row, the four nearest points in y and z, and
// the four points diagonal to it.
func (g *grid) around(side, cross, a []float64, z, y int) {
	width := g.n[0] + 2
	back, front := a[g.row(z, y-1):][:width], a[g.row(z, y+1):][:width]
	below, above := a[g.row(z-1, y):][:width], a[g.row(z+1, y):][:width]
	backBelow, frontBelow := a[g.row(z-1, y-1):][:width], a[g.row(z-1, y+1):][:width]
	backAbove, frontAbove := a[g.row(z+1, y-1):][:width], a[g.row(z+1, y+1):][:width]
	for x := range width {
		side[x] = back[x] + front[x] + below[x] + above[x]
		cross[x] = backBelow[x] + frontBelow[x] + backAbove[x] + frontAbove[x]
	}
}

// restrict sets a to weighted means of b, which is on a grid twice as fine.
func (g *grid) restrict(a []float64, fine *grid, b []float64) error {
	side, cross := make([]float64, fine.n[0]+2), make([]float64, fine.n[0]+2)
	for z := 1; z <= g.n[2]; z++ {
		for y := 1; y <= g.n[1]; y++ {
			fine.around(side, cross, b, 2*z, 2*y)
			at, from := g.row(z, y), fine.row(2*z, 2*y)
			for x := 1; x <= g.n[0]; x++ {
				k := 2 * x
				i := from + k
				a[at+x] = mgRestrict[0]*b[i] +
					mgRestrict[1]*(b[i-1]+b[i+1]+side[k]) +
					mgRestrict[2]*(cross[k]+side[k-1]+side[k+1]) +
					mgRestrict[3]*(cross[k-1]+cross[k+1])
			}
		}
	}
	return g.exchange(a)
}

// interpolate adds b, which is on a grid half as fine, to a. The border is
// included.
func (g *grid) interpolate(a []float64, coarse *grid, b []float64) {
	width := coarse.n[0] + 2
	line := make([]float64, width)
	for z := range g.n[2] + 2 {
		for y := range g.n[1] + 2 {
			// The row lies between one, two or four rows of b.
			rows := [4]int{
				coarse.row(z/2, y/2), coarse.row(z/2, (y+1)/2),
				coarse.row((z+1)/2, y/2), coarse.row((z+1)/2, (y+1)/2),
			}
			for x := range line {
				line[x] = (b[rows[0]+x] + b[rows[1]+x] + b[rows[2]+x] + b[rows[3]+x]) / 4
			}
			at := g.row(z, y)
			for x := range width - 1 {
				a[at+2*x] += line[x]
				a[at+2*x+1] += (line[x] + line[x+1]) / 2
			}
		}
	}
}

// norm returns the root mean square of a.
func (g *grid) norm(a []float64) (float64, error) {
	sum := []float64{0}
	for z := 1; z <= g.n[2]; z++ {
		for y := 1; y <= g.n[1]; y++ {
			for _, v := range a[g.row(z, y)+1:][:g.n[0]] {
				sum[0] += v * v
			}
		}
	}
	err := mpi.Allreduce(g.c, sum, sum, mpi.Sum)
	return math.Sqrt(sum[0] / math.Pow(float64(g.side), 3)), err
}

// assemble copies all ranks' parts of a into an array for the whole grid. It
// does not set the border of that array. all is memory for its points.
func (g *grid) assemble(whole, a, all []float64) error {
	part := make([]float64, 0, g.n[0]*g.n[1]*g.n[2])
	for z := 1; z <= g.n[2]; z++ {
		for y := 1; y <= g.n[1]; y++ {
			part = append(part, a[g.row(z, y)+1:][:g.n[0]]...)
		}
	}
	if err := mpi.Allgather(g.c, part, all); err != nil {
		return err
	}
	w := grid{side: g.side, n: [3]int{g.side, g.side, g.side}}
	for r := range g.c.Size() {
		p := g.place(r)
		for z := range g.n[2] {
			for y := range g.n[1] {
				at := w.row(p[2]*g.n[2]+z+1, p[1]*g.n[1]+y+1) + p[0]*g.n[0] + 1
				all = all[copy(whole[at:][:g.n[0]], all):]
			}
		}
	}
	return nil
}

// cut copies this rank's part, with its border, out of an array for the whole
// grid.
func (g *grid) cut(a, whole []float64) {
	w := grid{side: g.side, n: [3]int{g.side, g.side, g.side}}
	width := g.n[0] + 2
	for z := range g.n[2] + 2 {
		for y := range g.n[1] + 2 {
			copy(a[g.row(z, y):][:width], whole[w.row(g.at[2]+z, g.at[1]+y)+g.at[0]:])
		}
	}
}
