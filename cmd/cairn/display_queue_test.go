package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/supervise"
)

// TestScreen_BlockedTerminal has a terminal that accepts nothing. Events
// must not wait for it, and those that did not fit are counted.
func TestScreen_BlockedTerminal(t *testing.T) {
	r, w := io.Pipe()
	c := &call{stdout: &output{w: w}, stderr: w}
	s := newScreen(c, false, false)
	for i := range 2 * queueNotes {
		s.event(supervise.Event{Event: events.Event{Kind: events.Note, Text: fmt.Sprintf("remark %d", i)}})
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	read := make(chan string)
	go func() {
		text, _ := io.ReadAll(r)
		read <- string(text)
	}()
	s.close(gone)
	w.Close()
	text := <-read
	if !strings.Contains(text, "remark 5\n") || !strings.Contains(text, " remarks not shown; see the run's log") || strings.Contains(text, fmt.Sprintf("remark %d\n", 2*queueNotes-1)) {
		t.Errorf("%.200q … %q", text, text[max(0, len(text)-200):])
	}
	s.event(supervise.Event{Event: events.Event{Kind: events.Note, Text: "late"}}) // is dropped, and does not block
	s.line(0, 1, []byte("late"), func(bool) {})
}
