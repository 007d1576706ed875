package main

import "sync"

const (
	queueBytes = 256 << 10 // bytes of output that may wait to be shown
	queueNotes = 1000      // remarks that may wait
)

// displayQueue shows things in order, in a goroutine of its own. So a terminal
// or a pipe that accepts nothing blocks only callers of output.
type displayQueue struct {
	mu      sync.Mutex
	some    sync.Cond
	list    []queued
	bytes   int
	closed  bool
	dropped int             // remarks that found no room
	missed  func(count int) // reports them, in the queue's goroutine
	done    chan struct{}   // closed when everything was shown after close
}

type queued struct {
	bytes int
	show  func()
}

func newDisplayQueue(missed func(int)) *displayQueue {
	l := &displayQueue{missed: missed, done: make(chan struct{})}
	l.some.L = &l.mu
	go l.work()
	return l
}

// output shows something of that many bytes. It blocks while there is no room.
func (l *displayQueue) output(bytes int, show func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.bytes > queueBytes && !l.closed {
		l.some.Wait()
	}
	if !l.closed {
		l.list = append(l.list, queued{bytes, show})
		l.bytes += bytes
		l.some.Broadcast()
	}
}

// note shows a remark. It does not block; beyond queueNotes the remark is
// dropped. note reports whether it was not.
func (l *displayQueue) note(show func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
	case len(l.list) >= queueNotes:
		l.dropped++
	default:
		l.list = append(l.list, queued{0, show})
		l.some.Broadcast()
		return true
	}
	return false
}

// idle reports whether nothing waits.
func (l *displayQueue) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.list) == 0
}

func (l *displayQueue) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.some.Broadcast()
}

func (l *displayQueue) work() {
	defer close(l.done)
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for len(l.list) == 0 && l.dropped == 0 && !l.closed {
			l.some.Wait()
		}
		var next queued
		switch {
		case len(l.list) > 0:
			next, l.list = l.list[0], l.list[1:]
		case l.dropped > 0:
			n := l.dropped
			l.dropped, next.show = 0, func() { l.missed(n) }
		default:
			return
		}
		l.mu.Unlock()
		next.show()
		l.mu.Lock()
		l.bytes -= next.bytes
		l.some.Broadcast()
	}
}
