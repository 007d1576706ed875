// Command selects covers select statements and goroutines that begin and end
// between two points.
package main

import "fmt"

func race(n int) (sum, drops int) {
	data, quit := make(chan int), make(chan struct{})
	results := make(chan int, 4)
	go func() {
		defer close(quit)
		for i := range n {
			data <- i * i
		}
	}()
	for {
		select {
		case v := <-data:
			select {
			case results <- v:
			default:
				drops++
				<-results
			}
			sum += v
		case <-quit:
			return sum + len(results), drops
		}
	}
}

func main() {
	total := 0
	for i := range 8 { //difftest:loop
		sum, drops := race(i * 50)
		total = (total*3 + sum) % 100003
		fmt.Println(i, sum, drops, total)
	}
	fmt.Println(total)
}
