// Command rangechan covers range over a buffered channel that is filled and
// closed before the loop, so that its contents are state at every point.
package main

import "fmt"

func main() {
	jobs := make(chan [2]int, 16)
	for i := range 9 {
		jobs <- [2]int{i, i * i}
	}
	close(jobs)
	sum := 0
	for job := range jobs { //difftest:loop
		for i := range 5000 {
			sum = (sum*3 + job[0]*i + job[1]) % 99991
		}
		fmt.Println("job", job, sum, len(jobs), cap(jobs))
	}
	_, open := <-jobs
	fmt.Println(sum, open)
}
