// Command tickers has timers and tickers in variables while it works.
package main

import (
	"context"
	"fmt"
	"time"
)

type watch struct {
	tick  *time.Ticker
	limit *time.Timer
	idle  *time.Timer
}

func main() {
	w := &watch{tick: time.NewTicker(time.Millisecond), limit: time.NewTimer(time.Hour), idle: time.NewTimer(time.Hour)}
	defer w.tick.Stop()
	fmt.Println(w.idle.Stop())
	late := time.NewTimer(time.Nanosecond)
	after := time.After(3 * time.Millisecond)
	never := time.Tick(time.Hour)
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	ticks, x := 0, 1
	for i := range 7 { //difftest:loop
		for k := range 3000 {
			x = (x*3 + k + i) % 8009
		}
		select {
		case <-w.limit.C:
			fmt.Println("too late")
			return
		case <-w.idle.C:
			fmt.Println("it was stopped")
		case <-never:
			fmt.Println("an hour")
		case <-ctx.Done():
			fmt.Println("ended")
		case <-w.tick.C:
			ticks++
		}
		switch i {
		case 2:
			<-late.C // long gone off
			fmt.Println("late", late.Stop(), late.Reset(time.Hour))
		case 3:
			<-after
			fmt.Println("after", w.idle.Reset(time.Nanosecond))
			<-w.idle.C
		case 5:
			w.tick.Reset(2 * time.Millisecond)
		}
		fmt.Println(i, x, ticks)
	}
	fmt.Println(w.limit.Stop(), late.Stop(), w.idle.Stop(), after == nil)
}
