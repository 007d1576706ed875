// Command panicend covers a panic that is not recovered, after deferred calls
// have printed: exit status 2.
package main

//difftest:exit 2

import "fmt"

func burn(fuel int) (heat int) {
	defer func() { fmt.Println("burnt", fuel, heat) }()
	for k := range 4000 {
		heat = (heat + k*fuel) % 1009
	}
	return heat / (fuel - 1)
}

func main() {
	defer fmt.Println("main ends")
	for fuel := 6; ; fuel-- { //difftest:loop
		fmt.Println(fuel, burn(fuel))
	}
}
