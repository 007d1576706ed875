// Command genericinit has a func value in its state that a generic function has
// made for the initialiser of a package variable. Its type parameter has the
// name of a type, so that the func literal cannot be converted.
package main

//difftest:daily
//difftest:refuse cannot be found again by a name

import "fmt"

func mapped[T, U any](f func(T) U) func([]T) []U {
	return func(list []T) (out []U) {
		for _, x := range list {
			out = append(out, f(x))
		}
		return out
	}
}

var double = mapped(func(n int) int { return 2 * n })

func local() any {
	type T struct{ n int }
	return mapped(func(x T) T { x.n++; return x })
}

var hidden = local()

func main() {
	sum := 0
	for i := range 6 { //difftest:loop
		for k := range 3000 {
			sum = (sum*3 + k + i) % 8009
		}
		fmt.Println(i, sum)
	}
	fmt.Println(double([]int{1, sum}), hidden != nil)
}
