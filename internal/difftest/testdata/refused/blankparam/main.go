// Command blankparam has its loop in a method of a generic type whose type
// parameter has no name there, so that its frame cannot be declared.
package main

//difftest:daily
//difftest:refuse type parameter without a name

import "fmt"

type stack[T any] struct{ list []T }

func (s *stack[_]) walk(n int) (sum int) {
	for i := range n { //difftest:loop
		for k := range 3000 {
			sum = (sum*3 + k + i + len(s.list)) % 8009
		}
		fmt.Println(i, sum)
	}
	return sum
}

func main() {
	s := &stack[string]{make([]string, 3)}
	fmt.Println(s.walk(6))
}
