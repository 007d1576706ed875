// Command localtypes covers types that are declared in functions, in frames, in
// closures and in interfaces.
package main

import "fmt"

func work(seed int) (h uint32) {
	h = 2166136261
	for k := range 2000 {
		h = h*16777619 ^ uint32(k+seed)
	}
	return h
}

func run(n int) (sum uint32) {
	const width = 3
	type row [width + 1]uint32
	type cell struct {
		r    row
		next *cell
	}
	type visit func(*cell) uint32
	var first *cell
	var seen []any
	total := uint32(0)
	visits := map[string]visit{
		"first": func(c *cell) uint32 { total += c.r[0]; return total },
		"last":  func(c *cell) uint32 { return c.r[width] },
	}
	for i := range n { //difftest:loop
		c := &cell{next: first}
		for k := range c.r {
			c.r[k] = work(i * k)
		}
		first = c
		seen = append(seen, c.r, i)
		for _, name := range []string{"first", "last"} {
			sum ^= visits[name](c)
		}
		fmt.Printf("%d %08x %T\n", i, sum, seen[len(seen)-2])
	}
	length := 0
	for c := first; c != nil; c = c.next {
		length++
	}
	fmt.Printf("%d %d %08x %T\n", length, len(seen), total, *first)
	return sum
}

func other(n int) {
	type cell struct{ a, b string } // as in run; nothing shows this one's name
	cells := []cell{{"x", "y"}}
	for i := range n { //difftest:loop
		cells = append(cells, cell{fmt.Sprint(i), fmt.Sprint(work(i))})
		fmt.Println(cells[len(cells)-1])
	}
}

func main() {
	fmt.Printf("%08x\n", run(5))
	other(3)
}
