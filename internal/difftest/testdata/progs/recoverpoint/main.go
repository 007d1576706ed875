// Command recoverpoint covers a point that is taken inside a function whose
// caller recovers from a panic raised after the point.
package main

import "fmt"

func dig(depth, rock int) (meters int) {
	defer func() { fmt.Println("up", depth, meters) }()
	for i := 0; ; i++ { //difftest:loop
		for k := range 2000 {
			meters += k * i % 3
		}
		fmt.Println("dig", depth, i, meters)
		if i == rock {
			panic(fmt.Sprint("rock at ", depth, " ", i))
		}
		if i == 2 && depth < 3 {
			meters += dig(depth+1, rock-1)
			return
		}
	}
}

func try(rock int) (m int, why any) {
	defer func() { why = recover() }()
	m = -1
	m = dig(0, rock)
	return m, nil
}

func main() {
	total := 0
	for _, rock := range []int{3, 4} {
		m, why := try(rock)
		total += m
		fmt.Println("try", rock, m, why)
	}
	fmt.Println("total", total)
}
