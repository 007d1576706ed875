package main

import (
	"math"
	"slices"
)

const (
	rcond    = 0.1 // reciprocal of the matrix's condition number
	diagonal = 0.5 // element i of vector i
)

// matrix is a block of CG's matrix, row by row. Columns are counted from the
// first column of the block.
type matrix struct {
	begin  []int // row i is at begin[i] to begin[i+1]
	column []int32
	value  []float64
}

func (a *matrix) multiply(y, x []float64) {
	for i := range y {
		sum := 0.0
		for k := a.begin[i]; k < a.begin[i+1]; k++ {
			sum += float64(a.value[k] * x[a.column[k]])
		}
		y[i] = sum
	}
}

// element is an element of a sparse vector.
type element struct {
	index int
	value float64
}

// makeMatrix returns a block of the matrix of order n. The matrix is the sum
// over i of w_i·v_i·v_iᵀ, plus rcond − shift on the diagonal. The v_i are
// sparse random vectors with nonzer elements and 0.5 at i; the weights w_i fall
// geometrically from 1 to rcond.
func makeMatrix(n, nonzer int, shift float64, rowBegin, rowEnd, colBegin, colEnd int) *matrix {
	random := newRandom(seed, 1) // the first number is not used
	vectors := make([][]element, n)
	for i := range vectors {
		vectors[i] = sparseVector(random, n, nonzer, i)
	}

	// Sort the products of elements into the block's rows.
	rows := make([][]element, rowEnd-rowBegin)
	ratio := math.Pow(rcond, 1/float64(n))
	weight := 1.0
	for i, v := range vectors {
		for _, r := range v {
			if r.index < rowBegin || r.index >= rowEnd {
				continue
			}
			row := &rows[r.index-rowBegin]
			for _, c := range v {
				if c.index < colBegin || c.index >= colEnd {
					continue
				}
				product := float64(weight * r.value * c.value)
				if r.index == i && c.index == i {
					product += rcond - shift
				}
				*row = append(*row, element{c.index - colBegin, product})
			}
		}
		weight *= ratio
	}

	// Add up products that belong to the same element.
	a := &matrix{begin: make([]int, 1, len(rows)+1)}
	for _, row := range rows {
		slices.SortStableFunc(row, func(a, b element) int { return a.index - b.index })
		for k, e := range row {
			if k > 0 && row[k-1].index == e.index {
				a.value[len(a.value)-1] += e.value
				continue
			}
			a.column = append(a.column, int32(e.index))
			a.value = append(a.value, e.value)
		}
		a.begin = append(a.begin, len(a.value))
	}
	return a
}

// sparseVector returns a vector of length n with nonzer random elements, and
// the element at i set.
func sparseVector(random *random, n, nonzer, i int) []element {
	bound := 1
	for bound < n {
		bound *= 2
	}
	at := func(v []element, index int) int {
		return slices.IndexFunc(v, func(e element) bool { return e.index == index })
	}
	v := make([]element, 0, nonzer+1)
	for len(v) < nonzer {
		value := random.next()
		index := int(float64(bound) * random.next())
		if index < n && at(v, index) < 0 {
			v = append(v, element{index, value})
		}
	}
	if k := at(v, i); k >= 0 {
		v[k].value = diagonal
	} else {
		v = append(v, element{i, diagonal})
	}
	return v
}
