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
	maxUnproven  = 256             // maximum number of connections without a proof
	maxDialing   = 64              // maximum number of simultaneous dial attempts
	helloTimeout = 5 * time.Second // until the other side must have sent its proof
	dialTimeout  = 3 * time.Second // until the other side must have answered
	firstRetry   = 5 * time.Millisecond
	lastRetry    = 250 * time.Millisecond
)

// join is the state of one Connect.
type join struct {
	d     *Driver
	peers []*address
	wg    sync.WaitGroup

	mu       sync.Mutex
	conns    []*net.TCPConn // by rank
	why      []error        // the last failure, by rank
	missing  int
	over     bool
	unproven []*net.TCPConn // accepted connections without a proof, oldest first
	done     chan struct{}  // closed when all peers are connected
}

// join connects all peers. If ctx ends before that, the error names the missing
// peers.
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
	d.ln.SetDeadline(time.Unix(1, 0)) // this ends accept
	j.wg.Wait()
	return j.conns, err
}

// end stops the accepting and dialing. If peers are missing, it closes
// everything and returns an error that names them.
func (j *join) end(ctx context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.over = true
	for _, c := range j.unproven {
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

// accept accepts connections until the listener's deadline is set.
func (j *join) accept(ctx context.Context) {
	for {
		c, err := j.d.ln.AcceptTCP()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			select { // for example, too many open files
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
		if len(j.unproven) >= maxUnproven {
			// A rank sends its proof within milliseconds, and tries again if
			// its connection is closed. So the connection that has waited
			// longest is not from a rank.
			j.unproven[0].Close()
			j.unproven = slices.Delete(j.unproven, 0, 1)
		}
		j.unproven = append(j.unproven, c)
		j.mu.Unlock()
		j.wg.Go(func() { j.welcome(c) })
	}
}

// welcome admits a peer that proves that it knows the secret, and closes all
// other connections.
func (j *join) welcome(c *net.TCPConn) {
	c.SetDeadline(time.Now().Add(helloTimeout))
	rank, id, err := receive(c, j.d.opts.Secret, &j.d.me)
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := slices.Index(j.unproven, c); i >= 0 {
		j.unproven = slices.Delete(j.unproven, i, i+1)
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

// keep keeps a connection that comes too early, or from a process that was
// replaced. A later Connect may name its identity. It gets no verdict before
// that.
func (d *Driver) keep(id identity, c *net.TCPConn) {
	c.SetDeadline(time.Time{})
	if old := d.unclaimed[id]; old != nil {
		old.Close()
	}
	d.unclaimed[id] = c
}

// recall admits peers that came too early.
func (j *join) recall() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, c := range j.d.unclaimed {
		rank := slices.IndexFunc(j.peers, func(p *address) bool { return p != nil && p.id == id })
		switch {
		case !alive(c):
			c.Close()
			delete(j.d.unclaimed, id)
		case rank >= 0:
			delete(j.d.unclaimed, id)
			j.admit(rank, c)
		}
	}
}

// admit gives a connection its verdict. The caller holds j.mu.
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

// put keeps a connection. The caller holds j.mu.
func (j *join) put(rank int, c *net.TCPConn) {
	c.SetDeadline(time.Time{})
	if old := j.conns[rank]; old != nil {
		old.Close() // it is dead: the peer has dialed again
		j.conns[rank] = c
		return
	}
	j.conns[rank] = c
	if j.missing--; j.missing == 0 {
		close(j.done)
	}
}

// alive reports whether the other side of a connection still has it open.
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

// dial tries the addresses of a peer in turn, repeatedly.
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
				j.why[rank] = err // an earlier error says more than a timeout
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

// call makes one connection and performs the handshake.
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
		// From here on, the peer may consider the connection made. If this side
		// gave up now, the peer would keep a dead connection.
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
