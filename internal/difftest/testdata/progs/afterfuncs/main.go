// Command afterfuncs has timers that call functions while it works: one that is
// not kept in a variable, one that is postponed repeatedly, and some that fire.
package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

type job struct {
	name string
	done chan string
}

func (j *job) finish() { j.done <- j.name }

var beats atomic.Int32

func main() {
	time.AfterFunc(time.Hour, func() { os.Exit(9) })
	late := 0
	put := time.AfterFunc(time.Hour, func() { late++ })
	j := &job{"job", make(chan string, 1)}
	told := make(chan int, 1)
	x := 1
	for i := range 7 { //difftest:loop
		for k := range 3000 {
			x = (x*3 + k + i) % 8009
		}
		fmt.Println(i, x, late, put.Reset(time.Hour))
		switch i {
		case 0:
			from := x
			time.AfterFunc(4*time.Millisecond, func() { told <- from })
		case 3:
			fmt.Println("told", <-told)
			time.AfterFunc(time.Millisecond, j.finish)
		case 5:
			fmt.Println(<-j.done)
		}
	}
	fmt.Println(put.Stop())
}
