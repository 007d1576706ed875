// Command maingoexit ends its main goroutine with runtime.Goexit. Another one
// continues, and ends the program.
package main

//difftest:exit 4

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	sum := 0
	for i := range 8 { //difftest:loop
		sum = (sum*7 + i) % 101
		fmt.Println(i, sum)
	}
	gone := make(chan int)
	go func() {
		defer os.Exit(4)
		sum := <-gone
		for i := range 8 { //difftest:loop
			sum = (sum*5 + i) % 101
			fmt.Println("alone:", i, sum)
		}
	}()
	defer func() { gone <- sum }()
	runtime.Goexit()
}
