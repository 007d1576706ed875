// Command ranges covers range over a slice that grows, an array (a copy), a
// pointer to an array, a string and an int, each around a point.
package main

import "fmt"

func work(n int) (s int) {
	for i := range 3000 {
		s = (s*31 + i*n) % 10007
	}
	return s
}

func main() {
	list := []int{3, 1, 4, 1}
	for i, v := range list { //difftest:loop
		list = append(list, v*i)
		list[(i+1)%4] += 10 // seen by the range: it shares the array until append moves it
		fmt.Println("slice", i, v, work(v), len(list))
	}
	arr := [5]int{2, 7, 1, 8, 2}
	for i, v := range arr { //difftest:loop
		arr[4] = 100 + i // not seen: the range has its own copy
		fmt.Println("array", i, v, work(v))
	}
	for i, v := range &arr { //difftest:loop
		arr[4] = 200 + i // seen: the range looks through the pointer
		fmt.Println("pointer", i, v, work(v))
	}
	for i, r := range "aß\xff語z" { //difftest:loop
		fmt.Printf("string %d %q %d\n", i, r, work(int(r)))
	}
	for i := range 4 { //difftest:loop
		n := work(i)
		i *= n
		fmt.Println("int", i, n)
	}
	for i := range len(arr) { //difftest:loop
		fmt.Println("len", i, work(arr[i]))
	}
	fmt.Println(list, arr)
}
