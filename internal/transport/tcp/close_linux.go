package tcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var (
	errClosed  = errors.New("the peer closed the connection")
	errDropped = errors.New("the rank has moved to another process")
	errGarbled = errors.New("the stream is damaged")
)

// closeGrace is how long Close waits for a peer that does not read. After that,
// the kernel alone continues to send.
const closeGrace = time.Second

// drain sends what is queued, until ctx ends. Then it waits a little until the
// peers' kernels have acknowledged everything. A closed socket answers received
// data with a reset, and the reset would discard data that the peer's kernel
// does not have yet. For the same reason, drain reads and drops what arrives.
func (l *link) drain(ctx context.Context) error {
	open := slices.Clone(l.live)
	var grace time.Time // end of the grace period, set when nothing is queued any more
	for wait := time.Duration(0); ; wait = min(wait+100*time.Microsecond, 2*time.Millisecond) {
		still, queued := open[:0], false
		for _, c := range open {
			if !c.drained(l.buf) {
				still = append(still, c)
				queued = queued || c.first < len(c.queue)
			}
		}
		open = still
		switch now := time.Now(); {
		case len(open) == 0:
			return nil
		case queued:
		case grace.IsZero():
			grace = now.Add(closeGrace)
		case now.After(grace) || ctx.Err() != nil:
			return nil
		}
		if ctx.Err() != nil && queued {
			break
		}
		time.Sleep(wait)
	}
	var says []string
	for _, c := range open {
		if c.first < len(c.queue) {
			says = append(says, strconv.Itoa(c.peer))
		}
	}
	return fmt.Errorf("tcp: rank %d: closed before all was sent to rank %s: %w", l.d.opts.Rank, strings.Join(says, ", "), context.Cause(ctx))
}

// drained continues to send, and reports whether the peer has everything or is
// gone.
func (c *conn) drained(scrap []byte) bool {
	for c.first < len(c.queue) && c.broken == nil {
		it := &c.queue[c.first]
		b := it.payload[max(0, c.off-frameHead):]
		if c.off < frameHead {
			b = it.head[c.off:]
		}
		if len(b) > 0 {
			n, err := unix.Write(c.fd, b)
			if err == unix.EAGAIN || err == unix.EINTR {
				break
			}
			if err != nil {
				c.broken = err
				break
			}
			c.off += n
		}
		if c.off == it.size() {
			c.first++
			c.off = 0
		}
	}
	for range 64 {
		n, errno := read(c.fd, scrap)
		if errno == unix.EAGAIN {
			break
		}
		if errno != 0 || n == 0 {
			return true // the peer is gone
		}
	}
	if c.first < len(c.queue) && c.broken == nil {
		return false
	}
	left, err := unix.IoctlGetInt(c.fd, unix.SIOCOUTQ)
	return err != nil || left == 0
}
