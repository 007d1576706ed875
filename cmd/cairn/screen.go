package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cairnrun/cairn/supervise"
)

// screen shows what a run does: the ranks' output, and on stderr a status line
// that is kept up to date on a terminal, or a line per event.
type screen struct {
	c        *call
	prefix   bool
	terminal bool
	mu       sync.Mutex
	status   progress // the line as it is shown
	last     supervise.State
	next     time.Time
}

func newScreen(c *call, plain bool) *screen {
	s := &screen{c: c, prefix: !plain, status: progress{c: c}}
	if f, ok := c.stderr.(*os.File); ok && !c.quiet {
		st, err := f.Stat()
		s.terminal = err == nil && st.Mode()&os.ModeCharDevice != 0
	}
	return s
}

// line shows a line of a rank's output.
func (s *screen) line(rank, stream int, line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hide()
	text := make([]byte, 0, len(line)+16)
	if s.prefix && len(s.last.Ranks) > 1 {
		text = append(text, '[')
		text = strconv.AppendInt(text, int64(rank), 10)
		text = append(text, "] "...)
	}
	text = append(append(text, line...), '\n')
	if stream == 1 {
		s.c.stdout.Write(text)
	} else {
		s.c.stderr.Write(text)
	}
	s.draw()
}

// event shows what happened.
func (s *screen) event(e supervise.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ranks := s.last.Ranks
	if s.last = e.State; len(s.last.Ranks) == 0 {
		s.last.Ranks = ranks // between two starts there are none
	}
	if s.c.quiet {
		return
	}
	if e.Text != "" {
		s.hide()
		s.c.notef("%s", e.Text)
		s.draw()
	} else if now := time.Now(); now.After(s.next) {
		s.next = now.Add(progressEvery)
		s.draw()
	}
}

func (s *screen) hide() {
	if s.terminal {
		s.status.end()
	}
	s.status.width = 0
}

func (s *screen) draw() {
	if s.terminal {
		s.status.show(statusLine(&s.last, time.Now()))
	}
}

// end erases the status line.
func (s *screen) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hide()
}

// statusLine is the state of a run in one line.
func statusLine(st *supervise.State, now time.Time) string {
	parts := []string{st.State, count(len(st.Ranks), "rank")}
	var point uint64
	for i, r := range st.Ranks {
		if i == 0 || r.Points < point {
			point = r.Points
		}
	}
	if point > 0 {
		parts = append(parts, fmt.Sprintf("point %d", point))
	}
	if st.Last != nil {
		parts = append(parts, "set "+setText(st.Last, now))
	}
	line := strings.Join(parts, " · ")
	if len(line) > 79 { // a line that wraps can't be replaced
		line = strings.ToValidUTF8(line[:79], "")
	}
	return line
}
