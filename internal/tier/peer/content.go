package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/copies"
	"github.com/cairnrun/cairn/internal/tier/erasure"
	"github.com/cairnrun/cairn/internal/tier/kept"
)

// chunkSize is how many bytes are sent at a time.
const chunkSize = 256 << 10

// chunker collects bytes from an offset on into chunks. The last one is sent by
// flush, when all bytes are known to be right.
type chunker struct {
	ctx  context.Context
	l    *tier.Limiter // nil: no bound
	skip int64
	buf  tier.Chunk
	n    int
	emit func(buf tier.Chunk, n int) error
}

func (c *chunker) Write(p []byte) (int, error) {
	n := len(p)
	skip := min(c.skip, int64(n))
	c.skip -= skip
	p = p[skip:]
	for len(p) > 0 {
		if c.n == len(c.buf.Data()) {
			if err := c.flush(); err != nil {
				return 0, err
			}
		}
		k := copy(c.buf.Data()[c.n:], p)
		c.n += k
		p = p[k:]
	}
	return n, c.ctx.Err()
}

func (c *chunker) flush() error {
	if c.n == 0 {
		return nil
	}
	if c.l != nil {
		if err := c.l.Wait(c.ctx, c.n); err != nil {
			return err
		}
	}
	n := c.n
	c.n = 0
	return c.emit(c.buf, n)
}

// readObject passes the bytes of a copy, or of a shard of an object that is
// here, to emit, from an offset on. If the object is damaged, it is not used
// any more, the last chunk is not passed, and the error is tier.ErrDamaged.
func (s *Service) readObject(ctx context.Context, id copies.ID, size, offset int64, l *tier.Limiter, emit func(tier.Chunk, int) error) error {
	total, err := kept.FileSize(id, size)
	if err != nil {
		return err
	}
	if offset > total {
		return fmt.Errorf("%s has %d bytes, and is wanted from %d on", id, total, offset)
	}
	if offset == total {
		return nil
	}
	whole := copies.ID{Object: id.Object}
	f, n, err := s.o.Kept.OpenFile(whole)
	if err != nil {
		return err
	}
	defer f.Close()
	digest, err := kept.DigestOf(id.Object)
	if err != nil {
		return err
	}
	w := &chunker{ctx: ctx, l: l, skip: offset, buf: tier.NewChunk(min(chunkSize, total-offset)), emit: emit}
	switch {
	case n != size:
		err = fmt.Errorf("%w: it has %d bytes, not %d", tier.ErrDamaged, n, size)
	case id.Data > 0:
		to := make([]io.Writer, id.Data+id.Parity)
		to[id.Shard] = w
		err = erasure.Encode(erasure.Source{ReaderAt: f, Size: size, Digest: erasure.Digest(digest), Check: true}, erasure.Code{Data: id.Data, Parity: id.Parity}, to)
		if errors.Is(err, erasure.ErrSource) {
			err = fmt.Errorf("%w: %w", tier.ErrDamaged, err)
		}
	default:
		var d tier.Digester
		err = tier.Copy(ctx, io.MultiWriter(&d, w), io.NewSectionReader(f, 0, size), size)
		if err == nil && d.Digest() != digest {
			err = fmt.Errorf("%w: its digest is %s", tier.ErrDamaged, d.Digest())
		}
	}
	if errors.Is(err, tier.ErrDamaged) {
		err = fmt.Errorf("%s: %w", whole, err)
		s.o.Kept.Damaged(whole, err)
	}
	if err != nil {
		return err
	}
	return w.flush()
}

// serveFetch answers requests for objects.
func (s *Service) serveFetch(conn net.Conn, c *control.Conn, m *control.GetObject) {
	verified := map[copies.ID]bool{}
	for {
		id := copies.ID{Object: m.Object, Shard: m.Shard, Data: m.Data, Parity: m.Parity}
		emit := func(buf tier.Chunk, n int) error {
			conn.SetDeadline(time.Now().Add(idleTime))
			if err := c.Send(&control.PeerBytes{Bytes: n}); err != nil {
				return brokenConn{err}
			}
			if err := buf.Send(conn, n); err != nil {
				return brokenConn{err}
			}
			return nil
		}
		if err := s.answer(id, m.Offset, m.Bytes, verified, emit); err != nil {
			if errors.As(err, new(brokenConn)) {
				return
			}
			if errors.Is(err, tier.ErrDamaged) {
				s.rotten(kept.Rotten{ID: id, Err: err})
			}
			conn.SetDeadline(time.Now().Add(idleTime))
			if c.Send(errorOf(0, err)) != nil {
				return
			}
		}
		conn.SetDeadline(time.Now().Add(idleTime))
		next, err := c.Recv()
		if err != nil {
			return
		}
		var ok bool
		if m, ok = next.(*control.GetObject); !ok {
			return
		}
	}
}

// brokenConn is an error of the connection itself.
type brokenConn struct{ error }

// answer sends bytes of a copy, up to its end, or of a shard. A shard is
// checked before the first bytes of it are sent.
func (s *Service) answer(id copies.ID, offset, bytes int64, verified map[copies.ID]bool, emit func(tier.Chunk, int) error) error {
	f, size, err := s.o.Kept.OpenFile(id)
	if err != nil {
		return err
	}
	defer f.Close()
	if offset > size || bytes > size-offset || id.Data == 0 && bytes != size-offset {
		return fmt.Errorf("%s: %w: it has %d bytes; the request is for %d from %d on", id, errSize, size, bytes, offset)
	}
	if id.Data == 0 {
		return s.readObject(s.ctx, id, size, offset, nil, emit)
	}
	if !verified[id] {
		if err := s.o.Kept.Verify(s.ctx, id, nil); err != nil {
			return err
		}
		verified[id] = true
	}
	w := &chunker{ctx: s.ctx, buf: tier.NewChunk(min(chunkSize, bytes)), emit: emit}
	if err := tier.Copy(s.ctx, w, io.NewSectionReader(f, offset, bytes), bytes); err != nil {
		return err
	}
	return w.flush()
}

var errSize = errors.New("its size differs")
