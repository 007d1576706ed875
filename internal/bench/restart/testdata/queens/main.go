// Queens counts the ways to put n queens on a board, by recursion.
package main

import (
	"flag"
	"fmt"
)

type board struct {
	n                  int
	cols, diags, antis []bool
	count              int
}

func (b *board) place(row int) {
	if row == b.n {
		b.count++
		return
	}
	for c := 0; c < b.n; c++ {
		if b.cols[c] || b.diags[row+c] || b.antis[row-c+b.n] {
			continue
		}
		b.cols[c], b.diags[row+c], b.antis[row-c+b.n] = true, true, true
		b.place(row + 1)
		b.cols[c], b.diags[row+c], b.antis[row-c+b.n] = false, false, false
	}
}

func main() {
	n := flag.Int("rounds", 13, "size of the board")
	flag.Parse()
	b := &board{n: *n, cols: make([]bool, *n), diags: make([]bool, 2*(*n)), antis: make([]bool, 2*(*n)+1)}
	b.place(0)
	fmt.Println(b.count)
}
