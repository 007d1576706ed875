// Command callback does its work in a function that a library calls which
// cannot be copied.
package main

//difftest:daily
//difftest:refuse (?i)callback|called from|outside|foreign|does not call

import (
	"fmt"
	"sync"
)

func main() {
	h := 0
	var m sync.Map
	for i := range 3 {
		m.Store(i, i)
	}
	m.Range(func(key, value any) bool {
		for i := range 4 { //difftest:loop
			for k := range 1000 {
				h = (h + k + key.(int)*i) % 9001
			}
		}
		return true
	})
	fmt.Println(h)
}
