// Command typeswitch covers type switches with a bound variable, over basic
// types, pointers, funcs, maps and nil, with points in the cases.
package main

import "fmt"

type shape interface{ area() float64 }
type square float64
type circle struct{ r float64 }

func (s square) area() float64  { return float64(s * s) }
func (c *circle) area() float64 { return c.r * c.r * 3 }

func work(n int) (s int) {
	for i := range n { //difftest:loop
		for k := range 1500 {
			s = (s + i*k) % 3571
		}
	}
	return s
}

func show(v any, depth int) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case int, int64:
		return fmt.Sprintf("%T %v %d", v, v, work(2))
	case string:
		return v + fmt.Sprint(work(len(v)))
	case []any:
		s := ""
		for i, e := range v {
			s += fmt.Sprint(i, ":", show(e, depth+1), " ")
		}
		return "[" + s + "]"
	case map[string]any:
		return fmt.Sprint(len(v), show(v["x"], depth+1))
	case func() int:
		return fmt.Sprint("func ", v()+work(1))
	case *circle:
		v.r++
		return fmt.Sprint("circle ", v.area(), work(1))
	case shape:
		return fmt.Sprint("shape ", v.area())
	case error:
		return "error " + v.Error()
	default:
		return fmt.Sprintf("%T", v)
	}
}

func main() {
	c := &circle{2}
	n := 0
	inc := func() int { n++; return n }
	values := []any{1, int64(2), "abc", nil, c, square(3), []any{c, "zz", []any{inc}},
		map[string]any{"x": c}, inc, fmt.Errorf("e%d", 1), 2.5}
	for i, v := range values { //difftest:loop
		fmt.Println(i, show(v, 0))
	}
	fmt.Println(c.r, n)
}
