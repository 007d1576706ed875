package main

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	cairn "github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/device"
)

func init() { programs["spmv"] = func() program { return new(spmv) } }

// spmv multiplies a vector by a random sparse matrix, again and again, like the
// benchmark of the SHOC suite. It is malleable: the matrix and the vectors are
// arrays that all devices share, and each device has some of the rows.
type spmv struct {
	n, iterations int
	density       float64 // share of elements that are not zero
	shares        []spmvRows

	value    *device.Array[float64] // of the elements that are not zero
	column   *device.Array[int32]
	start    *device.Array[int32] // where a row begins in value and column
	x, y     *device.Array[float64]
	multiply *device.Kernel
	scale    *device.Kernel
}

// spmvRows is the work of a device: rows first…last of the matrix.
type spmvRows struct {
	dev         *device.Device
	first, last int
	// The parts of the arrays.
	value  *device.Array[float64]
	column *device.Array[int32]
	start  *device.Array[int32]
	x, y   *device.Array[float64]
}

//go:embed spmv.cl
var spmvSource string

const (
	spmvLanes = 32  // items that work on one row, as in spmv.cl
	spmvGroup = 128 // items of a group

	spmvPlain = 10_000 // the largest number of iterations that the reference computes
)

func (s *spmv) setup(size string, devs []*device.Device) error {
	s.density = 0.01
	switch size {
	case "tiny":
		s.n, s.iterations = 1<<10, 50
	case "small":
		s.n, s.iterations = 1<<13, 500
	case "medium":
		s.n, s.iterations = 1<<13, 5000
	case "large":
		s.n, s.iterations = 1<<15, 10_000
	case "long":
		s.n, s.iterations, s.density = 1<<15, 25_000, 0.0335
	default:
		return fmt.Errorf("spmv: there is no size %q: use tiny, small, medium, large or long", size)
	}
	if err := needDoubles("spmv", devs); err != nil {
		return err
	}
	s.multiply = device.NewKernel(spmvSource, "spmv", spmvMultiply)
	s.scale = device.NewKernel(spmvSource, "scale", spmvScale)
	s.x = device.New[float64](s.n)
	s.y = device.New[float64](s.n)
	return nil
}

// begin makes the matrix. The lengths of its arrays are known only then.
func (s *spmv) begin([]*device.Device) error {
	start, column, value, x := s.matrix()
	s.start = device.NewConstant[int32](len(start))
	s.column = device.NewConstant[int32](len(column))
	s.value = device.NewConstant[float64](len(value))
	return firstError(put(s.start, start), put(s.column, column), put(s.value, value), put(s.x, x))
}

// matrix returns a random matrix, and a vector. Rows differ in length.
func (s *spmv) matrix() (start, column []int32, value, x []float64) {
	random := splitMix(1)
	mean := max(4, int(s.density*float64(s.n)+0.5))
	start = make([]int32, s.n+1)
	for row := range s.n {
		// From 0.5 to 1.5 times the mean.
		start[row+1] = start[row] + int32(mean/2) + int32(random.next()%uint64(mean+1))
	}
	column = make([]int32, start[s.n])
	value = make([]float64, start[s.n])
	for row := range s.n {
		count := int(start[row+1] - start[row])
		for k := range count {
			// One at random in each of count intervals.
			lo, hi := k*s.n/count, (k+1)*s.n/count
			column[int(start[row])+k] = int32(lo + int(random.next()%uint64(hi-lo)))
			value[int(start[row])+k] = random.signed()
		}
	}
	x = make([]float64, s.n)
	for i := range x {
		x[i] = random.signed()
	}
	return start, column, value, x
}

// factor keeps the vector's length about the same. The eigenvalues of such a
// matrix fill a disc, and its radius is the root of the sum of variances in a
// row. The largest are complex, so the vector keeps turning and never
// converges.
func (s *spmv) factor(elements int) float64 {
	return 1 / math.Sqrt(float64(elements)/float64(s.n)/3)
}

// protect does not protect y, which carries nothing from one step to the next.
func (s *spmv) protect(p *cairn.Run) {
	cairn.Protect(p, "value", &s.value)
	cairn.Protect(p, "column", &s.column)
	cairn.Protect(p, "start", &s.start)
	cairn.Protect(p, "x", &s.x)
}

// spread gives each device rows with about the same number of elements.
func (s *spmv) spread(devs []*device.Device) error {
	start, err := s.start.Read()
	if err != nil {
		return err
	}
	s.shares = nil
	row := 0
	for i, d := range devs {
		r := spmvRows{dev: d, first: row}
		end := int32(int64(start[s.n]) * int64(i+1) / int64(len(devs)))
		for row < s.n && start[row] < end {
			row += min(64, s.n-row) // so that offsets suit the alignment of every device
		}
		if r.last = row; r.first == r.last {
			continue
		}
		lo, hi := int(start[r.first]), int(start[r.last])
		r.value, r.column = s.value.Rows(lo, hi), s.column.Rows(lo, hi)
		r.start = s.start.Rows(r.first, r.last+1)
		r.x, r.y = s.x.Rows(r.first, r.last), s.y.Rows(r.first, r.last)
		s.shares = append(s.shares, r)
	}
	return nil
}

func (s *spmv) steps() int { return s.iterations }

func (s *spmv) step(_ context.Context, i int) error {
	for _, r := range s.shares {
		count := r.last - r.first
		err := r.dev.Launch(s.multiply, device.Size{count * spmvLanes}.In(spmvGroup),
			device.Out(r.y), device.In(r.value), device.In(r.column), device.In(r.start), device.In(s.x),
			int32(count), device.Local[float64](spmvGroup))
		if err != nil {
			return err
		}
	}
	factor := s.factor(s.value.Len())
	for _, r := range s.shares {
		count := r.last - r.first
		err := r.dev.Launch(s.scale, device.Size{count}, device.Out(r.x), device.In(r.y), factor, int32(count))
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *spmv) result() ([]float64, error) { return s.x.Read() }

// reference adds in the same order as the kernels, so that results have the
// same bits. For the longest run it would take an hour of processor time.
func (s *spmv) reference() []float64 {
	if s.iterations > spmvPlain {
		return slices.Repeat([]float64{math.NaN()}, s.n)
	}
	start, column, value, x := s.matrix()
	y := make([]float64, s.n)
	factor := s.factor(len(value))
	workers := runtime.GOMAXPROCS(0)
	for range s.iterations {
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				for row := s.n * w / workers; row < s.n*(w+1)/workers; row++ {
					lo, hi := start[row], start[row+1]
					y[row] = spmvRow(value[lo:hi], column[lo:hi], x)
				}
			})
		}
		all.Wait()
		for i := range x {
			x[i] = factor * y[i]
		}
	}
	return x
}

func (s *spmv) tolerance() float64 { return 0 }

// spmvRow multiplies a row with x.
func spmvRow(value []float64, column []int32, x []float64) float64 {
	var sums [spmvLanes]float64
	for len(value) >= spmvLanes && len(column) >= spmvLanes {
		for lane := range sums {
			sums[lane] += float64(value[lane] * x[column[lane]]) // converted, so that the two are not fused
		}
		value, column = value[spmvLanes:], column[spmvLanes:]
	}
	for lane := range value {
		sums[lane] += float64(value[lane] * x[column[lane]])
	}
	for half := spmvLanes / 2; half > 0; half /= 2 {
		for lane := range half {
			sums[lane] += sums[lane+half]
		}
	}
	return sums[0]
}

func spmvMultiply(w *device.Work) {
	y, value, column := device.Slice[float64](w, 0), device.Slice[float64](w, 1), device.Slice[int32](w, 2)
	start, x, count := device.Slice[int32](w, 3), device.Slice[float64](w, 4), int(device.Value[int32](w, 5))
	lo, hi := w.Range(0)
	for row := lo / spmvLanes; row < min(hi/spmvLanes, count); row++ {
		from, to := start[row]-start[0], start[row+1]-start[0]
		y[row] = spmvRow(value[from:to], column[from:to], x)
	}
}

func spmvScale(w *device.Work) {
	x, y, factor := device.Slice[float64](w, 0), device.Slice[float64](w, 1), device.Value[float64](w, 2)
	lo, hi := w.Range(0)
	for i := lo; i < min(hi, int(device.Value[int32](w, 3))); i++ {
		x[i] = factor * y[i]
	}
}
