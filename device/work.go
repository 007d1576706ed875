package device

import (
	"iter"

	"github.com/cairnrun/cairn/internal/driver"
)

// Work is a part of a launch, as a kernel in Go gets it: the range of work
// items to compute, and the arguments. The function is called once for each
// part, by several goroutines at the same time. It loops over the items of its
// part:
//
//	func add(w *device.Work) {
//		a, b := device.Slice[float32](w, 0), device.Slice[float32](w, 1)
//		m := int(device.Value[int32](w, 2))
//		xlo, xhi := w.Range(0)
//		ylo, yhi := w.Range(1)
//		for y := ylo; y < yhi; y++ {
//			for x := xlo; x < xhi; x++ {
//				a[y*m+x] += b[y*m+x]
//			}
//		}
//	}
//
// A part consists of whole groups. It is complete in all dimensions but the
// last one that has more than one item.
type Work struct {
	Global, Local [3]int   // work items of the launch, and of a group (1 if Launch was given none)
	Lo, Hi        [3]int   // the part: see Range
	Args          [][]byte // the arguments: see Slice and Value
}

// Range returns the part's work items in dimension d: lo ≤ i < hi. The compiler
// sees that lo is not negative, so it checks no index of s[:hi].
func (w *Work) Range(d int) (lo, hi int) { return max(w.Lo[d], 0), w.Hi[d] }

// Items returns the number of the part's work items in dimension d, hi − lo. A
// loop over items that begins at 0 ends there:
//
//	n := g.Items(0)
//	for i := range n { // item lo+i
func (w *Work) Items(d int) int { return w.Hi[d] - w.Lo[d] }

// Groups returns the groups of the part, one after the other. A kernel whose
// items use local memory together loops over them, and then over the items of
// each: the *Work of a group has the group's range.
func (w *Work) Groups() iter.Seq[*Work] {
	return func(yield func(*Work) bool) {
		g := *w
		for z := w.Lo[2]; z < w.Hi[2]; z += w.Local[2] {
			g.Lo[2], g.Hi[2] = z, min(z+w.Local[2], w.Hi[2])
			for y := w.Lo[1]; y < w.Hi[1]; y += w.Local[1] {
				g.Lo[1], g.Hi[1] = y, min(y+w.Local[1], w.Hi[1])
				for x := w.Lo[0]; x < w.Hi[0]; x += w.Local[0] {
					g.Lo[0], g.Hi[0] = x, min(x+w.Local[0], w.Hi[0])
					if !yield(&g) {
						return
					}
				}
			}
		}
	}
}

// LocalSlice returns argument i of a kernel in Go, which Local passes: memory
// that the items of a group share. It is undefined at the start of a group.
func LocalSlice[T any](w *Work, i int) []T { return Slice[T](w, i) }

// Slice returns argument i of a kernel in Go: the elements of an array, or
// local memory. Local memory belongs to the part and is undefined at its start.
func Slice[T any](w *Work, i int) []T { return driver.Slice[T]((*driver.Work)(w), i) }

// Value returns argument i of a kernel in Go, a scalar.
func Value[T any](w *Work, i int) T { return driver.Value[T]((*driver.Work)(w), i) }
