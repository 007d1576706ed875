// # Collectives
//
// All ranks of a communicator call a collective, in the same order on every
// rank, and only one goroutine of a rank at a time. It returns when this
// rank's part is done: the buffers are the caller's again, but other ranks may
// still be at work. Only Barrier says that all have come.
//
// What a rank passes is checked before anything is sent: a wrong length, count
// or root gives ErrArgument. That rank is then missing in the collective, and
// the others wait for it until it ends or dies. Whether ranks pass arguments
// that fit each other shows only when messages come: one that is shorter or
// longer than expected gives ErrMismatch or ErrTruncated on the rank that
// receives it. Ranks that disagree in the root, in the order of their calls, or
// in lengths so different that they choose different algorithms may wait for
// each other, as in every MPI. After an error of a message, the buffers may
// still be written to and results are not to be used; end the run.
//
// Reductions give the same bits in every run, on every rank and over every
// transport; see Op.
package mpi

import "reflect"

// An Op combines two vectors of equal length element by element:
//
//	inout[i] = inout[i] op in[i]
//
// In every reduction of this package inout holds what lower ranks gave and in
// what higher ranks gave. So op has to be associative, but need not commute.
// Values are combined in a shape that depends on the number of ranks alone, so
// that also operations that are only nearly associative, such as sums of
// floating-point numbers, give the same bits every time. Ranks on different
// kinds of processors may round x*y + z differently, also within a product of
// complex numbers; where that matters, write float64(x*y) + z.
//
// An Op is called by the goroutine that called the collective, for the whole
// vectors or for any part of them, also for an empty one. It must not change
// in, and must not keep either slice.
type Op[T any] func(inout, in []T)

// Integer is the types that BAnd, BOr and BXor work on.
type Integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

// Real is the types that Max and Min work on.
type Real interface {
	Integer | ~float32 | ~float64
}

// Number is the types that Sum and Prod work on.
type Number interface {
	Real | ~complex64 | ~complex128
}

// Loc is a value and where it was found, for MaxLoc and MinLoc.
type Loc[T Real] struct {
	Value T
	Index int
}

// Sum is the Op +.
func Sum[T Number](inout, in []T) {
	inout = inout[:len(in)]
	for i, v := range in {
		inout[i] += v
	}
}

// Prod is the Op ×.
func Prod[T Number](inout, in []T) {
	inout = inout[:len(in)]
	for i, v := range in {
		inout[i] *= v
	}
}

// Max is the Op that keeps the larger value. A NaN on any rank gives NaN.
func Max[T Real](inout, in []T) {
	inout = inout[:len(in)]
	for i, v := range in {
		inout[i] = max(inout[i], v)
	}
}

// Min is the Op that keeps the smaller value. A NaN on any rank gives NaN.
func Min[T Real](inout, in []T) {
	inout = inout[:len(in)]
	for i, v := range in {
		inout[i] = min(inout[i], v)
	}
}

// BAnd is the Op & on bits.
func BAnd[T Integer](inout, in []T) {
	inout = inout[:len(in)]
	for i, v := range in {
		inout[i] &= v
	}
}

// BOr is the Op | on bits.
func BOr[T Integer](inout, in []T) {
	inout = inout[:len(in)]
	for i, v := range in {
		inout[i] |= v
	}
}

// BXor is the Op ^ on bits.
func BXor[T Integer](inout, in []T) {
	inout = inout[:len(in)]
	for i, v := range in {
		inout[i] ^= v
	}
}

// LAnd is the logical and. Integers that are not 0 are true; the result is 0
// or 1.
func LAnd[T ~bool | Integer](inout, in []T) {
	logical(inout, in, func(a, b bool) bool { return a && b })
}

// LOr is the logical or. Integers that are not 0 are true; the result is 0
// or 1.
func LOr[T ~bool | Integer](inout, in []T) {
	logical(inout, in, func(a, b bool) bool { return a || b })
}

func logical[T ~bool | Integer](inout, in []T, op func(a, b bool) bool) {
	var no, yes T
	// No conversion gives both true and 1, so reflection does it, once.
	switch v := reflect.ValueOf(&yes).Elem(); {
	case v.CanInt():
		v.SetInt(1)
	case v.CanUint():
		v.SetUint(1)
	default:
		v.SetBool(true)
	}
	for i, v := range in {
		if op(inout[i] != no, v != no) {
			inout[i] = yes
		} else {
			inout[i] = no
		}
	}
}

// MaxLoc is the Op that keeps the larger value with its index; of equal
// values that with the lower index. A NaN is larger than all else.
func MaxLoc[T Real](inout, in []Loc[T]) {
	for i, b := range in {
		if a := inout[i]; b.Value > a.Value || goesFirst(b, a) {
			inout[i] = b
		}
	}
}

// MinLoc is the Op that keeps the smaller value with its index; of equal
// values that with the lower index. A NaN is smaller than all else.
func MinLoc[T Real](inout, in []Loc[T]) {
	for i, b := range in {
		if a := inout[i]; b.Value < a.Value || goesFirst(b, a) {
			inout[i] = b
		}
	}
}

// goesFirst decides for a pair in which a's value does not give way to b's by
// its size alone: ties go to the lower index, NaN goes before numbers.
func goesFirst[T Real](b, a Loc[T]) bool {
	aNaN, bNaN := a.Value != a.Value, b.Value != b.Value
	if aNaN || bNaN {
		return bNaN && (!aNaN || b.Index < a.Index)
	}
	return b.Value == a.Value && b.Index < a.Index
}
