// Command deferbranch covers defers on one branch while another one leads to a
// point, and points after both.
package main

import "fmt"

func work(n int) (s int) {
	for i := range 2 { //difftest:loop
		for k := range 1000 {
			s = (s*3 + k*n + i) % 2003
		}
		fmt.Println("work", n, i, s)
	}
	return s
}

func choose(n int) (sum int) {
	switch n {
	case 0:
		text := fmt.Sprint("zero ", n)
		defer fmt.Println(text, n)
	case 1:
		sum = work(n)
	case 2:
		if work(n) > 3 {
			defer func() { sum *= 2 }()
		} else {
			defer fmt.Println("low")
		}
		sum += work(n + 1)
	}
	return sum + work(n+10)
}

// leaves has a defer that is pending after a switch that was left early.
func leaves(n int) (sum int) {
	switch n {
	case 0:
		defer func() { fmt.Println("at the end", sum) }()
	case 1:
		for i := range 2 { //difftest:loop
			sum += i * n
			fmt.Println("case", n, sum)
		}
	default:
		defer fmt.Println("default")
	}
block:
	switch {
	default:
		if n > 0 {
			defer fmt.Println("block", n)
			if n == 2 {
				break block
			}
		}
		sum -= work(n + 20)
	}
	return sum + work(n+30)
}

func main() {
	for n := range 3 {
		fmt.Println("choose", n, choose(n))
	}
	for n := range 3 {
		fmt.Println("leaves", n, leaves(n))
	}
}
