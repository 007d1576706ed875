package main

import "os"

func main() {
	n := len(os.Args)
	for i := 0; i < 10; i++ { // trip=10
	}
	for i := 10; i > 0; i -= 3 { // trip=4
	}
	for i := 0; i <= 6; i += 2 { // trip=4
	}
	for i := 0; i < 0; i++ { // trip=0
	}
	for range 7 { // trip=7
	}
	for range [3]int{} { // trip=3
	}
	for i := 0; i < n; i++ { // trip=-1
	}
	for i := 0; i < 10; i++ { // trip=-1
		i += n
	}
	for i := 0; i < 10; i++ { // trip=-1
		p := &i
		*p += n
	}
	for i := 0; i != 10; i++ { // trip=-1
	}
	for { // trip=1
		if n < 3 {
			n++
			continue
		}
		break
	}
	for false { // trip=-1
	}
}
