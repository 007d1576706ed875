// Command ownnames has local names that begin as Cairn's own do, and local names
// that hide Go's own.
package main

import "fmt"

type point struct{ cairn_s, len int }

func prefixed(cairn_d int, cairn_s ...int) (cairn_r1 int) {
	const cairn_at = 2
	cairn_t1, cairn_p1 := 3, point{cairn_s: 1, len: 2}
	cairn_f := func(cairn_e int) int { cairn_t1 += cairn_e; return cairn_t1 }
	defer func() { cairn_r1 += cairn_t1 }()
cairn_loop:
	for cairn_i, cairn_ := range cairn_s { //difftest:loop
		for cairn_again1 := 0; ; cairn_again1++ {
			if cairn_again1 > 3 {
				continue cairn_loop
			}
			cairn_d = (cairn_d*cairn_at + cairn_f(cairn_i) + cairn_ + cairn_p1.cairn_s) % 1009
		}
	}
	var cairn_x any = cairn_d
	switch cairn_v := cairn_x.(type) {
	case int:
		cairn_r1 = cairn_v
	case string:
		cairn_r1 = len(cairn_v)
	}
	return cairn_r1
}

func hiding(m map[string]int, new int) (string int) {
	true, false, nil := 1, 0, 5
	len, append, panic, make, any := 1, 2, 3, 4, 6
	const int, bool = 7, 8
	if new > 0 {
		defer fmt.Println("deferred", new, true)
	}
	for range m { //difftest:loop
		string += true - false + nil + len + append + panic + make + any + int + bool
		fmt.Println(string)
	}
	for i := 0; i < step(3); i += step(1) {
		string += i + point{len: len}.len
	}
	return string
}

func step(n int) int {
	recover := n
	for close := range 2 { //difftest:loop
		recover += close
	}
	return recover
}

func main() {
	fmt.Println(prefixed(1, 4, 5, 6))
	fmt.Println(hiding(map[string]int{"a": 1, "b": 2}, 3))
}
