// Command rebuildparam asks for a function with a parameter to run again.
package main

//difftest:daily
//difftest:refuse (?s)main.go:14: //cairn:rebuild needs a function without parameters.*main.go:20: //cairn:rebuild has no effect.*main.go:25: //cairn:rebuild belongs to no function

import (
	"fmt"
)

var handle *int

//cairn:rebuild
func open(name string) error {
	handle = new(int)
	return nil
}

//cairn:rebuild
func local() {
	handle := 1
	fmt.Println(handle)
}

//cairn:rebuild
var other int

func main() {
	for i := range 3 { //difftest:loop
		if err := open("x"); err != nil {
			fmt.Println(err)
		}
		other += i
		local()
	}
}
