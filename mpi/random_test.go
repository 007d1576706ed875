package mpi_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cairnrun/cairn/mpi"
)

// randomCollectives executes a long sequence of collectives on several
// communicators, with ranks that lag and other messages in between. Only the
// collectives themselves synchronize the ranks.
func randomCollectives(c *mpi.Comm) error {
	dup, err := c.Dup()
	if err != nil {
		return err
	}
	half, err := c.Split(c.Rank()%2, -c.Rank())
	if err != nil {
		return err
	}
	shared, own := dice(40, c.Size()), dice(41, c.Rank())
	to, from := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	const rounds = 200
	var sends, recvs []*mpi.Request
	bufs := make([][]byte, rounds)
	for i := range rounds {
		d := []*mpi.Comm{c, dup, half}[shared.IntN(3)]
		op := shared.IntN(len(randomSteps))
		n := shared.IntN(30)
		if shared.IntN(5) == 0 {
			n = shared.IntN(9000)
		}
		root := shared.IntN(1000) % d.Size()
		length := anyLength(shared)
		sends = append(sends, mpi.Isend(c, pattern(length, c.Rank(), i), to, 0))
		bufs[i] = make([]byte, length)
		recvs = append(recvs, mpi.Irecv(c, bufs[i], from, 0))
		lag(own)
		if err := randomSteps[op](d, n, root, i); err != nil {
			return fmt.Errorf("collective %d, kind %d, %d elements, %d ranks: %w", i, op, n, d.Size(), err)
		}
	}
	if err := mpi.WaitAll(append(sends, recvs...)...); err != nil {
		return err
	}
	for i := range rounds {
		if err := wantSlice("message", bufs[i], pattern(len(bufs[i]), from, i)); err != nil {
			return err
		}
	}
	return nil
}

var randomSteps = []func(c *mpi.Comm, n, root, seed int) error{
	func(c *mpi.Comm, n, root, seed int) error { return c.Barrier() },
	func(c *mpi.Comm, n, root, seed int) error {
		x := values[affine](n, c.Rank(), seed)
		if err := mpi.Bcast(c, x, root); err != nil {
			return err
		}
		return wantSlice("bcast", x, values[affine](n, root, seed))
	},
	func(c *mpi.Comm, n, root, seed int) error {
		x := make([]affine, n)
		if err := mpi.Reduce(c, values[affine](n, c.Rank(), seed), x, compose, root); err != nil {
			return err
		}
		if c.Rank() != root {
			return wantSlice("recv of another rank", x, make([]affine, n))
		}
		return wantSlice("reduce", x, foldSeed(c.Size(), n, seed))
	},
	func(c *mpi.Comm, n, root, seed int) error {
		x := values[affine](n, c.Rank(), seed)
		if err := mpi.Allreduce(c, x, x, compose); err != nil {
			return err
		}
		return wantSlice("allreduce", x, foldSeed(c.Size(), n, seed))
	},
	func(c *mpi.Comm, n, root, seed int) error {
		x := values[affine](n, c.Rank(), seed)
		if err := mpi.Scan(c, x, x, compose); err != nil {
			return err
		}
		return wantSlice("scan", x, foldSeed(c.Rank()+1, n, seed))
	},
	func(c *mpi.Comm, n, root, seed int) error {
		counts := make([]int, c.Size())
		counts[root] = n
		x := make([]affine, counts[c.Rank()])
		if err := mpi.ReduceScatter(c, values[affine](n, c.Rank(), seed), x, counts, compose); err != nil {
			return err
		}
		return wantSlice("reducescatter", x, foldSeed(c.Size(), n, seed)[:len(x)])
	},
	func(c *mpi.Comm, n, root, seed int) error {
		x := make([]int, n*c.Size())
		if err := mpi.Gather(c, values[int](n, c.Rank(), seed), x, root); err != nil {
			return err
		}
		if c.Rank() != root {
			return wantSlice("recv of another rank", x, make([]int, n*c.Size()))
		}
		return wantSlice("gather", x, row(c, n, seed))
	},
	func(c *mpi.Comm, n, root, seed int) error {
		x := make([]int, n)
		if err := mpi.Scatter(c, values[int](n*c.Size(), root, seed), x, root); err != nil {
			return err
		}
		return wantSlice("scatter", x, values[int](n*c.Size(), root, seed)[c.Rank()*n:][:n])
	},
	func(c *mpi.Comm, n, root, seed int) error {
		x := make([]int, n*c.Size())
		if err := mpi.Allgather(c, values[int](n, c.Rank(), seed), x); err != nil {
			return err
		}
		return wantSlice("allgather", x, row(c, n, seed))
	},
	func(c *mpi.Comm, n, root, seed int) error {
		x := values[int](n*c.Size(), c.Rank(), seed)
		if err := mpi.Alltoall(c, x, x); err != nil {
			return err
		}
		var all []int
		for r := range c.Size() {
			all = append(all, values[int](n*c.Size(), r, seed)[c.Rank()*n:][:n]...)
		}
		return wantSlice("alltoall", x, all)
	},
}

// row returns the values of all ranks, one after the other.
func row(c *mpi.Comm, n, seed int) []int {
	var all []int
	for r := range c.Size() {
		all = append(all, values[int](n, r, seed)...)
	}
	return all
}

func foldSeed(ranks, n, seed int) []affine {
	v := values[affine](n, 0, seed)
	for r := 1; r < ranks; r++ {
		compose(v, values[affine](n, r, seed))
	}
	return v
}

// wrongCollectives shows that impossible arguments are errors on the rank that
// passes them, at once, before anything is sent.
func wrongCollectives(c *mpi.Comm) error {
	n, me := c.Size(), c.Rank()
	x, y := make([]int, 4*n), make([]int, 4*n)
	ones := slices.Repeat([]int{1}, n)
	with := func(i, v int) []int {
		s := slices.Clone(ones)
		s[i] = v
		return s
	}
	same := make([]int, n) // all blocks at 0
	const huge = int(^uint(0) >> 1)
	for what, err := range map[string]error{
		"bcast, root -1":              mpi.Bcast(c, x, -1),
		"bcast, root n":               mpi.Bcast(c, x, n),
		"bcast of strings":            mpi.Bcast(c, []string{"a"}, 0),
		"reduce, root n":              mpi.Reduce(c, x, y, mpi.Sum, n),
		"reduce, op nil":              mpi.Reduce(c, x, y, nil, 0),
		"reduce, recv too short":      mpi.Reduce(c, x, y[1:], mpi.Sum, me),
		"allreduce, recv too short":   mpi.Allreduce(c, x, y[1:], mpi.Sum),
		"allreduce, recv too long":    mpi.Allreduce(c, x[1:], y, mpi.Sum),
		"allreduce, op nil":           mpi.Allreduce(c, x, y, nil),
		"scan, recv too short":        mpi.Scan(c, x, nil, mpi.Sum),
		"scan, op nil":                mpi.Scan(c, x, y, nil),
		"exscan, recv too short":      mpi.Exscan(c, x, nil, mpi.Sum),
		"gather, root n":              mpi.Gather(c, x, y, n),
		"gather, recv too short":      mpi.Gather(c, x, y[1:], me),
		"gather of pointers":          mpi.Gather(c, []*int{}, []*int{}, me),
		"scatter, root -1":            mpi.Scatter(c, x, y, -1),
		"scatter, send too short":     mpi.Scatter(c, x[1:], y[:4], me),
		"allgather, recv too short":   mpi.Allgather(c, x[:4], y[1:]),
		"allgather, recv too long":    mpi.Allgather(c, x[:3], y),
		"alltoall, other lengths":     mpi.Alltoall(c, x, y[1:]),
		"gatherv, root n":             mpi.Gatherv(c, x[:1], y, ones, nil, n),
		"gatherv, no counts":          mpi.Gatherv(c, x[:1], y, nil, nil, me),
		"gatherv, own count":          mpi.Gatherv(c, x[:2], y, ones, nil, me),
		"gatherv, too many displs":    mpi.Gatherv(c, x[:1], y, ones, make([]int, n+1), me),
		"gatherv, negative count":     mpi.Gatherv(c, x[:1], y, with(n-1, -1), nil, me),
		"gatherv, huge count":         mpi.Gatherv(c, x[:1], y, with(0, huge), nil, me),
		"gatherv, huge displ":         mpi.Gatherv(c, x[:1], y, ones, with(0, huge), me),
		"gatherv, negative displ":     mpi.Gatherv(c, x[:1], y, ones, with(0, -1), me),
		"gatherv, beyond recv":        mpi.Gatherv(c, x[:1], y, ones, with(n-1, 4*n), me),
		"scatterv, root n":            mpi.Scatterv(c, x, ones, nil, y[:1], n),
		"scatterv, own count":         mpi.Scatterv(c, x, ones, nil, y[:2], me),
		"scatterv, beyond send":       mpi.Scatterv(c, x, with(0, 4*n+1), nil, y[:1], me),
		"allgatherv, no counts":       mpi.Allgatherv(c, x[:1], y, nil, nil),
		"allgatherv, own count":       mpi.Allgatherv(c, x[:3], y, ones, nil),
		"allgatherv, huge counts":     mpi.Allgatherv(c, x[:1], y, slices.Repeat([]int{huge}, n), nil),
		"alltoallv, no counts":        mpi.Alltoallv(c, x, nil, nil, y, ones, nil),
		"alltoallv, no rcounts":       mpi.Alltoallv(c, x, ones, nil, y, nil, nil),
		"alltoallv, own counts":       mpi.Alltoallv(c, x, ones, nil, y, with(me, 2), nil),
		"alltoallv, beyond send":      mpi.Alltoallv(c, x, ones, with(0, 4*n), y, ones, nil),
		"reducescatter, no counts":    mpi.ReduceScatter(c, x, y, nil, mpi.Sum),
		"reducescatter, own count":    mpi.ReduceScatter(c, x[:n], y[:2], ones, mpi.Sum),
		"reducescatter, sum":          mpi.ReduceScatter(c, x, y[:1], ones, mpi.Sum),
		"reducescatter, op nil":       mpi.ReduceScatter(c, x[:n], y[:1], ones, nil),
		"reducescatter, negative":     mpi.ReduceScatter(c, x[:n], y[:1], with(0, -1), mpi.Sum),
		"allreduce of type with ptrs": mpi.Allreduce(c, []*int{}, []*int{}, func(_, _ []*int) {}),
	} {
		if err := wantErr(what, err, mpi.ErrArgument); err != nil {
			return err
		}
	}
	if n > 1 {
		if err := wantErr("alltoall, not a multiple", mpi.Alltoall(c, x[1:], y[1:]), mpi.ErrArgument); err != nil {
			return err
		}
		if err := wantErr("gatherv, overlap", mpi.Gatherv(c, x[:1], y, ones, same, me), mpi.ErrArgument); err != nil {
			return err
		}
		if err := wantErr("alltoallv, overlap", mpi.Alltoallv(c, x, ones, same, y, ones, same), mpi.ErrArgument); err != nil {
			return err
		}
	}
	// Buffers that are only read may overlap.
	if me == 0 {
		x[0] = 8
	}
	if err := mpi.Scatterv(c, x, ones, same, y[:1], 0); err != nil {
		return err
	}
	if err := want("scatterv of one element to all", y[0], 8); err != nil {
		return err
	}
	return c.Barrier()
}

// mismatch shows that arguments which do not match those of the other rank are
// errors where a message comes that is longer or shorter than expected.
func mismatch(c *mpi.Comm) error {
	me := c.Rank()
	x, y := make([]int, 10), make([]int, 10)
	expect := func(what string, err error, on ...error) error {
		if on[me] == nil {
			return want(what, err, nil)
		}
		return wantErr(what, err, on[me])
	}
	return steps("mismatch",
		func() error { return expect("bcast", mpi.Bcast(c, x[:3+me], 0), nil, mpi.ErrMismatch) },
		func() error { return expect("bcast", mpi.Bcast(c, x[:3-me], 0), nil, mpi.ErrTruncated) },
		func() error { return expect("gather", mpi.Gather(c, x[:2-me], y[:4], 0), mpi.ErrMismatch, nil) },
		func() error { return expect("gather", mpi.Gather(c, x[:2+me], y[:4], 0), mpi.ErrTruncated, nil) },
		func() error { return expect("scatter", mpi.Scatter(c, x[:4], y[:2+me], 0), nil, mpi.ErrMismatch) },
		func() error {
			return expect("allgather", mpi.Allgather(c, x[:2+me], y[:4+2*me]), mpi.ErrTruncated, mpi.ErrMismatch)
		},
		func() error {
			return expect("allreduce", mpi.Allreduce(c, x[:5-me], y[:5-me], mpi.Sum), mpi.ErrMismatch, mpi.ErrTruncated)
		},
		func() error {
			return expect("alltoallv", mpi.Alltoallv(c, x, []int{1, me}, nil, y, []int{1, 1}, nil), nil, mpi.ErrMismatch)
		},
		func() error { // the same number of elements, of other types
			if me == 0 {
				return mpi.Bcast(c, x[:3], 0)
			}
			return wantErr("types", mpi.Bcast(c, make([]int32, 3), 0), mpi.ErrTruncated)
		},
		c.Barrier,
	)
}

// FuzzLayout shows that a rank gets an error or the right result, whatever
// counts and displacements it passes.
func FuzzLayout(f *testing.F) {
	f.Add(5, 2, 3, 0, 2)
	f.Add(5, 2, 3, 1, 0)
	f.Add(3, -1, 1<<62, 1<<62, -5)
	f.Fuzz(func(t *testing.T, size, c0, c1, d0, d1 int) {
		size &= 63
		err := mpi.Local(1, func(c *mpi.Comm) error {
			// One rank, so one block is right and two are not.
			x, y := values[int](size, 3), make([]int, size)
			if err := mpi.Scatterv(c, x, []int{c0, c1}, []int{d0, d1}, nil, 0); !errors.Is(err, mpi.ErrArgument) {
				return fmt.Errorf("two blocks for one rank: %v", err)
			}
			fits := c0 >= 0 && d0 >= 0 && c0 <= size && d0 <= size && c0+d0 <= size &&
				c1 >= 0 && d1 >= 0 && c1 <= size && d1 <= size && c0+d1 <= size
			err := mpi.Alltoallv(c, x, []int{c0}, []int{d0}, y, []int{c0}, []int{d1})
			if fits != (err == nil) && (c1 >= 0 && c1 <= size) {
				return fmt.Errorf("%d elements, %d from %d to %d: %v", size, c0, d0, d1, err)
			}
			if err != nil {
				return wantErr("alltoallv", err, mpi.ErrArgument)
			}
			return wantSlice("block", y[d1:d1+c0], x[d0:d0+c0])
		})
		if err != nil {
			t.Error(err)
		}
	})
}
