package main

//go:generate go run ../../../cmd/cairn kernels

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cairnrun/cairn/device"
)

// leastSpeed bounds the speed of a kernel that is translated from Go, relative
// to the one in OpenCL C.
const leastSpeed = 0.95

// pair is one kernel, written in OpenCL C by hand and in Go.
type pair struct {
	name   string
	source string
	hand   string         // its name in the source
	goes   *device.Kernel // in Go
	grid   device.Grid
	args   func(in *inputs, out *device.Array[float64], path *device.Array[uint32]) []any
	local  []any // more arguments of the Go function
}

// inputs are the arrays that the kernels read.
type inputs struct {
	a, b          *device.Array[float64]
	column, start *device.Array[int32]
}

const (
	kernelSide = 2048        // of matrices
	gridSide   = 256         // of the grid of the stencil
	gridCells  = 1 << 24     // gridSide³
	rowLength  = 512         // numbers of a row of the sparse matrix
	sparseRows = 1 << 15     // …
	spmvLanes  = 32          // items that add up a row
	spmvGroup  = 128         // items of a group
	tile       = 16          // side of a tile of the matrix product
	tileItems  = tile * tile // items of a group
)

// translated measures kernels in Go against the same kernels in OpenCL C, which
// were written by hand for the testbed.
func translated(context.Context) error {
	t, err := pick()
	if err != nil {
		return err
	}
	d := t.Device
	in := &inputs{device.New[float64](gridCells), device.New[float64](gridCells), device.New[int32](sparseRows * rowLength), device.New[int32](sparseRows + 1)}
	if err := in.fill(); err != nil {
		return err
	}
	sh := newSheet(fmt.Sprintf("Kernels in Go, translated, on %s: speed relative to OpenCL C written by hand (medians of %d)", d, *rounds))
	for _, p := range pairs {
		hand := device.NewKernel(p.source, p.hand, nil)
		var times [2][]float64
		var results [2][]float64
		var paths [2][]uint32
		launch := func(i int, k *device.Kernel, out *device.Array[float64], path *device.Array[uint32]) error {
			args := p.args(in, out, path)
			if i == 1 {
				args = append(args, p.local...)
			}
			return d.Launch(k, p.grid, args...)
		}
		for i, k := range []*device.Kernel{hand, p.goes} {
			out, path := device.New[float64](gridCells), device.New[uint32](kernelSide*kernelSide)
			if err := clearOutputs(out, path); err != nil {
				return err
			}
			if err := errors.Join(launch(i, k, out, path), d.Finish()); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			v, err := out.Read()
			u, e := path.Read()
			if err := errors.Join(err, e); err != nil {
				return err
			}
			results[i], paths[i] = slices.Clone(v), slices.Clone(u)
			out.Free()
			path.Free()
		}
		out, path := device.New[float64](gridCells), device.New[uint32](kernelSide*kernelSide)
		if err := clearOutputs(out, path); err != nil {
			return err
		}
		begin := time.Now()
		if err := errors.Join(launch(0, hand, out, path), d.Finish()); err != nil {
			return err
		}
		launches := max(1, min(50, int(100*time.Millisecond/time.Since(begin))))
		for round := range *rounds + 1 {
			for i, k := range []*device.Kernel{hand, p.goes} {
				begin := time.Now()
				for range launches {
					if err := launch(i, k, out, path); err != nil {
						return err
					}
				}
				if err := d.Finish(); err != nil {
					return err
				}
				if round > 0 {
					times[i] = append(times[i], time.Since(begin).Seconds()/float64(launches))
				}
			}
		}
		out.Free()
		path.Free()
		bits := "same bits"
		if !slices.Equal(results[0], results[1]) || !slices.Equal(paths[0], paths[1]) {
			bits = missedBound("OTHER BITS")
		}
		c, g := median(times[0]), median(times[1])
		sh.line(p.name, fmt.Sprintf("%.3f ms, by hand %.3f ms: %.2f ×, %s", 1e3*g, 1e3*c, c/g, bits), fmt.Sprintf("≥ %.2f", leastSpeed), c >= leastSpeed*g)
	}
	sh.flush()
	return nil
}

func clearOutputs(out *device.Array[float64], path *device.Array[uint32]) error {
	v, err := out.Data()
	u, e := path.Data()
	clear(v)
	clear(u)
	return errors.Join(err, e)
}

func (in *inputs) fill() error {
	a, err := in.a.Data()
	b, e := in.b.Data()
	column, e1 := in.column.Data()
	start, e2 := in.start.Data()
	if err := errors.Join(err, e, e1, e2); err != nil {
		return err
	}
	x := uint32(1)
	next := func() uint32 {
		x = x*1664525 + 1013904223
		return x >> 8
	}
	for i := range a {
		a[i], b[i] = float64(next())/(1<<24), float64(next())/(1<<24)
	}
	for i := range column {
		column[i] = int32(next() % sparseRows)
	}
	for i := range start {
		start[i] = int32(i * rowLength)
	}
	return nil
}

var pairs = []pair{
	{"shortest paths, one step", `
__kernel void one_step(__global uint *path, __global const double *dist, __global double *out, uint n, uint k)
{
	uint j = get_global_id(0), i = get_global_id(1);
	if (j >= n || i >= n)
		return;
	uint at = i * n + j;
	double d = dist[i * n + k] + dist[k * n + j];
	if (d < dist[at]) {
		out[at] = d;
		path[at] = k;
	}
}`, "one_step", device.KernelOf(goStep), device.Size{kernelSide, kernelSide},
		func(in *inputs, out *device.Array[float64], path *device.Array[uint32]) []any {
			return []any{device.InOut(path), device.In(in.a), device.InOut(out), uint32(kernelSide), uint32(77)}
		}, nil},
	{"27-point stencil", `
#define SIDE(a, x) (((a)[mid + back + (x)] + (a)[mid + front + (x)] + (a)[low + line + (x)]) + (a)[high + line + (x)])
#define CROSS(a, x) (((a)[low + back + (x)] + (a)[low + front + (x)] + (a)[high + back + (x)]) + (a)[high + front + (x)])
__kernel void residual(__global double *r, __global const double *v, __global const double *u, int n, double a0, double a2, double a3)
{
	int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2) + 1;
	int west = (x + n - 1) & (n - 1);
	int east = (x + 1) & (n - 1);
	size_t line = (size_t)y * n;
	size_t back = (size_t)((y + n - 1) & (n - 1)) * n;
	size_t front = (size_t)((y + 1) & (n - 1)) * n;
	size_t mid = (size_t)z * n * n;
	size_t low = mid - (size_t)n * n;
	size_t high = mid + (size_t)n * n;
	size_t at = mid + line + x;
	r[at] = v[at] - a0 * u[at]
		- a2 * (CROSS(u, x) + SIDE(u, west) + SIDE(u, east))
		- a3 * (CROSS(u, west) + CROSS(u, east));
}`, "residual", device.KernelOf(goResidual), device.Size{gridSide, gridSide, gridSide - 2}.In(32, 4, 1),
		func(in *inputs, out *device.Array[float64], _ *device.Array[uint32]) []any {
			return []any{device.InOut(out), device.In(in.a), device.In(in.b), int32(gridSide), -8.0 / 3, 1.0 / 6, 1.0 / 12}
		}, nil},
	{"sparse matrix times vector", `
#define LANES 32
__kernel void spmv(__global double *y, __global const double *value, __global const int *column,
                   __global const int *start, __global const double *x, int rows, __local double *sums)
{
	int item = get_local_id(0);
	int row = get_global_id(0) / LANES;
	int lane = item % LANES;
	double sum = 0;
	if (row < rows) {
		int end = start[row + 1] - start[0];
		for (int k = start[row] - start[0] + lane; k < end; k += LANES)
			sum += value[k] * x[column[k]];
	}
	sums[item] = sum;
	barrier(CLK_LOCAL_MEM_FENCE);
	for (int stride = LANES / 2; stride > 0; stride /= 2) {
		if (lane < stride)
			sums[item] += sums[item + stride];
		barrier(CLK_LOCAL_MEM_FENCE);
	}
	if (lane == 0 && row < rows)
		y[row] = sums[item];
}`, "spmv", device.KernelOf(goSpmv), device.Size{sparseRows * spmvLanes}.In(spmvGroup),
		func(in *inputs, out *device.Array[float64], _ *device.Array[uint32]) []any {
			return []any{device.InOut(out), device.In(in.a), device.In(in.column), device.In(in.start), device.In(in.b), int32(sparseRows), device.Local[float64](spmvGroup)}
		}, nil},
	{"matrix product in tiles", `
#define TILE 16
__kernel void panel(__global double *c, __global const double *a, __global const double *b, int columns, int depth)
{
	__local double ta[TILE][TILE];
	__local double tb[TILE][TILE];
	int x = get_local_id(0), y = get_local_id(1);
	size_t column = get_global_id(0), row = get_global_id(1);
	double sum = c[row * columns + column];
	for (int t = 0; t < depth; t += TILE) {
		ta[y][x] = a[row * depth + t + x];
		tb[y][x] = b[(size_t)(t + y) * columns + column];
		barrier(CLK_LOCAL_MEM_FENCE);
		for (int k = 0; k < TILE; k++)
			sum += ta[y][k] * tb[k][x];
		barrier(CLK_LOCAL_MEM_FENCE);
	}
	c[row * columns + column] = sum;
}`, "panel", device.KernelOf(goPanel), device.Size{kernelSide, kernelSide}.In(tile, tile),
		func(in *inputs, out *device.Array[float64], _ *device.Array[uint32]) []any {
			return []any{device.InOut(out), device.In(in.a), device.In(in.b), int32(kernelSide), int32(256)}
		}, []any{device.Local[float64](tileItems), device.Local[float64](tileItems), device.Local[float64](tileItems)}},
}

// The same in Go.

func goStep(w *device.Work) {
	path, dist, out := device.Slice[uint32](w, 0), device.Slice[float64](w, 1), device.Slice[float64](w, 2)
	n, k := int(device.Value[uint32](w, 3)), int(device.Value[uint32](w, 4))
	lo, hi := w.Range(0)
	from, to := w.Range(1)
	for i := from; i < to; i++ {
		for j := lo; j < hi; j++ {
			at := i*n + j
			if d := dist[i*n+k] + dist[k*n+j]; d < dist[at] {
				out[at] = d
				path[at] = uint32(k)
			}
		}
	}
}

func side(a []float64, mid, low, high, line, back, front, x int) float64 {
	return ((a[mid+back+x] + a[mid+front+x]) + a[low+line+x]) + a[high+line+x]
}

func cross(a []float64, low, high, back, front, x int) float64 {
	return ((a[low+back+x] + a[low+front+x]) + a[high+back+x]) + a[high+front+x]
}

func goResidual(w *device.Work) {
	r, v, u := device.Slice[float64](w, 0), device.Slice[float64](w, 1), device.Slice[float64](w, 2)
	n := int(device.Value[int32](w, 3))
	a0, a2, a3 := device.Value[float64](w, 4), device.Value[float64](w, 5), device.Value[float64](w, 6)
	x0, x1 := w.Range(0)
	y0, y1 := w.Range(1)
	z0, z1 := w.Range(2)
	for zi := z0; zi < z1; zi++ {
		for y := y0; y < y1; y++ {
			for x := x0; x < x1; x++ {
				west, east := (x+n-1)&(n-1), (x+1)&(n-1)
				line, back, front := y*n, ((y+n-1)&(n-1))*n, ((y+1)&(n-1))*n
				mid := (zi + 1) * n * n
				low, high := mid-n*n, mid+n*n
				at := mid + line + x
				r[at] = v[at] - float64(a0*u[at]) -
					float64(a2*(cross(u, low, high, back, front, x)+side(u, mid, low, high, line, back, front, west)+side(u, mid, low, high, line, back, front, east))) -
					float64(a3*(cross(u, low, high, back, front, west)+cross(u, low, high, back, front, east)))
			}
		}
	}
}

func goSpmv(w *device.Work) {
	y, value, column := device.Slice[float64](w, 0), device.Slice[float64](w, 1), device.Slice[int32](w, 2)
	start, x, rows := device.Slice[int32](w, 3), device.Slice[float64](w, 4), int(device.Value[int32](w, 5))
	sums := device.LocalSlice[float64](w, 6)
	for g := range w.Groups() {
		lo, hi := g.Range(0)
		for i := lo; i < hi; i++ {
			row, lane := i/spmvLanes, i%spmvLanes
			sum := 0.0
			if row < rows {
				end := start[row+1] - start[0]
				for k := start[row] - start[0] + int32(lane); k < end; k += spmvLanes {
					sum += float64(value[k] * x[column[k]])
				}
			}
			sums[i-lo] = sum
		}
		for stride := spmvLanes / 2; stride > 0; stride /= 2 {
			for i := lo; i < hi; i++ {
				if i%spmvLanes < stride {
					sums[i-lo] += sums[i-lo+stride]
				}
			}
		}
		for i := lo; i < hi; i++ {
			if i%spmvLanes == 0 && i/spmvLanes < rows {
				y[i/spmvLanes] = sums[i-lo]
			}
		}
	}
}

func goPanel(w *device.Work) {
	c, a, b := device.Slice[float64](w, 0), device.Slice[float64](w, 1), device.Slice[float64](w, 2)
	columns, depth := int(device.Value[int32](w, 3)), int(device.Value[int32](w, 4))
	ta, tb, sums := device.LocalSlice[float64](w, 5), device.LocalSlice[float64](w, 6), device.LocalSlice[float64](w, 7)
	for g := range w.Groups() {
		x0, x1 := g.Range(0)
		y0, y1 := g.Range(1)
		for row := y0; row < y1; row++ {
			for col := x0; col < x1; col++ {
				sums[(row-y0)*tile+col-x0] = c[row*columns+col]
			}
		}
		for t := 0; t < depth; t += tile {
			for row := y0; row < y1; row++ {
				for col := x0; col < x1; col++ {
					ta[(row-y0)*tile+col-x0] = a[row*depth+t+col-x0]
					tb[(row-y0)*tile+col-x0] = b[(t+row-y0)*columns+col]
				}
			}
			for row := y0; row < y1; row++ {
				for col := x0; col < x1; col++ {
					sum := sums[(row-y0)*tile+col-x0]
					for k := range tile {
						sum += float64(ta[(row-y0)*tile+k] * tb[k*tile+col-x0])
					}
					sums[(row-y0)*tile+col-x0] = sum
				}
			}
		}
		for row := y0; row < y1; row++ {
			for col := x0; col < x1; col++ {
				c[row*columns+col] = sums[(row-y0)*tile+col-x0]
			}
		}
	}
}
