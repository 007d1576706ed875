// Command logs covers package log: flags, prefix, output and line numbers,
// which must be those of the original file, and a logger of its own.
package main

import (
	"fmt"
	"log"
	"os"
)

func fib(n int) int {
	if n < 2 {
		return n
	}
	return fib(n-1) + fib(n-2)
}

func main() {
	log.SetFlags(log.Lshortfile | log.Lmsgprefix)
	log.SetOutput(os.Stdout)
	own := log.New(os.Stdout, "own: ", log.Lshortfile)
	for i := 1; i < 8; i++ { //difftest:loop
		log.SetPrefix(fmt.Sprintf("[%d] ", i))
		log.Println("begin", fib(i*2))
		if i == 4 {
			own.SetPrefix("late: ")
			log.SetFlags(log.Lmsgprefix)
		}
		own.Printf("fib %d", fib(i+10))
	}
	log.Print("end ", log.Prefix(), log.Flags(), own.Prefix())
}
