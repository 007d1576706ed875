// Command predeclared calls something else int, which frames need.
package main

import "fmt"

//difftest:refuse int is declared by the package

type int = int64

func main() {
	var sum int
	for i := range int(10) { //difftest:loop
		sum += i
	}
	fmt.Println(sum)
}
