// Command fatal covers log.Fatal after some iterations: exit status 1.
package main

//difftest:exit 1

import (
	"fmt"
	"log"
	"os"
)

func main() {
	log.SetFlags(0)
	log.SetOutput(os.Stdout)
	limit := 40
	for x := 1; ; x += x { //difftest:loop
		s := 0
		for k := range 3000 {
			s += k % x
		}
		fmt.Println(x, s)
		if x > limit {
			log.Fatalf("%d is over %d", x, limit)
		}
	}
}
