package main

import "github.com/cairnrun/cairn/device"

// summaTile is the number of columns of a, and rows of b, that the items of a
// group have in local memory at a time.
const summaTile = 16

// summaPanel adds a·b to c, where a is a panel of columns, rows × depth, and b
// a panel of rows, depth × columns. Items are (column, row). The panels' sizes
// are multiples of summaTile, and groups have as many rows and at least as many
// columns. Every element of c gets its products one after the other.
func summaPanel(w *device.Work) {
	c, a, b := device.Slice[float64](w, 0), device.Slice[float64](w, 1), device.Slice[float64](w, 2)
	columns, depth := int(device.Value[int32](w, 3)), int(device.Value[int32](w, 4))
	left, right, sums := device.LocalSlice[float64](w, 5), device.LocalSlice[float64](w, 6), device.LocalSlice[float64](w, 7)
	for g := range w.Groups() {
		x0, _ := g.Range(0)
		y0, _ := g.Range(1)
		wide, high := g.Items(0), g.Items(1)
		for y := range high {
			sum, from := sums[y*wide:][:wide], c[(y0+y)*columns+x0:][:wide]
			for x := range wide {
				sum[x] = from[x]
			}
		}
		for t := 0; t < depth; t += summaTile {
			for y := range high {
				to, from := left[y*summaTile:][:summaTile], a[(y0+y)*depth+t:][:summaTile]
				for x := range min(wide, summaTile) {
					to[x] = from[x]
				}
			}
			for y := range min(high, summaTile) {
				to, from := right[y*wide:][:wide], b[(t+y)*columns+x0:][:wide]
				for x := range wide {
					to[x] = from[x]
				}
			}
			for y := range high {
				sum, f := sums[y*wide:][:wide], left[y*summaTile:][:summaTile]
				for k := 0; k < summaTile; k += 4 {
					f0, f1, f2, f3 := f[k], f[k+1], f[k+2], f[k+3]
					r0, r1 := right[k*wide:][:wide], right[(k+1)*wide:][:wide]
					r2, r3 := right[(k+2)*wide:][:wide], right[(k+3)*wide:][:wide]
					for x := range wide {
						sum[x] = sum[x] + float64(f0*r0[x]) + float64(f1*r1[x]) + float64(f2*r2[x]) + float64(f3*r3[x])
					}
				}
			}
		}
		for y := range high {
			sum, to := sums[y*wide:][:wide], c[(y0+y)*columns+x0:][:wide]
			for x := range wide {
				to[x] = sum[x]
			}
		}
	}
}
