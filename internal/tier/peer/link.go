package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/copies"
	"github.com/cairnrun/cairn/internal/tier/kept"
)

// link is the connection to another host.
type link struct {
	host   string
	conn   net.Conn
	c      *control.Conn
	ctx    context.Context
	cancel context.CancelFunc
	data   chan chunk

	mu    sync.Mutex
	queue []*control.PeerMessage
	ready chan struct{} // the queue is not empty

	// Service.mu guards these.
	wants map[copies.ID]want               // what the host has asked for
	out   map[copies.ID]context.CancelFunc // what is being sent
}

// want is a transfer that a holder asked for.
type want struct {
	number uint64
	offset int64
}

// chunk is what is sent of an object at a time, or why nothing is (buf is nil).
type chunk struct {
	head *control.PeerBytes
	buf  tier.Chunk
	done chan struct{}
}

func (s *Service) newLink(host string, conn net.Conn, c *control.Conn) *link {
	l := &link{host: host, conn: conn, c: c, data: make(chan chunk), ready: make(chan struct{}, 1), wants: map[copies.ID]want{}, out: map[copies.ID]context.CancelFunc{}}
	l.ctx, l.cancel = context.WithCancel(s.ctx)
	return l
}

func (l *link) close() {
	l.cancel()
	l.conn.Close()
}

// connect keeps a connection to a host until ctx ends.
func (s *Service) connect(ctx context.Context, h Host) {
	pause := min(firstDial, s.o.pause)
	for ctx.Err() == nil {
		conn, c, err := control.Dial(ctx, h.Addresses, s.secret, func(conn net.Conn, c *control.Conn) error { return s.greet(conn, c, h.Name) })
		if err == nil {
			pause = min(firstDial, s.o.pause)
			s.run(ctx, s.newLink(h.Name, conn, c))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, maxDial)
	}
}

// greet makes sure that this is the host that is meant: hosts have some
// addresses in common.
func (s *Service) greet(conn net.Conn, c *control.Conn, host string) error {
	c.SetLimit(maxMessage)
	conn.SetDeadline(time.Now().Add(idleTime))
	defer conn.SetDeadline(time.Time{})
	if err := c.Send(&control.PeerHello{Host: s.o.Self, To: host}); err != nil {
		return err
	}
	m, err := c.Recv()
	if err != nil {
		return err
	}
	hello, ok := m.(*control.PeerHello)
	if !ok || hello.Host != host || hello.Error != "" {
		return fmt.Errorf("another host's helper is at %s", conn.RemoteAddr())
	}
	return nil
}

// accept serves a connection that another host has made.
func (s *Service) accept(conn net.Conn, c *control.Conn) {
	c.SetLimit(maxMessage)
	conn.SetDeadline(time.Now().Add(idleTime))
	m, err := c.Recv()
	if err != nil {
		return
	}
	switch m := m.(type) {
	case *control.PeerHello:
		answer := &control.PeerHello{Host: s.o.Self}
		if m.To != s.o.Self || m.Host == s.o.Self {
			answer.Error = "this is another host"
		}
		if c.Send(answer) == nil && answer.Error == "" {
			conn.SetDeadline(time.Time{})
			s.run(s.ctx, s.newLink(m.Host, conn, c))
		}
	case *control.GetObject:
		s.serveFetch(conn, c, m)
	}
}

// run uses a connection until it breaks, unless ctx has ended. It replaces an
// older one.
func (s *Service) run(ctx context.Context, l *link) {
	defer l.close()
	if s.o.wrap != nil {
		l.conn = s.o.wrap(l.host, l.conn)
		l.c = control.New(l.conn)
		l.c.SetLimit(maxMessage)
	}
	up := false
	s.do(func() {
		if ctx.Err() != nil { // the host is not there any more
			return
		}
		if old := s.links[l.host]; old != nil {
			s.drop(old)
		}
		up = true
		s.links[l.host] = l
		s.node.Up(l.host)
		s.work.Go(func() {
			l.write()
			l.close()
		})
	})
	if !up {
		return
	}
	err := s.read(l)
	s.do(func() {
		if s.links[l.host] == l {
			s.drop(l)
		}
		if errors.Is(err, copies.ErrMalformed) || errors.Is(err, control.ErrMalformed) || errors.Is(err, tier.ErrAltered) {
			s.event(copies.Trouble{Peer: l.host, Why: err.Error()})
		}
	})
}

// drop ends a connection.
func (s *Service) drop(l *link) {
	l.close()
	delete(s.links, l.host)
	s.node.Down(l.host)
}

// write sends messages, and between them chunks.
func (l *link) write() {
	for {
		l.mu.Lock()
		queue := l.queue
		l.queue = nil
		l.mu.Unlock()
		for _, m := range queue {
			l.conn.SetWriteDeadline(time.Now().Add(idleTime))
			if l.c.Send(m) != nil {
				return
			}
		}
		select {
		case <-l.ctx.Done():
			return
		case <-l.ready:
		case p := <-l.data:
			l.conn.SetWriteDeadline(time.Now().Add(idleTime))
			err := l.c.Send(p.head)
			if err == nil && p.buf != nil {
				err = p.buf.Send(l.conn, p.head.Bytes)
			}
			if err != nil {
				return
			}
			close(p.done)
		}
	}
}

// put passes a chunk to the goroutine that runs write, and waits until it is
// written.
func (l *link) put(ctx context.Context, p chunk) error {
	p.done = make(chan struct{})
	select {
	case l.data <- p:
	case <-ctx.Done():
		return ctx.Err()
	}
	// The buffer must not be used again before. If the connection breaks, it is
	// not used again at all.
	select {
	case <-p.done:
		return nil
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}

// read handles what the host sends, until the connection breaks.
func (s *Service) read(l *link) error {
	var buf tier.Chunk
	for {
		m, err := l.c.Recv()
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *control.PeerMessage:
			err = s.message(l, m)
		case *control.PeerBytes:
			if m.Error != "" {
				s.stopped(l.host, m)
				continue
			}
			if len(buf.Data()) < m.Bytes {
				buf = tier.NewChunk(int64(m.Bytes))
			}
			l.conn.SetReadDeadline(time.Now().Add(idleTime))
			var data []byte
			if data, err = buf.Receive(l.conn, int64(m.Bytes)); err == nil && len(data) != m.Bytes {
				err = fmt.Errorf("%w: %d bytes instead of %d", tier.ErrAltered, len(data), m.Bytes)
			}
			l.conn.SetReadDeadline(time.Time{})
			if err == nil {
				s.received(l.host, m.Transfer, data)
			}
		default:
			err = fmt.Errorf("%w: %s between helpers", control.ErrMalformed, m.Kind())
		}
		if err != nil {
			return err
		}
	}
}

// message handles a message of package copies.
func (s *Service) message(l *link, p *control.PeerMessage) (err error) {
	var m copies.Message
	if err := json.Unmarshal(p.Message, &m); err != nil {
		return fmt.Errorf("%w: %w", control.ErrMalformed, err)
	}
	s.do(func() {
		if s.links[l.host] != l { // it was replaced
			return
		}
		switch m.Kind {
		case copies.Want:
			l.wants[m.ID] = want{p.Transfer, p.Offset}
		case copies.Have, copies.Stored, copies.Failed:
			if cancel := l.out[m.ID]; cancel != nil { // more of it is not needed
				cancel()
				delete(l.out, m.ID)
			}
		}
		err = s.node.Receive(l.host, m)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(l.wants, m.ID) // transfer has had it
	return err
}

// stopped handles the sender's word that no more bytes of a transfer come.
func (s *Service) stopped(from string, m *control.PeerBytes) {
	s.mu.Lock()
	e := s.transfers[m.Transfer]
	s.mu.Unlock()
	if e != nil && e.from == from {
		s.failed(e, errors.New(m.Error))
	}
}

// send queues a message. If the host is not connected, it is lost.
func (s *Service) send(a copies.Send) {
	l := s.links[a.To]
	if l == nil {
		return
	}
	text, err := json.Marshal(&a.Message)
	if err != nil {
		l.close()
		return
	}
	m := &control.PeerMessage{Message: text}
	if e := s.expects[a.ID]; a.Kind == copies.Want && e != nil {
		m.Transfer = e.number
		e.mu.Lock()
		m.Offset = e.in.Offset()
		e.mu.Unlock()
	}
	l.mu.Lock()
	l.queue = append(l.queue, m)
	l.mu.Unlock()
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// transfer begins to send an object, or a shard.
func (s *Service) transfer(a copies.Transfer) {
	l := s.links[a.To]
	if l == nil {
		return
	}
	w := l.wants[a.ID]
	delete(l.wants, a.ID)
	if cancel := l.out[a.ID]; cancel != nil {
		cancel()
	}
	ctx, cancel := context.WithCancel(l.ctx)
	l.out[a.ID] = cancel
	t := copies.Partner
	if a.ID.Data > 0 {
		t = copies.RS
	}
	s.work.Go(func() {
		defer cancel()
		err := s.readObject(ctx, a.ID, a.Size, w.offset, s.limits[t], func(buf tier.Chunk, n int) error {
			return l.put(ctx, chunk{head: &control.PeerBytes{Transfer: w.number, Bytes: n}, buf: buf})
		})
		if err != nil && ctx.Err() == nil {
			if errors.Is(err, tier.ErrDamaged) {
				s.rotten(kept.Rotten{ID: copies.ID{Object: a.ID.Object}, Err: err})
			}
			l.put(ctx, chunk{head: errorOf(w.number, err)})
		}
	})
}
