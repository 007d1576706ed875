// Command notifyctx works until a signal, or a time that it was given, ends its
// context.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

type step struct {
	ctx  context.Context
	left int
}

func (s *step) work(x int) int {
	for k := range 3000 {
		x = (x*5 + k) % 3989
	}
	s.left--
	return x
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	s := &step{ctx, 9}
	x := 1
	for s.ctx.Err() == nil { //difftest:loop
		x = s.work(x)
		fmt.Println(s.left, x)
		if s.left == 3 {
			syscall.Kill(os.Getpid(), syscall.SIGINT)
			<-ctx.Done()
		}
	}
	fmt.Println(ctx.Err(), context.Cause(ctx))

	// Several iterations follow in which the context has ended.
	for i := range 3 { //difftest:loop
		x = s.work(x)
		fmt.Println(i, x, errors.Is(context.Cause(ctx), context.Canceled), context.Cause(ctx))
	}
}
