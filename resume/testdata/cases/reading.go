package main

import (
	"fmt"
	"io"
	"os"

	cairn_ "github.com/cairnrun/cairn/resume"
)

type cairn_frame_reading struct {
	At         int
	Data, Proc *os.File
	I          int
}

// reading reads eight bytes of stdin and of a file in each iteration. It has a file
// open that is never the same twice, too.
func reading() {
	cairn_d := cairn_.Enter()
	var data, proc *os.File
	var err error
	i, again := 0, false
	if cairn_.Resuming(cairn_d) {
		cairn_s := cairn_.Frame[cairn_frame_reading](cairn_d)
		data, proc, i, again = cairn_s.Data, cairn_s.Proc, cairn_s.I, true
	} else {
		if data, err = cairn_.Open("data"); err != nil {
			cairn_.Fatal(err)
		}
		if proc, err = cairn_.Open("/proc/self/stat"); err == nil {
			proc.Read(make([]byte, 16))
		}
	}
	for b := make([]byte, 8); again || i < 6; i++ {
		if again {
			again = false
			cairn_.Resumed()
		} else if cairn_.Due() {
			cairn_.Point(cairn_d, &cairn_frame_reading{1, data, proc, i})
		}
		for _, f := range []*os.File{os.Stdin, data} {
			n, err := io.ReadFull(f, b)
			fmt.Fprintf(out, "%d %q %v\n", i, b[:n], err)
		}
		if os.Getenv("DIE") != "" && i == 3 { // it has changed what it reads
			cairn_.WriteFile("data", []byte("this is something else altogether, and as long"), 0o600)
			os.Exit(9)
		}
	}
}
