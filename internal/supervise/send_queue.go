//go:build linux

package supervise

import (
	"sync"

	"github.com/cairnrun/cairn/internal/control"
)

// sendQueue sends messages in the background, so that a peer that does not read
// blocks nobody. It closes the connection if too many messages wait.
type sendQueue struct {
	conn *control.Conn
	mu   sync.Mutex
	some sync.Cond
	list []control.Message
	shut bool
	room int
	done chan struct{} // everything was sent, or can't be
}

func newSendQueue(conn *control.Conn, room int) *sendQueue {
	b := &sendQueue{conn: conn, room: room, done: make(chan struct{})}
	b.some.L = &b.mu
	go b.work()
	return b
}

// send queues a message. Any goroutine may call it; it does not block.
func (b *sendQueue) send(m control.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shut {
		return
	}
	if len(b.list) >= b.room {
		b.shut = true
		b.list = nil
		go b.conn.Close()
	} else {
		b.list = append(b.list, m)
	}
	b.some.Signal()
}

// finish lets the queue end when what was queued has been sent; done is
// closed then.
func (b *sendQueue) finish() {
	b.mu.Lock()
	b.shut = true
	b.some.Signal()
	b.mu.Unlock()
}

func (b *sendQueue) work() {
	defer close(b.done)
	for {
		b.mu.Lock()
		for len(b.list) == 0 && !b.shut {
			b.some.Wait()
		}
		list := b.list
		b.list = nil
		b.mu.Unlock()
		if len(list) == 0 {
			return
		}
		for _, m := range list {
			if b.conn.Send(m) != nil { // its reader sees the end too
				b.finish()
				return
			}
		}
	}
}
