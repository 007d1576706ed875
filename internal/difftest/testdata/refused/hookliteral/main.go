// Command hookliteral changes a variable by a literal of which a part cannot be
// saved: no checkpoint can be taken, and the variable stays the one that the
// literal has.
//
//difftest:refuse cannot be named outside of its package
package main

import (
	"encoding/binary"
	"fmt"
)

var hook func(k int)

// hooks changes a variable by a literal of which a part cannot be saved.
func hooks(n int) int {
	x := 1
	le := binary.LittleEndian
	buf := []byte{1, 2}
	hook = func(k int) { x += k + int(le.Uint16(buf)) }
	for i := 0; i < n; i++ { //difftest:loop
		x++
		hook(i)
	}
	hook = nil
	return x
}

func main() {
	fmt.Println(hooks(60))
}
