//go:build linux

package helper

import (
	"io"
	"os"
	"strings"
	"sync"

	"github.com/cairnrun/cairn/internal/vfs"
)

// stderrBuffer holds what a destination writes to stderr before it takes over.
// If it takes over, this is appended to the rank's output. If not, the last
// lines explain why. A nil stderrBuffer is empty.
type stderrBuffer struct {
	mu     sync.Mutex
	f      *os.File // a file without a name
	to     string   // the rank's stderr file
	passed int64    // bytes that were appended to it
}

// pass appends what is new to the rank's output. It ignores errors.
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
	lastBytes = 16 << 10 // bytes of a destination's output that are examined
	lastLines = 3        // lines that are reported
	lastText  = 400      // bytes that are reported
)

// last returns the last lines in one line; after a panic of a Go program, those
// from the panic on.
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
