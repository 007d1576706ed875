package main

import (
	"context"
	"fmt"

	cairn "github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/device"
)

func init() { programs["summa"] = func() program { return new(summa) } }

// summa multiplies two matrices, C += A·B, once or several times, by the
// algorithm of van de Geijn and Watts. Devices form a grid, and each has a
// block of every matrix. A step multiplies a panel of A's columns by a panel of
// B's rows; each device contributes its own part of the panels. summa is
// pseudo-malleable: each block is an array, so after a restart it sees as many
// devices as before.
type summa struct {
	n      int
	panels int // number of panels of a matrix
	times  int // how often the product is added to C
	tiny   bool
	group  device.Group // not a pointer: Restore sets the number and keeps the devices
	// Blocks of the grid, row by row. A block of A is stored by panels,
	// [panel][row][column], so that a panel is contiguous.
	a, b, c []*device.Array[float64]
	panel   *device.Kernel
}

const summaMost = 8 // devices on a side of the grid

func (s *summa) setup(size string, devs []*device.Device) error {
	s.panels, s.times = 8, 1
	switch size {
	case "tiny":
		s.n, s.tiny = 128, true
	case "small":
		s.n = 1024
	case "medium":
		s.n = 1 << 11
	case "large":
		s.n = 1 << 13
	case "long":
		s.n, s.panels, s.times = 1<<14, 64, 2
	default:
		return fmt.Errorf("summa: there is no size %q: use tiny, small, medium, large or long", size)
	}
	if err := needDoubles("summa", devs); err != nil {
		return err
	}
	return s.prepare(devs)
}

// prepare makes the kernel and the blocks.
func (s *summa) prepare(devs []*device.Device) error {
	s.panel = device.KernelOf(summaPanel)

	rows, columns := summaGrid(len(devs))
	s.group = *device.NewGroup(devs[:rows*columns]...)
	s.a, s.b, s.c = nil, nil, nil
	for i := range rows {
		r0, r1 := s.part(i, rows)
		for j := range columns {
			c0, c1 := s.part(j, columns)
			width := s.n / s.panels
			s.a = append(s.a, device.NewConstant[float64](c1-c0, (r1-r0)*width, width))
			s.b = append(s.b, device.NewConstant[float64]((r1-r0)*width, (c1-c0)*width))
			s.c = append(s.c, device.New[float64]((r1-r0)*width, (c1-c0)*width))
		}
	}
	return s.spread(devs) // so that blocks are restored on the devices that use them
}

// begin fills A and B.
func (s *summa) begin([]*device.Device) error {
	rows, columns := summaGrid(s.group.Len())
	for i := range rows {
		for j := range columns {
			row, _ := s.part(i, rows)
			column, _ := s.part(j, columns)
			at := i*columns + j
			if err := firstError(s.fillA(s.a[at], row, column), s.fillB(s.b[at], row, column)); err != nil {
				return err
			}
		}
	}
	return nil
}

// summaGrid returns the shape of the largest grid of at most n devices. If
// there are several, it returns the one that is closest to a square.
func summaGrid(n int) (rows, columns int) {
	for r := 1; r <= summaMost; r++ {
		if c := min(summaMost, n/r); r <= c && r*c >= rows*columns {
			rows, columns = r, c
		}
	}
	return rows, columns
}

// part returns the panels of part i out of n.
func (s *summa) part(i, n int) (first, last int) { return i * s.panels / n, (i + 1) * s.panels / n }

// owner returns which of n parts has panel k, and the number of the panel
// there.
func (s *summa) owner(k, n int) (part, at int) {
	for i := range n {
		if first, last := s.part(i, n); k < last {
			return i, k - first
		}
	}
	panic("no such panel")
}

// The elements of A and B.
func summaA(i, j int) float64 { return summaElement(1, i, j) }
func summaB(i, j int) float64 { return summaElement(2, i, j) }

func summaElement(m, i, j int) float64 {
	random := splitMix(uint64(m)<<60 | uint64(i)<<30 | uint64(j))
	return random.signed()
}

func (s *summa) fillA(a *device.Array[float64], row, panel int) error {
	data, err := a.Data()
	if err != nil {
		return err
	}
	dims, at := a.Dims(), 0
	for p := range dims[0] {
		for i := range dims[1] {
			for j := range dims[2] {
				data[at] = summaA(row*dims[2]+i, (panel+p)*dims[2]+j)
				at++
			}
		}
	}
	return nil
}

func (s *summa) fillB(b *device.Array[float64], row, column int) error {
	data, err := b.Data()
	if err != nil {
		return err
	}
	width := s.n / s.panels
	dims, at := b.Dims(), 0
	for i := range dims[0] {
		for j := range dims[1] {
			data[at] = summaB(row*width+i, column*width+j)
			at++
		}
	}
	return nil
}

func (s *summa) protect(p *cairn.Run) {
	cairn.Protect(p, "grid", &s.group)
	cairn.Protect(p, "A", &s.a)
	cairn.Protect(p, "B", &s.b)
	cairn.Protect(p, "C", &s.c)
}

// spread does not change the blocks: the group knows which device has which.
func (s *summa) spread(_ []*device.Device) error {
	if s.group.Len() != len(s.c) {
		return fmt.Errorf("summa: %d blocks for a grid of %d devices", len(s.c), s.group.Len())
	}
	for i := range s.c {
		s.a[i].Prefer(s.group.At(i))
		s.b[i].Prefer(s.group.At(i))
		s.c[i].Prefer(s.group.At(i))
	}
	return nil
}

func (s *summa) steps() int { return s.panels * s.times }

func (s *summa) step(_ context.Context, k int) error {
	k %= s.panels
	rows, columns := summaGrid(s.group.Len())
	width := s.n / s.panels
	owner, panel := s.owner(k, columns)
	ownerRow, line := s.owner(k, rows)
	for i := range rows {
		for j := range columns {
			a := s.a[i*columns+owner].Rows(panel, panel+1)
			b := s.b[ownerRow*columns+j].Rows(line*width, (line+1)*width)
			c := s.c[i*columns+j]
			dims, dev := c.Dims(), s.group.At(i*columns+j)
			wide := summaWide(dev)
			local := device.Local[float64](wide * summaTile)
			err := dev.Launch(s.panel, device.Size{dims[1], dims[0]}.In(wide, summaTile),
				device.InOut(c), device.In(a), device.In(b), int32(dims[1]), int32(width),
				device.Local[float64](summaTile*summaTile), local, local)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// summaWide returns the number of columns of a group: where the items of a
// group run one after the other, as many as fit into the cache.
func summaWide(d *device.Device) int {
	if d.Info().Backend == "host" {
		return 64
	}
	return summaTile
}

// weights returns the weights for sums over the columns of C.
func (s *summa) weights() []float64 {
	w := make([]float64, s.n)
	for j := range w {
		w[j] = summaElement(3, 0, j)
	}
	return w
}

// result returns C·w, for a vector of weights w.
func (s *summa) result() ([]float64, error) {
	_, columns := summaGrid(s.group.Len())
	weights, sums := s.weights(), make([]float64, 0, s.n)
	for first := 0; first < len(s.c); first += columns {
		height := s.c[first].Dims()[0]
		part := make([]float64, height)
		column := 0
		for _, c := range s.c[first : first+columns] {
			data, err := c.Read()
			if err != nil {
				return nil, err
			}
			width := c.Dims()[1]
			for i := range height {
				for j, v := range data[i*width : (i+1)*width] {
					part[i] += float64(v * weights[column+j])
				}
			}
			column += width
		}
		sums = append(sums, part...)
	}
	return sums, nil
}

// reference multiplies the matrices if they are small. Otherwise it computes
// only A·(B·w), which is the same except for rounding.
func (s *summa) reference() []float64 {
	weights, sums := s.weights(), make([]float64, s.n)
	if !s.tiny {
		bw := make([]float64, s.n)
		for k := range bw {
			for j, w := range weights {
				bw[k] += float64(summaB(k, j) * w)
			}
		}
		for i := range sums {
			for k, v := range bw {
				sums[i] += float64(summaA(i, k) * v)
			}
			sums[i] *= float64(s.times)
		}
		return sums
	}
	for i := range sums {
		for j, w := range weights {
			c := 0.0
			for k := range s.n {
				c += float64(summaA(i, k) * summaB(k, j))
			}
			sums[i] += float64(c * w)
		}
	}
	return sums
}

func (s *summa) tolerance() float64 {
	if s.tiny {
		return 0
	}
	return 1e-12
}
