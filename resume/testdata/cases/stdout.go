package main

import (
	"crypto/rand"
	"fmt"
	"os"
	"syscall"
	"time"

	cairn_ "github.com/cairnrun/cairn/resume"
)

func init() {
	fmt.Println("init")
	fmt.Fprintln(os.Stderr, "init to stderr")
}

type cairn_frame_printing struct{ At, I int }

// printing writes to standard output.
func printing() {
	cairn_d := cairn_.Enter()
	i, again := 0, false
	if cairn_.Resuming(cairn_d) {
		cairn_s := cairn_.Frame[cairn_frame_printing](cairn_d)
		i, again = cairn_s.I, true
	}
	for ; again || i < 6; i++ {
		if again {
			again = false
			cairn_.Resumed()
		} else if cairn_.Due() {
			cairn_.Point(cairn_d, &cairn_frame_printing{1, i})
		}
		fmt.Println("line", i)
	}
}

type cairn_frame_waiting struct {
	At, I int
	State []byte
}

// waiting continues until a file is there. Its state needs a good part of a
// small disk.
func waiting() {
	cairn_d := cairn_.Enter()
	i, again := 0, false
	state := make([]byte, 400<<10)
	if cairn_.Resuming(cairn_d) {
		cairn_s := cairn_.Frame[cairn_frame_waiting](cairn_d)
		i, state, again = cairn_s.I, cairn_s.State, true
		fmt.Println("resumed")
	} else {
		rand.Read(state)
		fmt.Println("waiting")
		if os.Getenv("TERM_TWICE") != "" {
			terminate()
		}
	}
	for {
		if again {
			again = false
			cairn_.Resumed()
		} else if cairn_.Due() {
			cairn_.Point(cairn_d, &cairn_frame_waiting{1, i, state})
		}
		if _, err := os.Stat("go"); err == nil {
			return
		}
		i++
	}
}

// terminate sends SIGTERM again and again, as a scheduler may. The program
// listens for it, too, and would end with status 7.
func terminate() {
	c := make(chan os.Signal, 1)
	cairn_.Notify(c, syscall.SIGTERM)
	for range 200 {
		syscall.Kill(os.Getpid(), syscall.SIGTERM)
		select {
		case <-c:
			os.Exit(7)
		case <-time.After(time.Millisecond):
		}
	}
	cairn_.StopNotify(c)
}
