// Pingpong has two goroutines that exchange a number over unbuffered channels.
package main

import (
	"flag"
	"fmt"
)

func main() {
	rounds := flag.Int("rounds", 600_000, "exchanges")
	flag.Parse()
	ping, pong := make(chan int), make(chan int)
	go func() {
		for v := range ping {
			pong <- v + 1
		}
		close(pong)
	}()
	sum := 0
	for i := 0; i < *rounds; i++ {
		ping <- i
		sum += <-pong
	}
	close(ping)
	fmt.Println(sum)
}
