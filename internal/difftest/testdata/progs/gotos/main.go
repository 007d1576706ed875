// Command gotos covers goto around and inside loops with points.
package main

import "fmt"

func run(limit int) (laps, sum int) {
	i := 0
top:
	if laps > 2 {
		goto done
	}
	for ; i < limit; i++ { //difftest:loop
		for k := range 2000 {
			sum = (sum + k*i) % 1999
		}
		if sum%5 == laps {
			i += 2
			laps++
			fmt.Println("lap", laps, i, sum)
			goto top
		}
	}
	laps = -laps
done:
	return laps, sum
}

func main() {
	for limit := 4; limit < 12; limit += 3 {
		laps, sum := run(limit)
		fmt.Println(limit, laps, sum)
	}
}
