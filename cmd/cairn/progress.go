package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

const (
	progressAfter = 500 * time.Millisecond // shorter work shows none
	progressEvery = 100 * time.Millisecond
)

// progress is a line on a terminal that shows how much of a long task is done.
// Its zero value shows nothing.
type progress struct {
	c     *call
	label string
	total int64
	began time.Time
	next  time.Time
	width int // of the line that is shown now
}

// progress starts a line for work on total bytes, if someone can see it.
func (c *call) progress(label string, total int64) *progress {
	if c.quiet || !isTerminal(c.stderr) {
		return &progress{}
	}
	now := time.Now()
	return &progress{c: c, label: label, total: total, began: now, next: now.Add(progressAfter)}
}

// at says that done bytes are done. One goroutine at a time may call it.
func (p *progress) at(done int64) {
	if p.c == nil {
		return
	}
	now := time.Now()
	if now.Before(p.next) {
		return
	}
	p.next = now.Add(progressEvery)
	p.show(p.line(done, now))
}

// line is what is shown after done bytes.
func (p *progress) line(done int64, now time.Time) string {
	rate := float64(done) / max(now.Sub(p.began).Seconds(), 1e-3)
	part := 100.0
	if p.total > 0 {
		part = min(100, 100*float64(done)/float64(p.total))
	}
	return fmt.Sprintf("%s: %s of %s, %.0f %%, %s/s", p.label, control.BytesText(done), control.BytesText(p.total), part, control.BytesText(int64(rate)))
}

// show replaces the line. It overwrites the rest of a longer line with blanks,
// which works on every terminal.
func (p *progress) show(line string) {
	n := textWidth(line)
	fmt.Fprintf(p.c.stderr, "\r%s%s", line, strings.Repeat(" ", max(0, p.width-n)))
	p.width = n
}

// end erases the line.
func (p *progress) end() {
	if p.c != nil && p.width > 0 {
		p.show("")
		fmt.Fprint(p.c.stderr, "\r")
	}
}
