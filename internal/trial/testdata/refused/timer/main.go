// Command timer keeps a running timer and a context with a deadline.
package main

//trial:refuse (?i)timer|context|goroutine|chan

import (
	"context"
	"fmt"
	"time"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	n := 0
	for i := 0; ctx.Err() == nil && i < 6; i++ { //trial:loop
		for k := range 3000 {
			n = (n*3 + k + i) % 8009
		}
		select {
		case <-timer.C:
			fmt.Println("late")
		default:
		}
		fmt.Println(i, n)
	}
}
