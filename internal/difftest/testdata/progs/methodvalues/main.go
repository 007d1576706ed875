// Command methodvalues covers method values and method expressions kept in
// variables and fields, with value and pointer receivers.
package main

import "fmt"

type vec struct{ x, y float64 }

func (v vec) dot(w vec) float64    { return v.x*w.x + v.y*w.y }
func (v *vec) turn(c, s float64)   { v.x, v.y = c*v.x-s*v.y, s*v.x+c*v.y }
func (v vec) String() string       { return fmt.Sprintf("(%.6f %.6f)", v.x, v.y) }
func (v *vec) apply(f func(*vec))  { f(v) }
func (v vec) scaled(k float64) vec { return vec{v.x * k, v.y * k} }
func (v *vec) add(ws ...vec) *vec {
	for _, w := range ws {
		v.x += w.x
		v.y += w.y
	}
	return v
}

type hooks struct {
	turn func(c, s float64)
	show func() string
}

func main() {
	v := vec{1, 2}
	w := vec{3, -1}
	h := hooks{turn: v.turn, show: w.String} // turn holds &v, show a copy of w
	dot := vec.dot
	grow := (*vec).add
	for i := range 8 { //difftest:loop
		for range 1000 {
			h.turn(0.8, 0.6)
		}
		w = w.scaled(1.25)
		grow(&w, v, vec{0.5, float64(i)}).apply(func(p *vec) { p.y -= 1 })
		fmt.Println(i, v, w, h.show(), fmt.Sprintf("%.6f", dot(v, w)))
	}
	f := fmt.Stringer.String
	fmt.Println(f(v), h.show())
}
