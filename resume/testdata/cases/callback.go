package main

import (
	"fmt"
	"sort"
	"sync"

	cairn_ "github.com/cairnrun/cairn/resume"
)

// A resumable function that is also called by a library, and by other goroutines.

type cairn_frame_callback struct {
	At int
	S  []int
	I  int
}

func callback() {
	cairn_d := cairn_.Enter()
	s, i, cairn_at := []int{5, 2, 9, 1}, 0, 0
	if cairn_.Resuming(cairn_d) {
		cairn_s := cairn_.Frame[cairn_frame_callback](cairn_d)
		s, i, cairn_at = cairn_s.S, cairn_s.I, cairn_s.At
	}
	for ; cairn_at != 0 || i < 3; i++ {
		if cairn_at == 0 {
			// Here the call is made by sort.Slice: nothing is saved inside.
			sort.Slice(s, func(a, b int) bool { return weigh(s[a]) < weigh(s[b]) })
			var wg sync.WaitGroup
			for k := range 3 {
				wg.Go(func() { weigh(k) })
			}
			weigh(4) // without a frame: it is not a resumable call
			wg.Wait()
			if cairn_.Storing(cairn_d) {
				*cairn_.NewFrame[cairn_frame_callback](cairn_d) = cairn_frame_callback{1, s, i}
				cairn_.Own().Calling(cairn_d)
			}
		}
		cairn_at = 0
		w := weigh(s[0])
		fmt.Fprintln(out, i, s, w)
		s[i] += 10
	}
}

type cairn_frame_weigh struct{ At, X, W, K int }

func weigh(x int) (w int) {
	cairn_d := cairn_.Enter()
	k, again := 0, false
	if cairn_.Resuming(cairn_d) {
		cairn_s := cairn_.Frame[cairn_frame_weigh](cairn_d)
		x, w, k, again = cairn_s.X, cairn_s.W, cairn_s.K, true
	}
	for ; again || k < 4; k++ {
		if again {
			again = false
			cairn_.Resumed()
		} else if cairn_.Due() {
			cairn_.Point(cairn_d, &cairn_frame_weigh{1, x, w, k})
		}
		w = w*3 + x%7
	}
	return w
}

type cairn_frame_crowd struct{ At, I int }

// crowd has other goroutines at its first points.
func crowd() {
	cairn_d := cairn_.Enter()
	i, again := 0, false
	if cairn_.Resuming(cairn_d) {
		cairn_s := cairn_.Frame[cairn_frame_crowd](cairn_d)
		i, again = cairn_s.I, true
	}
	stop, done := make(chan int), make(chan int)
	if !again {
		go func() { <-stop; close(done) }()
	}
	for ; again || i < 8; i++ {
		if again {
			again = false
			cairn_.Resumed()
		} else if cairn_.Due() {
			cairn_.Point(cairn_d, &cairn_frame_crowd{1, i})
		}
		fmt.Fprintln(out, "crowd", i)
		if i == 4 {
			close(stop)
			<-done
		}
	}
}
