// Cases are programs as the compiler leaves them, one for each name that the
// command line may give. Each writes what it finds to the file "out".
//
//go:debug randseednop=0
package main

import (
	"fmt"
	"os"

	cairn_ "github.com/cairnrun/cairn/resume"
)

var cases = map[string]func(){
	"queens": queens, "panics": panics, "callback": callback, "process": process,
	"crowd": crowd, "closures": closures, "crash": crash, "exit": exits, "append": appending, "printing": printing, "dirs": dirs, "unsavable": unsavable, "waiting": waiting, "reading": reading,
}

var out *os.File

func init() {
	cairn_.Global("main.out", &out)
	cairn_.Global("main.cases", &cases)
	for name, f := range cases {
		cairn_.Func("main."+name, f)
	}
}

type cairn_frame_main struct {
	At  int
	Run func()
}

func main() {
	cairn_.Begin()
	defer cairn_.End()
	cairn_d := cairn_.Enter()
	if cairn_.Resuming(cairn_d) {
		switch cairn_s := cairn_.Frame[cairn_frame_main](cairn_d); cairn_s.At {
		case 1:
			run := cairn_s.Run
			run()
			fmt.Fprintln(out, "done")
			cairn_.Returning()
			return
		}
		cairn_.BadFrame(cairn_d)
	}
	run := cases[os.Args[1]]
	var err error
	if out, err = cairn_.Create("out"); err != nil {
		cairn_.Fatal(err)
	}
	if cairn_.Storing(cairn_d) {
		*cairn_.NewFrame[cairn_frame_main](cairn_d) = cairn_frame_main{1, run}
		cairn_.Own().Calling(cairn_d)
	}
	run()
	fmt.Fprintln(out, "done")
	cairn_.Returning()
}
