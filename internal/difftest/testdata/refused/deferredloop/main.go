// Command deferredloop has its loop in a deferred function, which runs while
// main returns.
package main

//difftest:refuse (?i)defer

import "fmt"

func main() {
	n := 1
	defer func() {
		for i := range 5 { //difftest:loop
			for k := range 3000 {
				n = (n*7 + k + i) % 4001
			}
			fmt.Println(i, n)
		}
	}()
	fmt.Println("begin", n)
}
