// Command unsafeviews has slices and strings of package unsafe over memory that
// is saved under other names.
package main

import (
	"fmt"
	"unsafe"
)

type grid struct {
	first *float64
	view  []float64
	part  []float64
	text  string
	tail  string
}

func main() {
	var values [16]float64
	raw := []byte("hello, world")
	g := grid{first: &values[0]}
	g.view = unsafe.Slice(g.first, len(values))
	g.part = unsafe.Slice(&values[4], 4)
	g.text = unsafe.String(&raw[0], 5)
	g.tail = unsafe.String(unsafe.SliceData(raw[7:]), 5)
	for i := range 8 { //difftest:loop
		g.view[i] += float64(i)
		g.part[i%4] *= 2
		*g.first++
		raw[i] ^= 32
		fmt.Println(i, values, g.view[0], g.part, g.text, g.tail, cap(g.part))
	}
	fmt.Println(&g.view[4] == &g.part[0], unsafe.StringData(g.text) == &raw[0])
}
