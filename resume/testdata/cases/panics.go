package main

import (
	"errors"
	"fmt"

	cairn_ "github.com/cairnrun/cairn/resume"
)

// Panics that pass resumable functions, and are recovered by one.

type cairn_frame_panics struct {
	At int
	I  int
}

func panics() {
	cairn_d := cairn_.Enter()
	i := 0
	if cairn_.Resuming(cairn_d) {
		switch cairn_s := cairn_.Frame[cairn_frame_panics](cairn_d); cairn_s.At {
		case 1:
			i = cairn_s.I
			err := guard(0)
			fmt.Fprintln(out, "guard", i, err)
			i++
		default:
			cairn_.BadFrame(cairn_d)
		}
	}
	for ; i < 3; i++ {
		if cairn_.Storing(cairn_d) {
			*cairn_.NewFrame[cairn_frame_panics](cairn_d) = cairn_frame_panics{1, i}
			cairn_.Own().Calling(cairn_d)
		}
		err := guard(i)
		fmt.Fprintln(out, "guard", i, err)
	}
}

type cairn_frame_guard struct {
	At, I, K int
	Err      *error
}

// guard recovers what risky panics with, and tries again below.
func guard(i int) (err error) {
	cairn_d := cairn_.Enter()
	if cairn_.Resuming(cairn_d) {
		switch cairn_s := cairn_.Frame[cairn_frame_guard](cairn_d); cairn_s.At {
		case 1:
			i = cairn_s.I
			defer func() { // issued again
				if r := recover(); r != nil {
					err = fmt.Errorf("recovered: %w", r.(error))
				}
			}()
			risky(0, 0)
			return nil
		}
		cairn_.BadFrame(cairn_d)
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("recovered: %w", r.(error))
		}
	}()
	if cairn_.Storing(cairn_d) {
		*cairn_.NewFrame[cairn_frame_guard](cairn_d) = cairn_frame_guard{At: 1, I: i}
		cairn_.Own().Calling(cairn_d)
	}
	risky(i, 2)
	return nil
}

type cairn_frame_risky struct{ At, I, Deep, K int }

func risky(i, deep int) {
	cairn_d := cairn_.Enter()
	if cairn_.Resuming(cairn_d) {
		switch cairn_s := cairn_.Frame[cairn_frame_risky](cairn_d); cairn_s.At {
		case 1:
			i, deep = cairn_s.I, cairn_s.Deep
			for k, again := cairn_s.K, true; again || k < 3; k++ {
				if again {
					again = false
					cairn_.Resumed()
				} else if cairn_.Due() {
					cairn_.Point(cairn_d, &cairn_frame_risky{1, i, deep, k})
				}
				fmt.Fprintln(out, "risky", i, deep, k)
				if i > 0 && deep == 0 && k == i {
					panic(errors.New(fmt.Sprint("at ", k)))
				}
			}
			if deep > 0 {
				if cairn_.Storing(cairn_d) {
					*cairn_.NewFrame[cairn_frame_risky](cairn_d) = cairn_frame_risky{At: 2}
					cairn_.Own().Calling(cairn_d)
				}
				risky(i, deep-1)
			}
			return
		case 2:
			risky(0, 0)
			return
		}
		cairn_.BadFrame(cairn_d)
	}
	for k := 0; k < 3; k++ {
		if cairn_.Due() {
			cairn_.Point(cairn_d, &cairn_frame_risky{1, i, deep, k})
		}
		fmt.Fprintln(out, "risky", i, deep, k)
		if i > 0 && deep == 0 && k == i {
			panic(errors.New(fmt.Sprint("at ", k)))
		}
	}
	if deep > 0 {
		if cairn_.Storing(cairn_d) {
			*cairn_.NewFrame[cairn_frame_risky](cairn_d) = cairn_frame_risky{At: 2}
			cairn_.Own().Calling(cairn_d)
		}
		risky(i, deep-1)
	}
}

type cairn_frame_crash struct{ At, I int }

// crash ends with a panic that is not recovered.
func crash() {
	cairn_d := cairn_.Enter()
	i, again := 0, false
	if cairn_.Resuming(cairn_d) {
		cairn_s := cairn_.Frame[cairn_frame_crash](cairn_d)
		i, again = cairn_s.I, true
	}
	for ; again || i < 3; i++ {
		if again {
			again = false
			cairn_.Resumed()
		} else if cairn_.Due() {
			cairn_.Point(cairn_d, &cairn_frame_crash{1, i})
		}
		fmt.Fprintln(out, "crash", i)
	}
	panic("the end")
}

// exits ends by Exit.
func exits() {
	cairn_d := cairn_.Enter()
	i, again := 0, false
	if cairn_.Resuming(cairn_d) {
		cairn_s := cairn_.Frame[cairn_frame_crash](cairn_d)
		i, again = cairn_s.I, true
	}
	for ; again || i < 3; i++ {
		if again {
			again = false
			cairn_.Resumed()
		} else if cairn_.Due() {
			cairn_.Point(cairn_d, &cairn_frame_crash{1, i})
		}
		fmt.Fprintln(out, "exits", i)
	}
	cairn_.Exit(7)
}
