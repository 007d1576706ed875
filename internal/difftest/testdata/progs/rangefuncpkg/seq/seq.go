// Package seq has generic functions to range over.
package seq

import "iter"

func Values[S ~[]E, E any](s S) iter.Seq[E] {
	return func(yield func(E) bool) {
		for _, v := range s {
			if !yield(v) {
				return
			}
		}
	}
}

func Filter[T any](seq iter.Seq[T], keep func(T) bool) iter.Seq[T] {
	return func(yield func(T) bool) {
		for v := range seq {
			if keep(v) && !yield(v) {
				return
			}
		}
	}
}

func Map[T, U any](seq iter.Seq[T], f func(T) U) iter.Seq[U] {
	return func(yield func(U) bool) {
		seq(func(v T) bool { return yield(f(v)) })
	}
}

// Stack is a stack of values.
type Stack[T any] struct{ list []T }

func (s *Stack[T]) Push(v T) { s.list = append(s.list, v) }

// Down gives the values from the top down, until a zero one.
func (s *Stack[T]) Down() iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		for i := len(s.list) - 1; i >= 0 && yield(i, s.list[i]); i-- {
		}
	}
}

// Squares has no type parameter.
func Squares(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i * i) {
				return
			}
		}
	}
}

// Empty captures nothing.
func Empty[T any]() iter.Seq[T] {
	return func(yield func(T) bool) {
		var zero T
		yield(zero)
	}
}
