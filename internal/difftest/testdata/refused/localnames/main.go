// Command localnames has two types of one name in its state, which functions
// declare that initialise package variables: a name finds one type only.
package main

//difftest:refuse two types are called main\.T

import "fmt"

var (
	number = func() any { type T int; return T(3) }()
	truth  = func() any { type T bool; return T(true) }()
)

func main() {
	sum := 0
	for i := range 6 { //difftest:loop
		for k := range 3000 {
			sum = (sum*3 + k + i) % 8009
		}
		fmt.Println(i, sum)
	}
	fmt.Println(number, truth)
}
