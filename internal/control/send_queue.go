//go:build linux

package control

import (
	"sync"
)

// SendQueue sends messages in the background, so that a peer that does not read
// blocks nobody. It closes the connection if too many messages wait.
type SendQueue struct {
	conn *Conn
	mu   sync.Mutex
	some sync.Cond
	list []Message
	shut bool
	room int
	Done chan struct{} // closed when everything was sent, or cannot be sent
}

func NewSendQueue(conn *Conn, room int) *SendQueue {
	b := &SendQueue{conn: conn, room: room, Done: make(chan struct{})}
	b.some.L = &b.mu
	go b.work()
	return b
}

// Send queues a message. Any goroutine may call it; it does not block.
func (b *SendQueue) Send(m Message) {
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

// Finish lets the queue end when what was queued has been sent; done is
// closed then.
func (b *SendQueue) Finish() {
	b.mu.Lock()
	b.shut = true
	b.some.Signal()
	b.mu.Unlock()
}

func (b *SendQueue) work() {
	defer close(b.Done)
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
				b.Finish()
				return
			}
		}
	}
}
