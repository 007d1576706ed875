package migrate

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/mem"
)

// stream is one end of the connection, with frames in both directions. One
// goroutine reads; several may write.
type stream struct {
	conn  net.Conn
	stall time.Duration

	// For reading.
	in           *bufio.Reader
	noDeadline   bool         // silence is no error
	lastReceived atomic.Int64 // when the last byte came; see sinceStart
	number       uint32       // of the next frame
	payload      []byte
	received     atomic.Int64 // bytes

	// For writing.
	mu       sync.Mutex
	next     uint32 // number of the next frame
	ended    bool   // no more frames follow
	lastSent atomic.Int64
	sent     atomic.Int64 // bytes
	transfer atomic.Int64 // ns spent in network calls

	once  sync.Once
	cause atomic.Pointer[error] // why the stream was closed
}

// processStart is the origin of sinceStart.
var processStart = time.Now()

// sinceStart returns a time in ns that does not jump when the machine's clock
// is set.
func sinceStart() int64 { return int64(time.Since(processStart)) }

func newStream(conn net.Conn, stall time.Duration) *stream {
	s := &stream{conn: conn, stall: stall}
	now := sinceStart()
	s.lastReceived.Store(now)
	s.lastSent.Store(now)
	s.in = bufio.NewReaderSize(netReader{s}, 64<<10)
	return s
}

// close closes the stream for a reason. If it is called again, the first reason
// counts.
func (s *stream) close(why error) {
	s.once.Do(func() {
		s.cause.Store(&why)
		s.conn.Close()
	})
}

// rootCause is a reason for closing a stream that explains all later errors.
type rootCause struct{ error }

func (d rootCause) Unwrap() error { return d.error }

// reason returns why an operation failed: the reason for closing the stream, if
// it says more than err.
func (s *stream) reason(err error) error {
	p := s.cause.Load()
	if p == nil || *p == nil {
		return err
	}
	if _, ok := (*p).(rootCause); ok || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		return *p
	}
	return err
}

// netReader reads from the connection. Every byte extends the deadline.
type netReader struct{ s *stream }

func (r netReader) Read(p []byte) (int, error) {
	s := r.s
	for {
		var limit time.Time
		if !s.noDeadline {
			limit = time.Now().Add(s.stall)
		}
		if err := s.conn.SetReadDeadline(limit); err != nil {
			return 0, s.reason(err)
		}
		n, err := s.conn.Read(p)
		if n > 0 {
			s.lastReceived.Store(sinceStart())
			s.received.Add(int64(n))
			return n, nil
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			return 0, s.reason(fmt.Errorf("nothing was received for %v: %w", s.stall, err))
		case errors.Is(err, io.EOF):
			return 0, s.reason(fmt.Errorf("the other end closed the connection: %w", io.ErrUnexpectedEOF))
		default:
			return 0, s.reason(err)
		}
	}
}

// silence returns how long nothing has been received.
func (s *stream) silence() time.Duration {
	return time.Duration(sinceStart() - s.lastReceived.Load())
}

// write sends all of bufs. The lock is held.
func (s *stream) write(bufs net.Buffers) error {
	began := time.Now()
	defer func() {
		now := time.Now()
		s.transfer.Add(int64(now.Sub(began)))
		s.lastSent.Store(sinceStart())
	}()
	for len(bufs) > 0 {
		if err := s.conn.SetWriteDeadline(time.Now().Add(s.stall)); err != nil {
			return s.reason(err)
		}
		n, err := bufs.WriteTo(s.conn)
		s.sent.Add(n)
		if errors.Is(err, os.ErrDeadlineExceeded) && (n > 0 || s.silence() < s.stall) {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("the other end took nothing for %v: %w", s.stall, err)
		}
		if err != nil {
			return s.reason(err)
		}
	}
	return nil
}

// frame sends a frame, and then raw bytes.
func (s *stream) frame(kind uint32, payload []byte, raw ...[]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frameLocked(kind, payload, raw...)
}

func (s *stream) frameLocked(kind uint32, payload []byte, raw ...[]byte) error {
	if s.ended {
		return s.reason(errors.New("the stream has ended"))
	}
	if len(payload) > maxPayload {
		return fmt.Errorf("a frame of %d bytes", len(payload))
	}
	h := frameHeader{kind: kind, number: s.next, size: len(payload), digest: mem.Digest(payload)}
	s.next++
	bufs := make(net.Buffers, 0, 2+len(raw))
	bufs = append(bufs, h.encode())
	if len(payload) > 0 {
		bufs = append(bufs, payload)
	}
	return s.write(append(bufs, raw...))
}

// last sends the last frame.
func (s *stream) last(kind uint32, payload []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.frameLocked(kind, payload)
	s.ended = true
	return err
}

// sendFailure tells the other end why this one gives up.
func (s *stream) sendFailure(why error) error {
	text := why.Error()
	return s.last(frameFail, []byte(text[:min(len(text), 64<<10)]))
}

func (s *stream) frameJSON(kind uint32, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.frame(kind, text)
}

// keepAlive sends a ping from time to time, if nothing else is sent and alive
// returns true, until stop is closed.
func (s *stream) keepAlive(stop <-chan struct{}, alive func() bool) {
	every := max(s.stall/4, time.Millisecond)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
		}
		if !alive() || time.Duration(sinceStart()-s.lastSent.Load()) < every/2 || !s.mu.TryLock() {
			continue
		}
		if !s.ended {
			s.frameLocked(framePing, nil) // the next frame reports an error
		}
		s.mu.Unlock()
	}
}

// await reads the next frame that is not a ping. The payload is valid until the
// next call.
func (s *stream) await() (kind uint32, payload []byte, err error) {
	for {
		if kind, payload, err = s.read(); err != nil || kind != framePing {
			return kind, payload, err
		}
	}
}

func (s *stream) read() (uint32, []byte, error) {
	var head [frameBytes]byte
	if err := s.full(head[:]); err != nil {
		return 0, nil, err
	}
	h, err := decodeFrame(head[:])
	if err == nil && h.number != s.number {
		err = fmt.Errorf("%w: frame %d instead of %d", ckpt.ErrCorrupt, h.number, s.number)
	}
	if err != nil {
		return 0, nil, err
	}
	s.number++
	if cap(s.payload) < h.size {
		s.payload = make([]byte, h.size)
	}
	p := s.payload[:h.size]
	if err := s.full(p); err != nil {
		return 0, nil, err
	}
	if mem.Digest(p) != h.digest {
		return 0, nil, fmt.Errorf("%w: frame %d does not match its digest", ckpt.ErrCorrupt, h.number)
	}
	return h.kind, p, nil
}

// full reads all of p.
func (s *stream) full(p []byte) error {
	_, err := io.ReadFull(s.in, p)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}
