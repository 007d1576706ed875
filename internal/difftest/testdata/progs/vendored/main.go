// Command vendored covers a vendored dependency with a point in it.
package main

import (
	"fmt"

	"example.org/shape"
)

func main() {
	var all []*shape.Shape
	for i := range 3 { //difftest:loop
		s := shape.New(4 + i)
		s.Corners[1][0] = 10
		all = append(all, s)
		for _, o := range all {
			fmt.Printf("%d %.9f %.9f\n", i, o.Relax(2), o.Corners[0])
		}
	}
	fmt.Println(shape.Made(), len(all))
}
