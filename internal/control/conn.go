package control

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	headerSize = 4
	maxFiles   = 64
	// DefaultLimit bounds a message's JSON, in bytes. Endpoints of 10,000 ranks
	// fit in it.
	DefaultLimit = 64 << 20
)

// ErrMalformed says that the peer sent something that is no message.
var ErrMalformed = errors.New("malformed control message")

// Conn sends and receives messages over a stream. Send may be called by any
// number of goroutines, Recv by one; Close by any, it ends both.
type Conn struct {
	stream io.ReadWriteCloser
	limit  atomic.Int64
	send   sync.Mutex
	head   [headerSize]byte // of the message being received
	body   []byte           // reused if it is small
	files  []*os.File       // that came with it
}

// New returns a Conn over a stream, which it then owns. Descriptors can be
// passed if it is a *net.UnixConn.
func New(stream io.ReadWriteCloser) *Conn {
	c := &Conn{stream: stream}
	c.limit.Store(DefaultLimit)
	return c
}

// SetLimit bounds the JSON of messages that are received.
func (c *Conn) SetLimit(bytes int) { c.limit.Store(int64(bytes)) }

// SetReadDeadline lets a Recv fail at t, where the stream has deadlines.
func (c *Conn) SetReadDeadline(t time.Time) error {
	if d, ok := c.stream.(interface{ SetReadDeadline(time.Time) error }); ok {
		return d.SetReadDeadline(t)
	}
	return nil
}

// SetWriteDeadline lets a Send fail at t, where the stream has deadlines.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if d, ok := c.stream.(interface{ SetWriteDeadline(time.Time) error }); ok {
		return d.SetWriteDeadline(t)
	}
	return nil
}

// CloseRead lets Recv return what has arrived, and then io.EOF, even if other
// processes hold the far end open. It does nothing on other streams than
// sockets.
func (c *Conn) CloseRead() error {
	if s, ok := c.stream.(interface{ CloseRead() error }); ok {
		return s.CloseRead()
	}
	return nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.stream.Close() }

// Send sends a message. It blocks while the peer does not read.
func (c *Conn) Send(m *Message) error { return c.SendFiles(m) }

// SendFiles sends a message with descriptors. The files stay the caller's.
func (c *Conn) SendFiles(m *Message, files ...*os.File) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("control message %s: %w", m.Kind, err)
	}
	if len(body) > DefaultLimit {
		return fmt.Errorf("control message %s: %d bytes, %d are allowed", m.Kind, len(body), DefaultLimit)
	}
	buf := make([]byte, headerSize, headerSize+len(body))
	binary.BigEndian.PutUint32(buf, uint32(len(body)))
	buf = append(buf, body...)
	c.send.Lock()
	defer c.send.Unlock()
	if len(files) > 0 {
		n, err := sendFiles(c.stream, buf, files)
		if err != nil {
			return fmt.Errorf("control message %s: %w", m.Kind, err)
		}
		buf = buf[n:]
	}
	if _, err := c.stream.Write(buf); err != nil {
		return fmt.Errorf("control message %s: %w", m.Kind, err)
	}
	return nil
}

// Recv returns the next message. It returns io.EOF when the peer has closed
// the connection between two messages, and an error that wraps ErrMalformed
// for what is no message; then the connection can't be used any more.
// Descriptors that came along are closed.
func (c *Conn) Recv() (*Message, error) {
	m, files, err := c.RecvFiles()
	for _, f := range files {
		f.Close()
	}
	return m, err
}

// RecvFiles is Recv for who expects descriptors; the files are the caller's.
func (c *Conn) RecvFiles() (*Message, []*os.File, error) {
	m, err := c.recv()
	files := c.files
	c.files = nil
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		return nil, nil, err
	}
	return m, files, nil
}

func (c *Conn) recv() (*Message, error) {
	if _, err := io.ReadFull(reader{c}, c.head[:]); err != nil {
		if err == io.ErrUnexpectedEOF {
			err = fmt.Errorf("%w: it ends within its length", ErrMalformed)
		}
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(c.head[:]))
	if limit := c.limit.Load(); n > limit {
		return nil, fmt.Errorf("%w: length %d, %d are allowed", ErrMalformed, n, limit)
	}
	// A length is only a claim: memory grows with what really comes.
	body, err := readAll(reader{c}, c.body[:0], int(n))
	if err != nil {
		return nil, err
	}
	if cap(body) <= 1<<16 {
		c.body = body
	} else {
		c.body = nil
	}
	m := new(Message)
	if err := json.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrMalformed, err)
	}
	if m.Kind == "" {
		return nil, fmt.Errorf("%w: it has no kind", ErrMalformed)
	}
	return m, nil
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

// reader reads the stream and collects descriptors.
type reader struct{ c *Conn }

func (r reader) Read(p []byte) (int, error) {
	u, ok := r.c.stream.(*net.UnixConn)
	if !ok {
		return r.c.stream.Read(p)
	}
	n, files, err := recvFiles(u, p)
	r.c.files = append(r.c.files, files...)
	if err == nil && len(r.c.files) > maxFiles {
		err = fmt.Errorf("%w: more than %d descriptors", ErrMalformed, maxFiles)
	}
	return n, err
}
