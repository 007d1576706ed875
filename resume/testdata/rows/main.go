// Rows is a program as the compiler leaves it: a loop that calls a function
// with a point in its loop. What it was before stands in comments.
package main

import (
	"fmt"
	"os"

	cairn_ "github.com/cairnrun/cairn/resume"
)

var total float64

func init() {
	cairn_.Global("main.total", &total)
}

type cairn_frame_main struct {
	At   int
	Out  *os.File
	Rows [][]float64
	Pick *float64
	E    int
}

func main() {
	cairn_.Begin()
	defer cairn_.End()
	cairn_d := cairn_.Enter()
	if cairn_.Resuming(cairn_d) {
		switch cairn_s := cairn_.Frame[cairn_frame_main](cairn_d); cairn_s.At {
		case 1:
			out, rows, pick, e := cairn_s.Out, cairn_s.Rows, cairn_s.Pick, cairn_s.E
			for cairn_again := true; cairn_again || e < 5; e++ {
				if cairn_again {
					cairn_again = false
				} else {
					if cairn_.Storing(cairn_d) {
						*cairn_.NewFrame[cairn_frame_main](cairn_d) = cairn_frame_main{At: 1, Out: out, Rows: rows, Pick: pick, E: e}
						cairn_.Own().Calling(cairn_d)
					}
				}
				s := sweep(rows, e)
				total += s
				fmt.Fprintln(out, e, s, *pick)
			}
			fmt.Fprintln(out, "total", total)
			cairn_.Returning()
			return
		}
		cairn_.BadFrame(cairn_d)
	}
	// out, err := os.Create("out")
	out, err := cairn_.Create("out")
	if err != nil {
		cairn_.Fatal(err)
	}
	rows := make([][]float64, 6)
	for i := range rows {
		rows[i] = []float64{float64(i), 1, 2}
	}
	pick := &rows[2][1]
	for e := 0; e < 5; e++ {
		if cairn_.Storing(cairn_d) {
			*cairn_.NewFrame[cairn_frame_main](cairn_d) = cairn_frame_main{At: 1, Out: out, Rows: rows, Pick: pick, E: e}
			cairn_.Own().Calling(cairn_d)
		}
		s := sweep(rows, e)
		total += s
		fmt.Fprintln(out, e, s, *pick)
	}
	fmt.Fprintln(out, "total", total)
	cairn_.Returning()
}

type cairn_frame_sweep struct {
	At    int
	Rows  [][]float64
	Epoch int
	Sum   float64
	I     int
}

func sweep(rows [][]float64, epoch int) (sum float64) {
	cairn_d := cairn_.Enter()
	if cairn_.Resuming(cairn_d) {
		switch cairn_s := cairn_.Frame[cairn_frame_sweep](cairn_d); cairn_s.At {
		case 1:
			rows, epoch, sum = cairn_s.Rows, cairn_s.Epoch, cairn_s.Sum
			for i, cairn_again := cairn_s.I, true; cairn_again || i < len(rows)-1; i++ {
				if cairn_again {
					cairn_again = false
					cairn_.Resumed()
					sum += kick(rows[i], epoch)
				} else {
					if cairn_.Due() {
						cairn_.Point(cairn_d, &cairn_frame_sweep{At: 1, Rows: rows, Epoch: epoch, Sum: sum, I: i})
					}
					sum += kick(rows[i], epoch)
				}
			}
			return sum
		}
		cairn_.BadFrame(cairn_d)
	}
	for i := 1; i < len(rows)-1; i++ {
		if cairn_.Due() {
			cairn_.Point(cairn_d, &cairn_frame_sweep{At: 1, Rows: rows, Epoch: epoch, Sum: sum, I: i})
		}
		sum += kick(rows[i], epoch)
	}
	return
}

func kick(row []float64, epoch int) (s float64) {
	for i := range row {
		row[i] = row[i]*1.5 + float64(epoch)
		s += row[i]
	}
	return s
}
