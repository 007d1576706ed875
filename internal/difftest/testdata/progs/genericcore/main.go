// Command genericcore covers ranges over, and addresses in, variables whose type
// is a parameter with one underlying type.
package main

import "fmt"

func work(k int) (s int) {
	for i := range 500 {
		s += i % (k + 2)
	}
	return s
}

func runes[S ~string](s S) (n int) {
	for i, c := range s { //difftest:loop
		n += work(i) + int(c)
		fmt.Println("at", i, n)
	}
	return n
}

func count[N ~int](k N) (n int) {
	for i := range k { //difftest:loop
		n += work(int(i))
		fmt.Println("round", i, n)
	}
	return n
}

func array[A ~[3]int](a A) (int, A) {
	s := a[:]
	for i := 0; i < 3; i++ { //difftest:loop
		s[i] += work(i)
		a[0]++
	}
	return s[0], a
}

func main() {
	fmt.Println(runes("aéüz"), count(4))
	fmt.Println(array([3]int{1, 1, 1}))
}
