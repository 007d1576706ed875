//go:build linux

package supervise

import (
	"io"
	"os"
	"strings"
	"sync"

	"github.com/cairnrun/cairn/internal/vfs"
)

// stderrBuffer is what a destination writes to stderr before it is one of the ranks. If it
// becomes one, that is added to the rank's output; if not, it does not belong
// there, and what it said last tells why. A nil early has nothing.
type stderrBuffer struct {
	mu     sync.Mutex
	f      *os.File // a file without a name
	to     string   // the rank's
	passed int64    // bytes that are there
}

// pass adds to the rank's output what is not there yet. That it can't be
// written stops nothing.
func (e *stderrBuffer) pass() {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	st, err := e.f.Stat()
	if err != nil || st.Size() <= e.passed {
		return
	}
	to, err := vfs.OpenPrivate(e.to, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return
	}
	defer to.Close()
	n, _ := io.Copy(to, io.NewSectionReader(e.f, e.passed, st.Size()-e.passed))
	e.passed += n
}

const (
	lastBytes = 16 << 10 // of what a destination wrote are looked at,
	lastLines = 3        // and so many lines told,
	lastText  = 400      // of so many bytes
)

// last is what was written last, in one line: where a Go program panicked,
// from there on.
func (e *stderrBuffer) last() string {
	if e == nil {
		return ""
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	st, err := e.f.Stat()
	if err != nil {
		return ""
	}
	text := make([]byte, min(st.Size(), lastBytes))
	n, _ := e.f.ReadAt(text, st.Size()-int64(len(text)))
	return lastSaid(string(text[:n]))
}

func lastSaid(text string) string {
	var lines []string
	from := -1
	for s := range strings.Lines(text) {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		if from < 0 && (strings.HasPrefix(s, "panic: ") || strings.HasPrefix(s, "fatal error: ")) {
			from = len(lines)
		}
		lines = append(lines, s)
	}
	if from < 0 {
		from = max(0, len(lines)-lastLines)
	}
	out := strings.Join(lines[from:min(len(lines), from+lastLines)], " | ")
	if len(out) > lastText {
		out = strings.ToValidUTF8(out[:lastText], "") + "…"
	}
	return out
}

func (e *stderrBuffer) close() {
	if e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.f.Close()
	}
}
