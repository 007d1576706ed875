// Command gocontext has workers that end when a context is canceled, one that
// waits for a deadline, and one that waits for the channel alone.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

func worker(ctx context.Context, in <-chan int, out chan<- int) error {
	n := 0
	for {
		select {
		case v := <-in:
			n += v
			out <- n
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	child, stop := context.WithCancel(ctx)
	defer stop()
	in, out, ended := make(chan int), make(chan int), make(chan error)
	go func() { ended <- worker(child, in, out) }()
	done := ctx.Done()
	last := make(chan string)
	go func() {
		<-done
		last <- "canceled"
	}()
	for i := range 8 { //difftest:loop
		in <- i
		fmt.Println(i, <-out)
	}
	cancel()
	fmt.Println(<-ended, <-last)

	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	reason := make(chan error)
	go func(done <-chan struct{}) {
		<-done
		reason <- short.Err()
	}(short.Done())
	sum := 0
	for i := range 8 { //difftest:loop
		sum += i
	}
	err := <-reason
	fmt.Println(sum, err, errors.Is(err, context.DeadlineExceeded))
}
