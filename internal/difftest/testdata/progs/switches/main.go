// Command switches covers switch with tag, without, with init, fallthrough,
// default in the middle, break, and calls with points in a case's body.
package main

import "fmt"

func heavy(n int) (s int) {
	for i := range 4000 {
		s = (s*9 + i ^ n) % 7919
	}
	return s
}

func rounds(n int) (s int) {
	for i := range n { //difftest:loop
		s += heavy(i + s)
	}
	return s
}

// falls has points in a case that falls through two more.
func falls(n int) (s int) {
	switch n % 4 {
	case 0:
		for i := range 2 { //difftest:loop
			s += heavy(i + n)
		}
		fallthrough
	case 1:
		s *= 3
		fallthrough
	case 2:
		s += rounds(1)
	default:
		s = -n
	}
	return s
}

func main() {
	for n := range 5 {
		fmt.Println("falls", n, falls(n))
	}
	state, total := "idle", 0
	for t := 0; t < 12; t++ {
		switch k := heavy(t) % 5; k {
		case 0, 1:
			total += k
			fallthrough
		case 2:
			total += rounds(2)
		default:
			total--
		case 3:
			if t > 6 {
				break
			}
			total += rounds(1) % 100
		}
		switch old := state; {
		case old == "idle" && total > 3000:
			state = "busy"
			total += rounds(1)
		case old == "busy":
			state = "tired"
			if total%2 == 0 {
				continue
			}
			fallthrough
		case old == "never":
			total += 7
		default:
			state = "idle"
		}
		fmt.Println(t, state, total)
	}
	fmt.Println(state, total)
}
