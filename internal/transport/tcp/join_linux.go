package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxHalfOpen  = 256             // connections that have not shown the secret yet
	maxDialing   = 64              // attempts at a time
	helloTimeout = 5 * time.Second // until the other side has shown the secret
	dialTimeout  = 3 * time.Second // until it answers at all
	firstRetry   = 5 * time.Millisecond
	lastRetry    = 250 * time.Millisecond
)

// join is the making of all connections of a link.
type join struct {
	d     *Driver
	peers []*address
	wg    sync.WaitGroup

	mu      sync.Mutex
	conns   []*net.TCPConn // by rank
	why     []error        // the last failure, by rank
	missing int
	over    bool
	half    []*net.TCPConn // accepted and not proven yet, the oldest first
	done    chan struct{}  // closed when nothing is missing
}

// join connects all peers, or returns an error that names those it could
// not connect when ctx ends.
func (d *Driver) join(ctx context.Context, peers []*address) ([]*net.TCPConn, error) {
	j := &join{
		d: d, peers: peers,
		conns: make([]*net.TCPConn, len(peers)),
		why:   make([]error, len(peers)),
		done:  make(chan struct{}),
	}
	accepts := false
	for rank, p := range peers {
		if p != nil {
			j.missing++
			accepts = accepts || rank > d.opts.Rank
		}
	}
	if j.missing == 0 {
		return j.conns, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if accepts {
		j.recall()
		d.ln.SetDeadline(time.Time{})
		j.wg.Go(func() { j.accept(ctx) })
	}
	slots := make(chan struct{}, maxDialing)
	for rank, p := range peers[:min(len(peers), d.opts.Rank)] {
		if p != nil {
			j.wg.Go(func() { j.dial(ctx, rank, slots) })
		}
	}
	select {
	case <-j.done:
	case <-ctx.Done():
	}
	err := j.end(ctx)
	cancel()
	d.ln.SetDeadline(time.Unix(1, 0)) // ends accept
	j.wg.Wait()
	return j.conns, err
}

// end stops the joining. If something is missing it closes everything and
// says what.
func (j *join) end(ctx context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.over = true
	for _, c := range j.half {
		c.Close()
	}
	if j.missing == 0 {
		return nil
	}
	var says []string
	for rank, p := range j.peers {
		switch {
		case p == nil:
		case j.conns[rank] != nil:
			j.conns[rank].Close()
		case len(says) == 8:
			says = append(says, "…")
		case len(says) > 8:
		case rank > j.d.opts.Rank:
			says = append(says, fmt.Sprintf("rank %d on %s did not call", rank, p.host))
		default:
			reason := j.why[rank]
			if reason == nil {
				reason = errors.New("no answer yet")
			}
			says = append(says, fmt.Sprintf("rank %d on %s (%s): %v", rank, p.host, describe(targets(&j.d.me, p)), reason))
		}
	}
	return fmt.Errorf("%w to %s: %s: %w", ErrNotConnected, plural(j.missing, "peer"), strings.Join(says, "; "), context.Cause(ctx))
}

// accept takes connections until the listener's deadline is set.
func (j *join) accept(ctx context.Context) {
	for {
		c, err := j.d.ln.AcceptTCP()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			select { // too many open files, or the like
			case <-ctx.Done():
				return
			case <-time.After(firstRetry):
			}
			continue
		}
		j.mu.Lock()
		if j.over {
			c.Close()
			j.mu.Unlock()
			return
		}
		if len(j.half) >= maxHalfOpen {
			// A rank shows the secret within milliseconds and tries
			// again if it is cut off; who has waited longest is not
			// one.
			j.half[0].Close()
			j.half = slices.Delete(j.half, 0, 1)
		}
		j.half = append(j.half, c)
		j.mu.Unlock()
		j.wg.Go(func() { j.welcome(c) })
	}
}

// welcome lets a peer in that shows the secret, and closes the connection
// of anybody else.
func (j *join) welcome(c *net.TCPConn) {
	c.SetDeadline(time.Now().Add(helloTimeout))
	rank, id, err := receive(c, j.d.opts.Secret, &j.d.me)
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := slices.Index(j.half, c); i >= 0 {
		j.half = slices.Delete(j.half, i, i+1)
	}
	switch {
	case err != nil || j.over:
		c.Close()
	case rank >= len(j.peers) || j.peers[rank] == nil || j.peers[rank].id != id:
		j.d.keep(id, c)
	default:
		j.admit(rank, c)
	}
}

// keep keeps a connection that comes too early, or is of a process that was
// replaced: a later Connect may name who it is. It gets no verdict before that.
func (d *Driver) keep(id identity, c *net.TCPConn) {
	c.SetDeadline(time.Time{})
	if old := d.early[id]; old != nil {
		old.Close()
	}
	d.early[id] = c
}

// recall admits peers that came too early.
func (j *join) recall() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, c := range j.d.early {
		rank := slices.IndexFunc(j.peers, func(p *address) bool { return p != nil && p.id == id })
		switch {
		case !alive(c):
			c.Close()
			delete(j.d.early, id)
		case rank >= 0:
			delete(j.d.early, id)
			j.admit(rank, c)
		}
	}
}

// admit gives a connection its verdict. j.mu is held.
func (j *join) admit(rank int, c *net.TCPConn) {
	if old := j.conns[rank]; old != nil && alive(old) {
		c.Write([]byte{duplicate})
		c.Close()
		return
	}
	if _, err := c.Write([]byte{welcome}); err != nil {
		c.Close()
		return
	}
	j.put(rank, c)
}

// put keeps a connection. j.mu is held.
func (j *join) put(rank int, c *net.TCPConn) {
	c.SetDeadline(time.Time{})
	if old := j.conns[rank]; old != nil {
		old.Close() // dead: the peer called again
		j.conns[rank] = c
		return
	}
	j.conns[rank] = c
	if j.missing--; j.missing == 0 {
		close(j.done)
	}
}

// alive reports whether the other side of a connection still holds it.
func alive(c *net.TCPConn) bool {
	ok := false
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			var b [1]byte
			n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			ok = n > 0 || err == unix.EAGAIN || err == unix.EINTR
		})
	}
	return ok
}

// dial tries the addresses of a peer in turn, again and again.
func (j *join) dial(ctx context.Context, rank int, slots chan struct{}) {
	at := targets(&j.d.me, j.peers[rank])
	if len(at) == 0 {
		return
	}
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		for _, a := range at {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			c, err := j.call(ctx, rank, a)
			<-slots
			j.mu.Lock()
			if err == nil && !j.over {
				j.put(rank, c)
			} else if err == nil {
				c.Close()
			} else if timeout := net.Error(nil); j.why[rank] == nil || !errors.As(err, &timeout) || !timeout.Timeout() {
				j.why[rank] = err // a timeout says less than what was seen before it
			}
			over := j.over || err == nil
			j.mu.Unlock()
			if over {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// call makes one connection and shows the secret on it.
func (j *join) call(ctx context.Context, rank int, at netip.AddrPort) (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: -1}
	conn, err := dialer.DialContext(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	c := conn.(*net.TCPConn)
	c.SetDeadline(time.Now().Add(helloTimeout))
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	p := pair{dialer: j.d.opts.Rank, acceptor: rank, size: j.d.opts.Size, from: j.d.me.id, to: j.peers[rank].id}
	err = greet(c, j.d.opts.Secret, p, func() {
		// From here on the peer may count us as connected: giving up
		// would leave it with a dead connection.
		c.SetDeadline(time.Time{})
		if ctx.Err() != nil {
			c.SetDeadline(time.Unix(1, 0))
		}
	})
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return c, nil
}
