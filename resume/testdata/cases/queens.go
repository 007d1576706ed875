package main

import (
	"fmt"

	cairn_ "github.com/cairnrun/cairn/resume"
)

// A point in a loop of a function that calls itself.

type board struct {
	cols  []int
	found int
	best  *[]int // of cols, once something was found
}

type cairn_frame_queens struct {
	At int
	B  *board
}

func queens() {
	cairn_d := cairn_.Enter()
	if cairn_.Resuming(cairn_d) {
		switch cairn_s := cairn_.Frame[cairn_frame_queens](cairn_d); cairn_s.At {
		case 1:
			b := cairn_s.B
			n := place(nil, 0)
			fmt.Fprintln(out, n, b.found, *b.best)
			return
		}
		cairn_.BadFrame(cairn_d)
	}
	b := &board{cols: make([]int, 4)}
	if cairn_.Storing(cairn_d) {
		*cairn_.NewFrame[cairn_frame_queens](cairn_d) = cairn_frame_queens{1, b}
		cairn_.Own().Calling(cairn_d)
	}
	n := place(b, 0)
	fmt.Fprintln(out, n, b.found, *b.best)
}

type cairn_frame_place struct {
	At       int
	B        *board
	Row, C   int
	Reached  int
	Attempts *int
}

// place(b, row): for c := 0; c < len(b.cols); c++ { POINT; … reached += place(b, row+1) }
func place(b *board, row int) (reached int) {
	cairn_d := cairn_.Enter()
	if cairn_.Resuming(cairn_d) {
		cairn_s := cairn_.Frame[cairn_frame_place](cairn_d)
		switch cairn_s.At {
		case 1, 2:
			b, row, reached = cairn_s.B, cairn_s.Row, cairn_s.Reached
			attempts := cairn_s.Attempts
			cairn_at := cairn_s.At
			for c := cairn_s.C; cairn_at != 0 || c < len(b.cols); c++ {
				if cairn_at == 2 {
					cairn_at = 0
					cairn_r := place(nil, 0)
					reached += cairn_r
					continue
				}
				if cairn_at == 1 {
					cairn_at = 0
					cairn_.Resumed()
				} else if cairn_.Due() {
					cairn_.Point(cairn_d, &cairn_frame_place{1, b, row, c, reached, attempts})
				}
				*attempts++
				if !b.free(row, c) {
					continue
				}
				b.cols[row] = c
				if cairn_.Storing(cairn_d) {
					*cairn_.NewFrame[cairn_frame_place](cairn_d) = cairn_frame_place{2, b, row, c, reached, attempts}
					cairn_.Own().Calling(cairn_d)
				}
				cairn_r := place(b, row+1)
				reached += cairn_r
			}
			fmt.Fprintln(out, "row", row, *attempts, reached)
			return reached
		}
		cairn_.BadFrame(cairn_d)
	}
	if row == len(b.cols) {
		b.found++
		b.best = &b.cols
		return 1
	}
	attempts := new(int)
	for c := 0; c < len(b.cols); c++ {
		if cairn_.Due() {
			cairn_.Point(cairn_d, &cairn_frame_place{1, b, row, c, reached, attempts})
		}
		*attempts++
		if !b.free(row, c) {
			continue
		}
		b.cols[row] = c
		if cairn_.Storing(cairn_d) {
			*cairn_.NewFrame[cairn_frame_place](cairn_d) = cairn_frame_place{2, b, row, c, reached, attempts}
			cairn_.Own().Calling(cairn_d)
		}
		cairn_r := place(b, row+1)
		reached += cairn_r
	}
	fmt.Fprintln(out, "row", row, *attempts, reached)
	return reached
}

func (b *board) free(row, c int) bool {
	for r, o := range b.cols[:row] {
		if o == c || o-c == row-r || c-o == row-r {
			return false
		}
	}
	return true
}
