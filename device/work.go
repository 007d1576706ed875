package device

import "github.com/cairnrun/cairn/internal/driver"

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

// Range returns the part's work items in dimension d: lo ≤ i < hi.
func (w *Work) Range(d int) (lo, hi int) { return w.Lo[d], w.Hi[d] }

// Slice returns argument i of a kernel in Go: the elements of an array, or
// local memory. Local memory belongs to the part and is undefined at its start.
func Slice[T any](w *Work, i int) []T { return driver.Slice[T]((*driver.Work)(w), i) }

// Value returns argument i of a kernel in Go, a scalar.
func Value[T any](w *Work, i int) T { return driver.Value[T]((*driver.Work)(w), i) }
