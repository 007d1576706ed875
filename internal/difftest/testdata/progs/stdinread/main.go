// Command stdinread covers standard input that is read line by line across
// points, and environment variables that the program sets.
package main

//difftest:stdin lines.txt

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

func main() {
	in := bufio.NewScanner(os.Stdin)
	n := 0
	for in.Scan() { //difftest:loop
		words := strings.Fields(in.Text())
		for range 500 {
			for _, w := range words {
				n = (n*17 + len(w)) % 3001
			}
		}
		os.Setenv("DIFFTEST_LAST", in.Text())
		fmt.Println(len(words), n, os.Getenv("DIFFTEST_LAST"))
	}
	fmt.Println(n, os.Getenv("DIFFTEST_LAST"))
}
