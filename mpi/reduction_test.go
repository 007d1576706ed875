package mpi_test

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/cairnrun/cairn/mpi"
)

var reductionScenes = []scene{
	{"affine maps", upTo(9), func(c *mpi.Comm) error { return reduceAll(c, compose) }},
	{"int sum", []int{2, 5, 9}, func(c *mpi.Comm) error { return reduceAll(c, mpi.Sum[int]) }},
	{"float64 sum", []int{1, 3, 6, 7, 8}, func(c *mpi.Comm) error { return reduceAll(c, mpi.Sum[float64]) }},
	{"float32 product", []int{3, 8}, func(c *mpi.Comm) error { return reduceAll(c, mpi.Prod[float32]) }},
	{"complex sum", []int{5, 6}, func(c *mpi.Comm) error { return reduceAll(c, mpi.Sum[complex128]) }},
	{"matrices", []int{1, 4, 7}, matrices},
	{"operations", []int{2, 3, 6}, operations},
	{"not a number", []int{1, 2, 5}, notANumber},
}

// affine is the map x → a·x + b on integers. The order of composition matters,
// but not the grouping.
type affine struct{ a, b uint64 }

// compose is an Op: first inout, then in.
func compose(inout, in []affine) {
	for i, g := range in {
		f := inout[i]
		inout[i] = affine{g.a * f.a, g.a*f.b + g.b}
	}
}

// fold returns the combination, in order, of the first ranks' values
// values[affine](n, rank).
func fold(ranks, n int) []affine {
	v := values[affine](n, 0)
	for r := 1; r < ranks; r++ {
		compose(v, values[affine](n, r))
	}
	return v
}

// inShape combines the values of n ranks in the order that the package
// promises, implemented differently: pairs first, then halves.
func inShape[T any](n int, give func(rank int) []T, op mpi.Op[T]) []T {
	p := 1 << (bits.Len(uint(n)) - 1)
	var terms [][]T
	for r := 0; r < n; {
		t := give(r)
		if r++; r < 2*(n-p) {
			op(t, give(r))
			r++
		}
		terms = append(terms, t)
	}
	var join func(t [][]T) []T
	join = func(t [][]T) []T {
		if len(t) == 1 {
			return t[0]
		}
		v := join(t[:len(t)/2])
		op(v, join(t[len(t)/2:]))
		return v
	}
	return join(terms)
}

// reduceAll compares all reductions of op, bit by bit, with the promised order,
// for all lengths and roots.
func reduceAll[T comparable](c *mpi.Comm, op mpi.Op[T]) error {
	n, me := c.Size(), c.Rank()
	for _, length := range vectors {
		theirs := make([][]T, n)
		for r := range theirs {
			theirs[r] = values[T](length, r)
		}
		give := func(r int) []T { return slices.Clone(theirs[r]) }
		all := inShape(n, give, op)
		send := give(me)
		unchanged := func(what string) error { return wantSlice("send of "+what, send, theirs[me]) }

		recv := make([]T, length)
		if err := mpi.Allreduce(c, send, recv, op); err != nil {
			return err
		}
		if err := wantSlice("allreduce", recv, all); err != nil {
			return err
		}
		if err := unchanged("allreduce"); err != nil {
			return err
		}
		for _, root := range slices.Compact([]int{0, n / 2, n - 1}) {
			var recv []T
			if me == root {
				recv = make([]T, length)
			}
			if err := mpi.Reduce(c, send, recv, op, root); err != nil {
				return err
			}
			if me == root {
				if err := wantSlice("reduce", recv, all); err != nil {
					return err
				}
			}
			if err := unchanged("reduce"); err != nil {
				return err
			}
		}
		for _, even := range []bool{true, false} {
			counts, from := make([]int, n), 0
			left := length
			for i := range counts {
				counts[i] = length / n
				if !even {
					counts[i] = (left + i) / 2 % (left + 1)
				}
				if i == n-1 {
					counts[i] = left
				}
				left -= counts[i]
				if i < me {
					from += counts[i]
				}
			}
			part := make([]T, counts[me])
			if err := mpi.ReduceScatter(c, send, part, counts, op); err != nil {
				return err
			}
			if err := wantSlice("reducescatter", part, all[from:from+counts[me]]); err != nil {
				return err
			}
			if err := unchanged("reducescatter"); err != nil {
				return err
			}
		}
		// Scans use another order, so only exact operations are compared.
		exact := false
		switch any(send).(type) {
		case []int, []affine:
			exact = true
		}
		clear(recv)
		if err := mpi.Scan(c, send, recv, op); err != nil {
			return err
		}
		if err := unchanged("scan"); err != nil {
			return err
		}
		upTo := func(n int) []T {
			v := give(0)
			for r := 1; r < n; r++ {
				op(v, theirs[r])
			}
			return v
		}
		if exact || me < 2 {
			if err := wantSlice("scan", recv, upTo(me+1)); err != nil {
				return err
			}
		}
		again := slices.Clone(recv)
		if err := mpi.Scan(c, send, recv, op); err != nil {
			return err
		}
		if err := wantSlice("scan again", recv, again); err != nil {
			return err
		}
		before := values[T](length, 99)
		recv = slices.Clone(before)
		if err := mpi.Exscan(c, send, recv, op); err != nil {
			return err
		}
		if me == 0 {
			if err := wantSlice("exscan of rank 0", recv, before); err != nil {
				return err
			}
		} else if exact || me < 3 {
			if err := wantSlice("exscan", recv, upTo(me)); err != nil {
				return err
			}
		}
		if err := unchanged("exscan"); err != nil {
			return err
		}
	}
	return nil
}

// matrices multiplies 2×2 matrices of floats, which neither commute nor are
// exact. All ranks must get the same bits.
func matrices(c *mpi.Comm) error {
	type matrix [2][2]float64
	mul := func(inout, in []matrix) {
		for i, b := range in {
			a := inout[i]
			for r := range 2 {
				for s := range 2 {
					inout[i][r][s] = float64(a[r][0]*b[0][s]) + float64(a[r][1]*b[1][s]) // see mpi.Op
				}
			}
		}
	}
	give := func(r int) []matrix {
		v := make([]matrix, 3000)
		for i := range v {
			a := float64(r+1) / float64(i+3)
			v[i] = matrix{{1 / (1 + a), -a}, {a * 1.1, 1.3 - a}}
		}
		return v
	}
	for _, n := range []int{1, 20, 3000} {
		cut := func(r int) []matrix { return give(r)[:n] }
		got := make([]matrix, n)
		if err := mpi.Allreduce(c, cut(c.Rank()), got, mul); err != nil {
			return err
		}
		if err := wantSlice("product", got, inShape(c.Size(), cut, mul)); err != nil {
			return err
		}
	}
	return nil
}

// operations tests each Op, whose type the compiler infers.
func operations(c *mpi.Comm) error {
	n, me := c.Size(), c.Rank()
	type flag bool
	type level int16
	fact, or := 1, 0
	for r := range n {
		fact *= r + 1
		or |= 1 << r
	}
	return steps("operations",
		func() error { return total(c, []int{me, -me}, []int{n * (n - 1) / 2, -n * (n - 1) / 2}, mpi.Sum) },
		func() error { return total(c, []complex64{1i}, []complex64{complex(0, float32(n))}, mpi.Sum) },
		func() error { return total(c, []int{me + 1}, []int{fact}, mpi.Prod) },
		func() error { return total(c, []level{level(me), -level(me)}, []level{level(n - 1), 0}, mpi.Max) },
		func() error {
			return total(c, []float32{float32(me), -float32(me)}, []float32{0, -float32(n - 1)}, mpi.Min)
		},
		func() error { return total(c, []uint8{^uint8(1 << me)}, []uint8{^uint8(or)}, mpi.BAnd) },
		func() error { return total(c, []uint64{1 << me}, []uint64{uint64(or)}, mpi.BOr) },
		func() error { return total(c, []int32{7}, []int32{int32(n % 2 * 7)}, mpi.BXor) },
		func() error {
			return total(c, []bool{true, false, me == 0}, []bool{true, false, n == 1}, mpi.LAnd)
		},
		func() error { return total(c, []flag{true, false, me == 0}, []flag{true, false, true}, mpi.LOr) },
		func() error { return total(c, []int{4, 0, me}, []int{1, 0, 0}, mpi.LAnd) },
		func() error { return total(c, []uint16{6, 0}, []uint16{1, 0}, mpi.LOr) },
		func() error {
			return total(c,
				[]mpi.Loc[float64]{{float64(me % 2), me}, {1, n - me}, {-float64(me), me}},
				[]mpi.Loc[float64]{{float64(min(1, n-1)), min(1, n-1)}, {1, 1}, {0, 0}}, mpi.MaxLoc)
		},
		func() error {
			return total(c,
				[]mpi.Loc[int8]{{int8(me % 2), me}, {1, n - me}, {-int8(me), me}},
				[]mpi.Loc[int8]{{0, 0}, {1, 1}, {-int8(n - 1), n - 1}}, mpi.MinLoc)
		},
		// The last rank's value, by a function literal.
		func() error {
			return total(c, []int{me}, []int{n - 1}, func(inout, in []int) { copy(inout, in) })
		},
	)
}

func total[T comparable](c *mpi.Comm, send, all []T, op mpi.Op[T]) error {
	recv := make([]T, len(send))
	if err := mpi.Allreduce(c, send, recv, op); err != nil {
		return err
	}
	return wantSlice(fmt.Sprintf("%T", send), recv, all)
}

func notANumber(c *mpi.Comm) error {
	n, me := c.Size(), c.Rank()
	for bad := range n {
		x := float64(me)
		if me == bad {
			x = math.NaN()
		}
		got := []float64{0}
		for _, op := range []mpi.Op[float64]{mpi.Max[float64], mpi.Min[float64], mpi.Sum[float64]} {
			if err := mpi.Allreduce(c, []float64{x}, got, op); err != nil {
				return err
			}
			if !math.IsNaN(got[0]) {
				return fmt.Errorf("NaN of rank %d got lost", bad)
			}
		}
		loc := []mpi.Loc[float64]{{}}
		for _, op := range []mpi.Op[mpi.Loc[float64]]{mpi.MaxLoc[float64], mpi.MinLoc[float64]} {
			if err := mpi.Allreduce(c, []mpi.Loc[float64]{{x, me}}, loc, op); err != nil {
				return err
			}
			if !math.IsNaN(loc[0].Value) || loc[0].Index != bad {
				return fmt.Errorf("NaN of rank %d was found at %d", bad, loc[0].Index)
			}
		}
	}
	return nil
}
