// Command scopes covers variables declared again in the block right below the
// one of a loop's, if's or switch's own variables, and hidden ones that are
// needed later.
package main

import "fmt"

func work(n int) (int, string) {
	s := n
	for i := range 2 { //difftest:loop
		for k := range 1000 {
			s = (s*3 + k + i) % 97
		}
	}
	return s, fmt.Sprint("w", s)
}

func filled(n int) <-chan int {
	c := make(chan int, n)
	for i := range n {
		c <- i
	}
	close(c)
	return c
}

func main() {
	total, n := 0, 3
	for v := range filled(n) { //difftest:loop
		v := fmt.Sprint("v", v)
		a, s := work(len(v))
		total += a
		fmt.Println(v, s, total)
	}
	if v := n + 1; v > 3 {
		a, v := work(v)
		fmt.Println(a, v)
		total += a
	} else if n := v * 2; n > 0 {
		v, n := work(n)
		fmt.Println(v, n)
	}
	for i, v := range []int{4, 5} { //difftest:loop
		i, v := work(i + v)
		{
			total := i
			n, _ := work(total)
			fmt.Println(i, v, n, total)
		}
		total -= i
	}
	for i := 0; i < 2; i++ { //difftest:loop
		i := fmt.Sprint(i)
		n, i2 := work(len(i))
		fmt.Println(i, n, i2)
	}
	switch v := any(n).(type) {
	case int:
		v, s := work(v)
		fmt.Println(v, s)
	case string:
		{
			v, s := work(len(v))
			fmt.Println(v, s)
		}
	}
	switch n := n * 2; n {
	case 6:
		total, n := work(n)
		fmt.Println(total, n)
	}
	fmt.Println(total, n)
}
