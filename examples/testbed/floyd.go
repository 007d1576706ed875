package main

import (
	"context"
	"fmt"
	"math"

	cairn "github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/device"
)

func init() { programs["floyd"] = func() program { return &floyd{} } }

var (
	floydGraph = device.KernelOf(floydInitial)
	floydStep  = device.KernelOf(floydVia)
)

const (
	floydFar    = 1 << 30 // no path; twice this number fits into a uint32
	floydDegree = 16      // edges from each node, on average

	// floydPlain is the largest number of nodes with a complete reference.
	floydPlain = 2048
)

// floyd is Floyd and Warshall's algorithm: the shortest paths between all nodes
// of a random graph, on one device. Each step allows one more node on the way.
// All numbers are integers, so the result is the same everywhere.
type floyd struct {
	dev *device.Device
	n   int

	dist *device.Array[uint32] // n×n
	path *device.Array[uint32] // the last node that was inserted into the path
}

func (f *floyd) setup(size string, devs []*device.Device) error {
	n, ok := map[string]int{"tiny": 128, "small": 1024, "medium": 1 << 11, "large": 1 << 14, "long": 1 << 14}[size]
	if !ok {
		return fmt.Errorf("floyd has no size %q", size)
	}
	f.prepare(n, devs)
	return nil
}

func (f *floyd) prepare(n int, devs []*device.Device) {
	f.n, f.dev = n, devs[0]
	f.dist, f.path = device.New[uint32](n, n), device.New[uint32](n, n)
}

// begin makes the graph, on the device.
func (f *floyd) begin(devs []*device.Device) error {
	return devs[0].Launch(floydGraph, device.Size{f.n, f.n}, device.Out(f.dist), device.Out(f.path), uint32(f.n), floydLimit(f.n))
}

func (f *floyd) protect(p *cairn.Run) {
	cairn.Protect(p, "dist", f.dist)
	cairn.Protect(p, "path", f.path)
}

func (f *floyd) spread(devs []*device.Device) error {
	f.dev = devs[0]
	return nil
}

func (f *floyd) steps() int { return f.n }

func (f *floyd) step(_ context.Context, k int) error {
	return f.dev.Launch(floydStep, device.Size{f.n, (f.n + floydRows - 1) / floydRows}, device.InOut(f.dist), device.InOut(f.path), uint32(f.n), uint32(k))
}

// result returns two numbers for each node: the sum of the distances to all
// nodes that it reaches, and a digest of its row of paths.
func (f *floyd) result() ([]float64, error) {
	dist, err := f.dist.Read()
	if err != nil {
		return nil, err
	}
	path, err := f.path.Read()
	if err != nil {
		return nil, err
	}
	r := make([]float64, 0, 2*f.n)
	for i := range f.n {
		r = append(r, floydSum(dist[i*f.n:][:f.n]), floydDigest(path[i*f.n:][:f.n]))
	}
	return r, nil
}

func floydSum(row []uint32) float64 {
	sum := uint64(0)
	for _, d := range row {
		if d < floydFar {
			sum += uint64(d)
		}
	}
	return float64(sum)
}

func floydDigest(row []uint32) float64 {
	h := uint64(14695981039346656037)
	for _, p := range row {
		h = (h ^ uint64(p)) * 1099511628211
	}
	return float64(h >> 12)
}

// reference returns all numbers for small graphs, and the distances from some
// nodes for large ones.
func (f *floyd) reference() []float64 {
	n := uint32(f.n)
	row := func(i uint32) []uint32 {
		r := make([]uint32, n)
		for j := range n {
			r[j] = floydWeight(i, j, n, floydLimit(f.n))
		}
		return r
	}
	r := make([]float64, 2*n)
	if n > floydPlain {
		for i := range r {
			r[i] = math.NaN()
		}
		for i := uint32(1); i < n; i += n / 8 {
			r[2*i] = floydSum(dijkstra(i, n, row))
		}
		return r
	}
	dist, path := make([][]uint32, n), make([][]uint32, n)
	for i := range n {
		dist[i], path[i] = row(i), make([]uint32, n)
		for j := range path[i] {
			path[i][j] = i
		}
	}
	for k := range n {
		for i := range n {
			for j := range n {
				if d := dist[i][k] + dist[k][j]; d < dist[i][j] {
					dist[i][j], path[i][j] = d, k
				}
			}
		}
	}
	for i := range n {
		r[2*i], r[2*i+1] = floydSum(dist[i]), floydDigest(path[i])
	}
	return r
}

func (f *floyd) tolerance() float64 { return 0 }

// dijkstra returns the distances from one node, by another algorithm.
func dijkstra(from, n uint32, row func(uint32) []uint32) []uint32 {
	dist, done := make([]uint32, n), make([]bool, n)
	for i := range dist {
		dist[i] = floydFar
	}
	dist[from] = 0
	for {
		at := n
		for i := range n {
			if !done[i] && dist[i] < floydFar && (at == n || dist[i] < dist[at]) {
				at = i
			}
		}
		if at == n {
			return dist
		}
		done[at] = true
		for j, w := range row(at) {
			if w < floydFar {
				dist[j] = min(dist[j], dist[at]+w)
			}
		}
	}
}

// floydLimit returns the value of floydMix below which there is an edge.
func floydLimit(n int) uint32 { return uint32(floydDegree * (1 << 32) / n) }
