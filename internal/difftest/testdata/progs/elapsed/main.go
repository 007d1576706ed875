// Command elapsed covers clock readings that are kept across points without
// being printed: the program only says that time goes forward.
package main

import (
	"fmt"
	"time"
)

func main() {
	start := time.Now()
	last := start
	var slow time.Duration
	for i := range 6 { //difftest:loop
		s := 0
		for k := range 20000 {
			s = (s + k*k) % 977
		}
		now := time.Now()
		ok := !now.Before(last) && now.Sub(start) >= 0
		slow = max(slow, now.Sub(last))
		last = now
		fmt.Println(i, s, ok)
	}
	fmt.Println(time.Since(start) >= slow, start.Location())
}
