package mpi

import "reflect"

// An Op combines two vectors of equal length, element by element:
//
//	inout[i] = inout[i] op in[i]
//
// In every reduction of this package, inout holds values of lower ranks and in
// holds values of higher ranks. So an Op must be associative, but it need not
// be commutative.
//
// The order of operations depends only on the number of ranks. So a sum of
// floating-point numbers, which is only nearly associative, gives the same bits
// every time. Ranks on different kinds of processors may round x*y + z
// differently, also within a product of complex numbers. Where this matters,
// write float64(x*y) + z.
//
// The goroutine that calls the collective calls the Op, for whole vectors or
// for parts of them, which may be empty. An Op must not change in, and must not
// keep either slice.
type Op[T any] func(inout, in []T)

// Integer is the constraint of BAnd, BOr and BXor.
type Integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

// Real is the constraint of Max and Min.
type Real interface {
	Integer | ~float32 | ~float64
}

// Number is the constraint of Sum and Prod.
type Number interface {
	Real | ~complex64 | ~complex128
}

// Loc is a value and its index, for MaxLoc and MinLoc.
type Loc[T Real] struct {
	Value T
	Index int
}

// Sum is the Op that adds.
func Sum[T Number](inout, in []T) {
	inout = inout[:len(in)]
	for i, v := range in {
		inout[i] += v
	}
}

// Prod is the Op that multiplies.
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

// BAnd is the Op that combines bits with and.
func BAnd[T Integer](inout, in []T) {
	inout = inout[:len(in)]
	for i, v := range in {
		inout[i] &= v
	}
}

// BOr is the Op that combines bits with or.
func BOr[T Integer](inout, in []T) {
	inout = inout[:len(in)]
	for i, v := range in {
		inout[i] |= v
	}
}

// BXor is the Op that combines bits with exclusive or.
func BXor[T Integer](inout, in []T) {
	inout = inout[:len(in)]
	for i, v := range in {
		inout[i] ^= v
	}
}

// LAnd is the Op for the logical and. Integers other than 0 are true; the
// result is 0 or 1.
func LAnd[T ~bool | Integer](inout, in []T) {
	logical(inout, in, func(a, b bool) bool { return a && b })
}

// LOr is the Op for the logical or. Integers other than 0 are true; the result
// is 0 or 1.
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

// MaxLoc is the Op that keeps the larger value and its index. If values are
// equal, it keeps the lower index. NaN counts as larger than all numbers.
func MaxLoc[T Real](inout, in []Loc[T]) {
	for i, b := range in {
		if a := inout[i]; b.Value > a.Value || goesFirst(b, a) {
			inout[i] = b
		}
	}
}

// MinLoc is the Op that keeps the smaller value and its index. If values are
// equal, it keeps the lower index. NaN counts as smaller than all numbers.
func MinLoc[T Real](inout, in []Loc[T]) {
	for i, b := range in {
		if a := inout[i]; b.Value < a.Value || goesFirst(b, a) {
			inout[i] = b
		}
	}
}

// goesFirst reports whether b replaces a although its value is not strictly
// better: if both are equal and b has the lower index, or if b is NaN and a is
// not.
func goesFirst[T Real](b, a Loc[T]) bool {
	aNaN, bNaN := a.Value != a.Value, b.Value != b.Value
	if aNaN || bNaN {
		return bNaN && (!aNaN || b.Index < a.Index)
	}
	return b.Value == a.Value && b.Index < a.Index
}
