// Command aliases covers slices that share an array, with capacity beyond
// length, pointers into slice elements, arrays and struct fields.
package main

import "fmt"

type cell struct {
	n    int
	tags [2]string
}

func main() {
	base := make([]int, 4, 12)
	head, tail := base[:2], base[2:6]
	mid := &base[1]
	cells := []cell{{n: 1}, {n: 2}, {n: 3}}
	third := &cells[2]
	tag := &third.tags[1]
	arr := [4]int{1, 2, 3, 4}
	view := arr[1:3]
	window := view[:3:3]
	for i := range 7 { //difftest:loop
		for k := range 1000 {
			tail[k%4] += k
			*mid += k % 3
		}
		head = append(head, i) // writes into tail
		if len(head) > 5 {
			head = head[:1]
		}
		third.n += *mid
		*tag = fmt.Sprint("t", i)
		view[0]++
		window[2] -= i
		if i == 4 {
			cells = append(cells, cell{n: 4}) // third stays behind
			cells[2].n = -1
		}
		fmt.Println(i, base, head, tail, arr, cells, third.n)
	}
	full := base[:cap(base)]
	fmt.Println(full, *tag, cells[2].tags[1] == *tag, &view[0] == &arr[1], cap(head))
}
