// Lost fails in its first start, as a program does whose device is gone, or
// loses a device on the way.
package main

import (
	"fmt"
	"os"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/resume"
)

// part stands for the devices of a program.
type part struct{ _ byte }

func (*part) CairnState(c *graph.Coder) error { return nil }

func (*part) CairnLost() error {
	if os.Getenv("LOST") != "" {
		return fmt.Errorf("the device is gone")
	}
	return nil
}

var lose func(id string)

func (*part) CairnOnLoss(f func(id string)) { lose = f }

func (*part) CairnDevices() int { return 2 }

func (*part) CairnExclude(ids []string, of int) {
	fmt.Fprintln(os.Stderr, "excluded", ids, "of", of)
	excluded = true
}

var excluded bool

func init() {
	graph.Part(new(part))
	if os.Getenv("READS") != "" {
		resume.ReadsInput()
	}
}

type frame struct {
	At int
	I  int
}

func main() {
	resume.Begin()
	defer resume.End()
	d := resume.Enter()
	i := 0
	if resume.Resuming(d) {
		i = resume.Frame[frame](d).I
		resume.Resumed()
		fmt.Fprintln(os.Stderr, "resumed at", i)
	}
	for ; i < 10; i++ {
		if resume.Due() {
			resume.Point(d, &frame{1, i})
		}
		if at := os.Getenv("LOSE_AT"); at == fmt.Sprint(i) && (!excluded || os.Getenv("AGAIN") != "") {
			lose("dev:1")
			fmt.Fprintln(os.Stderr, "the device is lost")
		}
		if i == 7 && os.Getenv("FAIL") != "" {
			resume.Exit(3)
		}
	}
	resume.Returning()
}
