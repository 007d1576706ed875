package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/supervise"
)

// screen shows what a run does: the ranks' output, and on stderr a status line
// (on a terminal) or a line per event. Events never wait for the terminal or
// the pipe behind stdout.
type screen struct {
	c        *call
	prefix   bool
	verbose  bool          // a line for each checkpoint
	terminal bool          // stderr is one, and has a status line
	stdout   bool          // stdout is a terminal
	main     *displayQueue // of stderr, and of stdout unless that goes elsewhere
	out      *displayQueue // of stdout
	mu       sync.Mutex
	last     control.RunState
	ranks    int // of the run
	next     time.Time
	over     chan struct{} // closed by close

	status progress // the line as it is shown; of main
	part   string   // the last incomplete line of a rank, shown above it; of main
	above  bool     // part is on the screen; of main

	newPart    string // the next one; guarded by mu
	partQueued bool   // main shows it; guarded by mu
	unread     bool   // stdout is a pipe that nobody reads; of out
}

func newScreen(c *call, plain, verbose bool) *screen {
	s := &screen{c: c, prefix: !plain, verbose: verbose, status: progress{c: c}, over: make(chan struct{})}
	s.terminal = !c.quiet && isTerminal(c.stderr)
	s.stdout = isTerminal(c.stdout.w)
	s.main = newDisplayQueue(func(n int) { s.note(fmt.Sprintf("%s not shown; see the run's log", control.Count(n, "remark"))) })
	s.out = s.main
	if _, file := c.stdout.w.(*os.File); file && !isTerminal(c.stdout.w) {
		s.out = newDisplayQueue(nil)
	}
	if s.terminal {
		go s.tick()
	}
	return s
}

// has says how many ranks the run has, before they are started.
func (s *screen) has(ranks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ranks = ranks
}

// tick draws the status line again every second: time passes, although nothing
// happens.
func (s *screen) tick() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if s.main.idle() {
				s.main.note(s.draw)
			}
		case <-s.over:
			return
		}
	}
}

// line shows a line of a rank's output, and calls written when that is done. It
// blocks while too many lines wait.
func (s *screen) line(rank, stream int, line []byte, written func(bool)) {
	s.mu.Lock()
	several := s.ranks > 1
	s.mu.Unlock()
	text := make([]byte, 0, len(line)+16)
	if s.prefix && several {
		if s.stdout { // it would overwrite the prefix
			line = bytes.TrimRight(line, "\r")
			line = line[bytes.LastIndexByte(line, '\r')+1:]
		}
		text = fmt.Appendf(text, "[%d] ", rank)
	}
	text = append(append(text, line...), '\n')
	switch {
	case stream != 1:
		s.main.output(len(text), func() {
			s.hide()
			s.part = ""
			_, err := s.c.stderr.Write(text)
			written(err == nil)
			s.draw()
		})
	case s.out == s.main:
		s.out.output(len(text), func() {
			s.hide()
			s.part = ""
			written(s.print(text))
			s.draw()
		})
	default: // it does not touch the terminal's line
		s.out.output(len(text), func() { written(s.print(text)) })
	}
}

// incomplete shows the line that a rank is writing, such as its progress, as
// far as it fits on one line of the terminal. It does not block.
func (s *screen) incomplete(rank, stream int, text []byte) {
	part := strings.TrimRight(string(text), "\r")
	part = part[strings.LastIndexByte(part, '\r')+1:]
	part = printable(strings.ReplaceAll(escapes.ReplaceAllString(part, ""), "\t", " "))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prefix && s.ranks > 1 {
		part = fmt.Sprintf("[%d] %s", rank, part)
	}
	if s.newPart = part; s.partQueued {
		return // what is in the queue shows this one
	}
	s.partQueued = s.main.note(func() {
		s.hide()
		s.mu.Lock()
		s.part, s.partQueued = s.newPart, false
		s.mu.Unlock()
		s.draw()
	})
}

// escapes are the sequences by which programs set colours and clear lines.
var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// remark shows a remark. It does not block.
func (s *screen) remark(text string) {
	if !s.c.quiet {
		s.main.note(func() { s.note(text) })
	}
}

// note shows a remark on stderr; only main's goroutine calls it.
func (s *screen) note(text string) {
	s.hide()
	s.c.notef("%s", text)
	s.draw()
}

// print writes to stdout until nobody reads it any more, which is not a
// failure: 'cairn run … | head'. It reports whether it has written text.
func (s *screen) print(text []byte) bool {
	if s.unread {
		return false
	}
	_, err := s.c.stdout.Write(text)
	if errors.Is(err, syscall.EIO) && s.stdout { // the terminal is gone; the run continues
		s.unread, s.c.stdout.err = true, nil
	}
	if errors.Is(err, syscall.EPIPE) {
		s.unread, s.c.stdout.err = true, nil
		s.main.note(func() { s.note("nobody reads stdout any more, so the rest of it is not shown") })
	}
	return err == nil
}

// event shows an event of the run. It does not block.
func (s *screen) event(e supervise.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ranks := s.last.Ranks
	if s.last = e.Run; len(s.last.Ranks) == 0 {
		s.last.Ranks = ranks // between two starts there are none
	} else {
		s.ranks = len(s.last.Ranks)
	}
	if s.c.quiet {
		return
	}
	if e.Text != "" && !(e.Kind == events.Checkpoint && s.terminal && !s.verbose) {
		s.main.note(func() {
			if e.Kind == events.Failure || e.Kind == events.End {
				s.hide()
				s.part = "" // the rest of it does not come
			}
			s.note(e.Text)
		})
	} else if now := time.Now(); s.terminal && now.After(s.next) && s.main.idle() {
		s.next = now.Add(progressEvery)
		s.main.note(s.draw)
	}
}

func (s *screen) hide() {
	if s.terminal {
		s.status.end()
	}
	s.status.width = 0
	if s.above {
		s.above = false
		if s.terminal {
			fmt.Fprint(s.c.stderr, "\x1b[A")
		}
		fmt.Fprint(s.c.stdout, "\r\x1b[K")
	}
}

func (s *screen) draw() {
	if s.part != "" && s.stdout && !s.above {
		s.above = true
		fmt.Fprint(s.c.stdout, clipText(s.part, lineWidth(s.c.stdout.w)))
		if s.terminal {
			fmt.Fprintln(s.c.stdout)
		}
	}
	if s.terminal {
		s.mu.Lock()
		line := statusLine(&s.last, time.Now(), lineWidth(s.c.stderr))
		s.mu.Unlock()
		s.status.show(line)
	}
}

// closeTime is how long an interrupted run waits for its last output to be
// shown.
const closeTime = 2 * time.Second

// close shows what is left and erases the status line. When ctx is done, it
// does not wait long for a terminal or a pipe that accepts nothing.
func (s *screen) close(ctx context.Context) {
	close(s.over)
	if s.out != s.main {
		s.out.close()
		s.await(ctx, s.out)
	}
	s.main.note(s.hide)
	s.main.close()
	s.await(ctx, s.main)
}

func (s *screen) await(ctx context.Context, l *displayQueue) {
	select {
	case <-l.done:
		return
	case <-ctx.Done():
	}
	select {
	case <-l.done:
	case <-time.After(closeTime):
	}
}

// statusLine returns the state of a run as a line of at most width columns.
// It drops the least important parts if not all fit.
func statusLine(st *control.RunState, now time.Time, width int) string {
	line := st.State
	add := func(separator, text string) bool {
		longer := line + separator + text
		if textWidth(longer) > width {
			return false
		}
		line = longer
		return true
	}
	add(" · ", control.Count(len(st.Ranks), "rank"))
	if !st.Began.IsZero() && now.After(st.Began) {
		add(" · ", roughly(now.Sub(st.Began)))
	}
	var sizes []string
	if st.Last != nil {
		parts := checkpointParts(st.Last, now)
		add(" · ", "checkpoint "+parts[0]+", "+parts[1])
		sizes = parts[2:]
	}
	if u := st.Unsaved; u != nil {
		add(" · ", "checkpoints fail since "+u.Since.Local().Format(time.TimeOnly))
	}
	if st.LostNS > 0 {
		add(" · ", roughly(time.Duration(st.LostNS))+" lost")
	}
	if text := loopText(st, now); text != "" {
		add(" · ", text)
	}
	var point uint64
	for i, r := range st.Ranks {
		if i == 0 || r.Points < point {
			point = r.Points
		}
	}
	if point > 0 {
		add(" · ", fmt.Sprintf("point %d", point))
	}
	for i, part := range sizes {
		if separator := []string{" · ", ", "}[min(i, 1)]; !add(separator, part) {
			break
		}
	}
	return line
}

// loopText says how far the program is in its outermost loop, and when this
// loop is expected to end. It is empty if the loop does not tell.
func loopText(st *control.RunState, now time.Time) string {
	l, end := st.Ends()
	if l == nil {
		return ""
	}
	text := fmt.Sprintf("loop %s at %d %%", l.Where, l.Percent())
	if left := end.Sub(now); !end.IsZero() && left >= time.Second {
		text += ", about " + roughly(left) + " left"
	}
	return text
}
