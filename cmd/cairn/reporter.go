package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// reporter shows the steps of a long task, and in which part of a step it is:
// on a terminal by a line that changes, elsewhere by a line now and then if
// nothing else was shown.
type reporter struct {
	to    io.Writer
	quiet bool          // show warnings only
	about string        // what is worked on
	soon  time.Duration // how long a new part is not shown
	every time.Duration // how long the same part is not shown again
	line  *progress     // on a terminal, or nil

	mu    sync.Mutex
	doing string    // the last line: the step
	part  string    // the part of the step
	last  string    // the part in the last line
	began time.Time // when the step or part began
	since time.Time // when anything was shown
}

// newReporter returns a reporter to stderr.
func (c *call) newReporter(about string) *reporter {
	r := &reporter{to: c.stderr, quiet: c.quiet, about: about, soon: time.Second, every: 10 * time.Second}
	if isTerminal(c.stderr) {
		r.line = &progress{c: c}
	}
	return r
}

// say shows a line: a step begins, or has ended.
func (r *reporter) say(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doing, r.part, r.last = text, "", ""
	r.began = time.Now()
	if !r.quiet || strings.HasPrefix(text, "WARNING: ") { // of work that is not saved
		r.print(text)
	}
}

// step says that a part of the step begins.
func (r *reporter) step(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.part, r.began = name, time.Now()
}

// print shows a line.
func (r *reporter) print(text string) {
	r.clear()
	fmt.Fprintf(r.to, "cairn: %s: %s\n", r.about, text)
	r.since = time.Now()
}

// clear erases the line that changes.
func (r *reporter) clear() {
	if r.line != nil {
		r.line.end()
	}
}

// Write passes on what a command says.
func (r *reporter) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clear()
	r.since = time.Now()
	return r.to.Write(p)
}

// start begins to show the time that passes. The function it returns ends that.
func (r *reporter) start() (stop func()) {
	if r.quiet {
		return func() {}
	}
	done := make(chan struct{})
	r.since = time.Now()
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(min(r.soon, r.every))
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
	return sync.OnceFunc(func() {
		close(done)
		wg.Wait()
		r.clear()
	})
}

// remind shows the part, or the step if it has none: on a terminal always,
// elsewhere if the part is new, or if nothing was shown for a while.
func (r *reporter) remind() {
	r.mu.Lock()
	defer r.mu.Unlock()
	what := cmp.Or(r.part, r.doing)
	if what == "" {
		return
	}
	passed := fmt.Sprintf("(%.0f s)", time.Since(r.began).Seconds())
	if r.line != nil {
		line := []rune(fmt.Sprintf("cairn: %s: %s %s", r.about, what, passed))
		r.line.show(string(line[:min(len(line), lineWidth(r.to))]))
		return
	}
	silent := time.Since(r.since)
	if silent < r.every && (r.part == r.last || silent < r.soon) {
		return
	}
	r.last = r.part
	r.print("still " + what + " " + passed)
}
