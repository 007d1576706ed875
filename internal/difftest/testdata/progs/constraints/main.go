// Command constraints has type parameters that are pointers: in the declaration
// of a type, [P *S] would be the length of an array.
package main

import "fmt"

type S struct{ n int }

func each[P *S](all []P, f func(*S) int) (sum int) {
	for _, p := range all { //difftest:loop
		sum += f(p)
	}
	return sum
}

func total[L ~[]int, P *[3]int](l L, p P) (sum int) {
	for i := range l { //difftest:loop
		sum += l[i] * p[i%3]
	}
	return sum
}

func main() {
	fmt.Println(each([]*S{{1}, {2}, {3}}, func(s *S) int { return s.n * s.n }))
	fmt.Println(total([]int{1, 2, 3, 4}, &[3]int{5, 6, 7}))
}
