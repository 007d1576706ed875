// Command afterfunc has a timer in its state that calls a function, and that is
// stopped: only package time knows what it would call.
package main

//difftest:refuse (?i)timer

import (
	"fmt"
	"time"
)

func main() {
	limit := time.AfterFunc(time.Hour, func() { panic("it takes too long") })
	limit.Stop()
	n := 0
	for i := range 6 { //difftest:loop
		for k := range 3000 {
			n = (n*3 + k + i) % 8009
		}
		fmt.Println(i, n)
	}
	limit.Reset(time.Hour)
	fmt.Println(limit.Stop())
}
