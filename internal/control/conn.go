package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	headerSize = 4
	// DefaultLimit bounds a message's JSON, in bytes. The endpoints of 10,000
	// ranks fit in it.
	DefaultLimit = 64 << 20
)

// ErrMalformed says that the peer sent something that is not a message.
var ErrMalformed = errors.New("malformed control message")

// Conn sends and receives messages over a stream. Send may be called by any
// number of goroutines, Recv by one; Close by any, it ends both.
type Conn struct {
	stream io.ReadWriteCloser
	limit  atomic.Int64
	send   sync.Mutex
	head   [headerSize]byte // of the message being received
	body   []byte           // reused if it is small
}

// New returns a Conn over a stream, which it then owns.
func New(stream io.ReadWriteCloser) *Conn {
	c := &Conn{stream: stream}
	c.limit.Store(DefaultLimit)
	return c
}

// SetLimit bounds the JSON of received messages.
func (c *Conn) SetLimit(bytes int) { c.limit.Store(int64(bytes)) }

// SetReadDeadline makes Recv fail at t, if the stream has deadlines.
func (c *Conn) SetReadDeadline(t time.Time) error {
	if d, ok := c.stream.(interface{ SetReadDeadline(time.Time) error }); ok {
		return d.SetReadDeadline(t)
	}
	return nil
}

// SetWriteDeadline makes Send fail at t, if the stream has deadlines.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if d, ok := c.stream.(interface{ SetWriteDeadline(time.Time) error }); ok {
		return d.SetWriteDeadline(t)
	}
	return nil
}

// CloseRead makes Recv return what has arrived, and then io.EOF, even if other
// processes have the far end open. It does nothing if the stream is not a
// socket.
func (c *Conn) CloseRead() error {
	if s, ok := c.stream.(interface{ CloseRead() error }); ok {
		return s.CloseRead()
	}
	return nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.stream.Close() }

// Send sends a message. It blocks while the peer does not read.
func (c *Conn) Send(m Message) error {
	body, err := encode(m)
	if err == nil && len(body) > DefaultLimit {
		err = fmt.Errorf("%d bytes, %d are allowed", len(body), DefaultLimit)
	}
	if err == nil {
		frame := binary.BigEndian.AppendUint32(make([]byte, 0, headerSize+len(body)), uint32(len(body)))
		c.send.Lock()
		defer c.send.Unlock()
		_, err = c.stream.Write(append(frame, body...))
	}
	if err != nil {
		return fmt.Errorf("control message %s: %w", m.Kind(), err)
	}
	return nil
}

// Recv returns the next message. It returns io.EOF when the peer has closed
// the connection between two messages. An error that wraps ErrMalformed means
// that the peer sent something else than a message; then the connection cannot
// be used any more.
func (c *Conn) Recv() (Message, error) {
	if _, err := io.ReadFull(c.stream, c.head[:]); err != nil {
		if err == io.ErrUnexpectedEOF {
			err = fmt.Errorf("%w: it ends within its length", ErrMalformed)
		}
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(c.head[:]))
	if limit := c.limit.Load(); n > limit {
		return nil, fmt.Errorf("%w: length %d, %d are allowed", ErrMalformed, n, limit)
	}
	// The length is only a claim: memory grows with what really comes.
	body, err := readAll(c.stream, c.body[:0], int(n))
	if err != nil {
		return nil, err
	}
	if cap(body) <= 1<<16 {
		c.body = body
	} else {
		c.body = nil
	}
	return decode(body)
}

// readAll appends n bytes of r to buf.
func readAll(r io.Reader, buf []byte, n int) ([]byte, error) {
	for len(buf) < n {
		part := min(n-len(buf), max(len(buf), 4096))
		at := len(buf)
		if cap(buf) < at+part {
			buf = append(make([]byte, 0, min(n, 2*(at+part))), buf...)
		}
		k, err := io.ReadFull(r, buf[at:at+part])
		buf = buf[:at+k]
		if err != nil {
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				err = fmt.Errorf("%w: it ends after %d of %d bytes", ErrMalformed, len(buf), n)
			}
			return buf, err
		}
	}
	return buf, nil
}
