package mpi_test

import (
	"fmt"
	"slices"

	"github.com/cairnrun/cairn/mpi"
)

var collectiveScenes = []scene{
	{"barrier", upTo(9), barrier},
	{"bytes", upTo(9), func(c *mpi.Comm) error { return collect[byte](c) }},
	{"ints", []int{1, 2, 4, 6, 7, 9}, func(c *mpi.Comm) error { return collect[int](c) }},
	{"structs", []int{3, 5, 8}, func(c *mpi.Comm) error { return collect[cell](c) }},
	{"blocks", upTo(9), blocks},
	{"more ranks", []int{17, 33}, moreRanks},
	{"in place", []int{1, 2, 3, 4, 7}, inPlace},
	{"wrong collectives", []int{1, 2, 3}, wrongCollectives},
	{"mismatch", []int{2}, mismatch},
	{"random", []int{2, 3, 5, 8}, randomCollectives},
}

// vectors are lengths of vectors: short ones, odd ones, and long ones, for
// which other algorithms are used.
var vectors = []int{0, 1, 2, 3, 17, 1000, longest}

// cell is an element with holes between its fields.
type cell struct {
	a int8
	b int64
	c uint16
}

// values returns the values that a rank contributes to a collective.
func values[T any](n int, seeds ...int) []T {
	key := uint64(1)
	for _, s := range seeds {
		key = (key ^ uint64(s+1)) * 0x9e3779b97f4a7c15
		key ^= key >> 29
	}
	x := func(i int) uint64 {
		x := (key ^ uint64(i+1)) * 0xbf58476d1ce4e5b9
		return x ^ x>>31
	}
	v := make([]T, n)
	switch v := any(v).(type) {
	case []byte:
		for i := range v {
			v[i] = byte(x(i))
		}
	case []int:
		for i := range v {
			v[i] = int(x(i))
		}
	case []cell:
		for i := range v {
			v[i] = cell{int8(x(i)), int64(x(i)), uint16(x(i) >> 11)}
		}
	case []affine:
		for i := range v {
			v[i] = affine{x(i) | 1, x(i) >> 7}
		}
	case []float64:
		for i := range v {
			v[i] = float64(int64(x(i))) / (1 << 40)
		}
	case []float32:
		for i := range v {
			v[i] = float32(int64(x(i))) / (1 << 62)
		}
	case []complex128:
		for i := range v {
			v[i] = complex(float64(int32(x(i)))/(1<<16), float64(x(i)>>32)/(1<<20))
		}
	default:
		panic(fmt.Sprintf("no values of type %T", v))
	}
	return v
}

// barrier shows that no rank passes before all have come. Ranks send rank 0 a
// message before the barrier, and rank 0 looks for them after it without
// waiting.
func barrier(c *mpi.Comm) error {
	r := dice(30, c.Rank())
	for i := range 30 {
		lag(r)
		root := i % c.Size()
		if err := mpi.Send(c, []int{i}, root, 1); err != nil {
			return err
		}
		if err := c.Barrier(); err != nil {
			return err
		}
		if c.Rank() == root {
			for from := range c.Size() {
				ok, _, err := c.Iprobe(from, 1)
				if err != nil {
					return err
				}
				if !ok {
					return fmt.Errorf("barrier %d let this rank pass before rank %d came", i, from)
				}
				got := []int{0}
				if _, err := mpi.Recv(c, got, from, 1); err != nil {
					return err
				}
				if err := want("message", got[0], i); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// collect compares the collectives that move blocks of one length with the
// expected results, for vectors of all lengths and several roots.
func collect[T comparable](c *mpi.Comm) error {
	n, me := c.Size(), c.Rank()
	for _, length := range vectors {
		for _, root := range slices.Compact([]int{0, n / 2, n - 1}) {
			data := make([]T, length)
			if me == root {
				data = values[T](length, root)
			}
			if err := mpi.Bcast(c, data, root); err != nil {
				return err
			}
			if err := wantSlice("bcast", data, values[T](length, root)); err != nil {
				return err
			}
		}
		m := length // length of a block; long vectors are long in total
		if m == longest {
			m /= n
		}
		var all []T // the values of all ranks, in order
		for r := range n {
			all = append(all, values[T](m, r, 7)...)
		}
		mine := func() []T { return values[T](m, me, 7) }
		for _, root := range slices.Compact([]int{0, n / 2, n - 1}) {
			var recv []T
			if me == root {
				recv = make([]T, m*n)
			}
			if err := mpi.Gather(c, mine(), recv, root); err != nil {
				return err
			}
			if me == root {
				if err := wantSlice("gather", recv, all); err != nil {
					return err
				}
			}
			var send []T
			if me == root {
				send = slices.Clone(all)
			}
			part := make([]T, m)
			if err := mpi.Scatter(c, send, part, root); err != nil {
				return err
			}
			if err := wantSlice("scatter", part, mine()); err != nil {
				return err
			}
			if me == root {
				if err := wantSlice("send after scatter", send, all); err != nil {
					return err
				}
			}
		}
		recv := make([]T, m*n)
		if err := mpi.Allgather(c, mine(), recv); err != nil {
			return err
		}
		if err := wantSlice("allgather", recv, all); err != nil {
			return err
		}
		var out, in []T
		for r := range n {
			out = append(out, values[T](m, me, r)...)
			in = append(in, values[T](m, r, me)...)
		}
		clear(recv)
		if err := mpi.Alltoall(c, out, recv); err != nil {
			return err
		}
		if err := wantSlice("alltoall", recv, in); err != nil {
			return err
		}
	}
	return nil
}

// places lays out blocks of these lengths with gaps between them, in an order
// that is not that of the ranks. It returns the displacements and the total
// length.
func places(counts []int, seed int) ([]int, int) {
	r := dice(31, seed)
	displs, end := make([]int, len(counts)), 0
	for _, i := range r.Perm(len(counts)) {
		end += r.IntN(3)
		displs[i] = end
		end += counts[i]
	}
	return displs, end + r.IntN(3)
}

// blocks compares the collectives that move blocks of different lengths, some
// of them empty, with the expected results. The gaps between blocks must not
// change.
func blocks(c *mpi.Comm) error {
	n, me := c.Size(), c.Rank()
	const gap = -77
	for round, most := range []int{1, 5, 40, 3000, 12000} {
		r := dice(32, round)
		counts := make([]int, n)
		for i := range counts {
			if r.IntN(4) > 0 {
				counts[i] = r.IntN(most + 1)
			}
		}
		between := make([][]int, n) // what rank i sends to rank j
		for i := range n {
			between[i] = make([]int, n)
			for j := range n {
				if r.IntN(3) > 0 {
					between[i][j] = r.IntN(most + 1)
				}
			}
		}
		// lay puts blocks of counts into a vector full of gap.
		lay := func(counts, displs []int, size int, give func(r int) []int) []int {
			v := slices.Repeat([]int{gap}, size)
			for i := range counts {
				copy(v[displs[i]:], give(i))
			}
			return v
		}
		none := func(int) []int { return nil }
		mine := values[int](counts[me], me, round)
		theirs := func(i int) []int { return values[int](counts[i], i, round) }
		for _, packed := range []bool{false, true} {
			for _, root := range slices.Compact([]int{0, round % n, n - 1}) {
				displs, size := places(counts, root)
				given := displs
				if packed {
					given, size = nil, 0
					for i := range displs {
						displs[i] = size
						size += counts[i]
					}
				}
				full := lay(counts, displs, size, theirs)
				// Only the root needs the layout.
				var err error
				recv := lay(counts, displs, size, none)
				if me == root {
					err = mpi.Gatherv(c, mine, recv, counts, given, root)
				} else {
					err = mpi.Gatherv(c, mine, nil, nil, nil, root)
				}
				if err != nil {
					return err
				}
				if me == root {
					if err := wantSlice("gatherv", recv, full); err != nil {
						return err
					}
				}
				part := make([]int, counts[me])
				if me == root {
					err = mpi.Scatterv(c, full, counts, given, part, root)
				} else {
					err = mpi.Scatterv(c, nil, nil, nil, part, root)
				}
				if err != nil {
					return err
				}
				if err := wantSlice("scatterv", part, mine); err != nil {
					return err
				}
				recv = lay(counts, displs, size, none)
				if err := mpi.Allgatherv(c, mine, recv, counts, given); err != nil {
					return err
				}
				if err := wantSlice("allgatherv", recv, full); err != nil {
					return err
				}
			}
			in := make([]int, n)
			for i := range n {
				in[i] = between[i][me]
			}
			sdispls, ssize := places(between[me], me)
			rdispls, rsize := places(in, me+100)
			send := lay(between[me], sdispls, ssize, func(j int) []int { return values[int](between[me][j], me, j) })
			recv := lay(in, rdispls, rsize, none)
			if err := mpi.Alltoallv(c, send, between[me], sdispls, recv, in, rdispls); err != nil {
				return err
			}
			full := lay(in, rdispls, rsize, func(i int) []int { return values[int](in[i], i, me) })
			if err := wantSlice("alltoallv", recv, full); err != nil {
				return err
			}
		}
	}
	return nil
}

// moreRanks shows that the exchange of blocks works in several windows.
func moreRanks(c *mpi.Comm) error {
	n, me := c.Size(), c.Rank()
	for _, m := range []int{1, 700} {
		var out, in []int
		for r := range n {
			out = append(out, values[int](m, me, r)...)
			in = append(in, values[int](m, r, me)...)
		}
		if err := mpi.Alltoall(c, out, out); err != nil {
			return err
		}
		if err := wantSlice("alltoall in place", out, in); err != nil {
			return err
		}
	}
	x := values[affine](9000, me)
	y := make([]affine, len(x))
	if err := mpi.Allreduce(c, x, y, compose); err != nil {
		return err
	}
	if err := wantSlice("allreduce", y, fold(n, len(x))); err != nil {
		return err
	}
	if err := mpi.Scan(c, x[:5], y[:5], compose); err != nil {
		return err
	}
	return wantSlice("scan", y[:5], fold(me+1, 5))
}

// inPlace shows that the send and receive buffers may be the same memory.
func inPlace(c *mpi.Comm) error {
	n, me := c.Size(), c.Rank()
	for _, m := range []int{1, 3, 400, longest / 8} {
		var all, in []int
		for r := range n {
			all = append(all, values[int](m, r)...)
			in = append(in, values[int](m, r, me)...)
		}
		mine := values[int](m, me)
		root := m % n
		for at := range n { // the rank's own block is in its place, or elsewhere
			buf := slices.Repeat([]int{-1}, m*n)
			copy(buf[at*m:], mine)
			if me == root {
				if err := mpi.Gather(c, buf[at*m:(at+1)*m], buf, root); err != nil {
					return err
				}
				if err := wantSlice("gather in place", buf, all); err != nil {
					return err
				}
				if err := mpi.Scatter(c, buf, buf[at*m:(at+1)*m], root); err != nil {
					return err
				}
			} else {
				if err := mpi.Gather(c, buf[at*m:(at+1)*m], nil, root); err != nil {
					return err
				}
				if err := mpi.Scatter(c, nil, buf[at*m:(at+1)*m], root); err != nil {
					return err
				}
			}
			if err := wantSlice("scatter in place", buf[at*m:(at+1)*m], mine); err != nil {
				return err
			}
			clear(buf)
			copy(buf[at*m:], mine)
			if err := mpi.Allgather(c, buf[at*m:(at+1)*m], buf); err != nil {
				return err
			}
			if err := wantSlice("allgather in place", buf, all); err != nil {
				return err
			}
		}
		var buf, counts []int
		for r := range n {
			buf = append(buf, values[int](m, me, r)...)
			counts = append(counts, m)
		}
		again := slices.Clone(buf)
		if err := mpi.Alltoall(c, buf, buf); err != nil {
			return err
		}
		if err := wantSlice("alltoall in place", buf, in); err != nil {
			return err
		}
		if err := mpi.Alltoallv(c, again, counts, nil, again, counts, nil); err != nil {
			return err
		}
		if err := wantSlice("alltoallv in place", again, in); err != nil {
			return err
		}

		x := values[affine](m, me)
		reset := func() { copy(x, values[affine](m, me)) }
		if err := mpi.Reduce(c, x, x, compose, root); err != nil {
			return err
		}
		if me == root {
			if err := wantSlice("reduce in place", x, fold(n, m)); err != nil {
				return err
			}
		} else if err := wantSlice("send of reduce", x, values[affine](m, me)); err != nil {
			return err
		}
		reset()
		if err := mpi.Allreduce(c, x, x, compose); err != nil {
			return err
		}
		if err := wantSlice("allreduce in place", x, fold(n, m)); err != nil {
			return err
		}
		reset()
		if err := mpi.Scan(c, x, x, compose); err != nil {
			return err
		}
		if err := wantSlice("scan in place", x, fold(me+1, m)); err != nil {
			return err
		}
		reset()
		if err := mpi.Exscan(c, x, x, compose); err != nil {
			return err
		}
		if me > 0 {
			if err := wantSlice("exscan in place", x, fold(me, m)); err != nil {
				return err
			}
		} else if err := wantSlice("exscan of rank 0", x, values[affine](m, 0)); err != nil {
			return err
		}
		reset()
		each := make([]int, n)
		each[n-1] = m
		part := x[:each[me]]
		if err := mpi.ReduceScatter(c, x, part, each, compose); err != nil {
			return err
		}
		if err := wantSlice("reducescatter in place", part, fold(n, m)[:len(part)]); err != nil {
			return err
		}
	}
	return nil
}
