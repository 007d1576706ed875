//go:build linux

package supervise

import (
	"sync"

	"github.com/cairnrun/cairn/internal/control"
)

// outbox sends messages in the background, so that a peer that does not read
// holds nobody up. A peer that lets too many pile up is cut off.
type outbox struct {
	conn *control.Conn
	mu   sync.Mutex
	some sync.Cond
	list []*control.Message
	shut bool
	room int
	done chan struct{} // everything was sent, or can't be
}

func newOutbox(conn *control.Conn, room int) *outbox {
	b := &outbox{conn: conn, room: room, done: make(chan struct{})}
	b.some.L = &b.mu
	go b.work()
	return b
}

// send queues a message. Any goroutine may call it; it does not block.
func (b *outbox) send(m *control.Message) {
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

// finish lets the outbox end when what was queued has been sent; done is
// closed then.
func (b *outbox) finish() {
	b.mu.Lock()
	b.shut = true
	b.some.Signal()
	b.mu.Unlock()
}

func (b *outbox) work() {
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
