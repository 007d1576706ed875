package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// reporter shows the steps of a long task. If it has shown nothing for a while,
// it repeats the last step, with the time that has passed.
type reporter struct {
	to    io.Writer
	quiet bool   // show warnings only
	about string // what is worked on
	every time.Duration

	mu    sync.Mutex
	doing string    // the last line
	began time.Time // when it was shown
	since time.Time // when anything was shown
}

// say shows a line.
func (r *reporter) say(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doing, r.began = text, time.Now()
	r.since = r.began
	if !r.quiet || strings.HasPrefix(text, "WARNING: ") { // of work that is not saved
		r.print(text)
	}
}

func (r *reporter) print(text string) { fmt.Fprintf(r.to, "cairn: %s: %s\n", r.about, text) }

// Write passes on what a command says.
func (r *reporter) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = time.Now()
	return r.to.Write(p)
}

// start begins to watch for silence. The function it returns ends that.
func (r *reporter) start() (stop func()) {
	if r.quiet {
		return func() {}
	}
	done := make(chan struct{})
	r.since = time.Now()
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(r.every)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				r.remind()
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

// remind repeats the last step if nothing was shown for a while.
func (r *reporter) remind() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.doing == "" || time.Since(r.since) < r.every {
		return
	}
	r.print(fmt.Sprintf("still %s (%.0f s)", r.doing, time.Since(r.began).Seconds()))
}
