package ckpttest

import "github.com/cairnrun/cairn/internal/graph"

// Values is a small state with values that are stored in different ways.
type Values struct {
	Step  int
	Name  string
	Grid  []float64
	Table map[string]int
	Next  *Values
}

// Roots returns the variables of the state.
func (v *Values) Roots() []graph.Root {
	return []graph.Root{{Name: "step", Ptr: &v.Step}, {Name: "name", Ptr: &v.Name}, {Name: "grid", Ptr: &v.Grid}, {Name: "table", Ptr: &v.Table}, {Name: "next", Ptr: &v.Next}}
}

// Sample returns Values with a grid of this size, half of it zero.
func Sample(grid int) *Values {
	v := &Values{Step: 7, Name: "sample", Grid: make([]float64, grid), Table: map[string]int{"a": 1, "b": 2}}
	for i := range v.Grid {
		if i < grid/2 {
			v.Grid[i] = 1 / float64(i+1)
		}
	}
	v.Next = &Values{Name: "inner", Next: v.Next}
	v.Next.Next = v.Next
	return v
}
