package p2p

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/cairnrun/cairn/internal/transport"
)

// Migration: other processes take over ranks. All ranks are paused at one
// point, with nothing in flight. They continue when the links to the
// destinations are made:
//
//	            source          other rank                      destination
//	Detach          ── Pause ──────▶
//	              ◀────── Pause ──     the link is still there
//	            Counters ──────────────────────────────────▶ SetCounters, RestoreInflight
//	either      Reattach            Reattach       the old link is used again
//	or          is killed         Relink ────────────────▶ Relink

// partners returns the ranks whose links to this one end when some ranks move.
// The lock is held.
func (e *Engine) partners(moving []int) []int {
	if slices.Contains(moving, e.rank) || e.unconnected {
		return e.others()
	}
	var list []int
	for _, i := range moving {
		if i >= 0 && i < e.size && !slices.Contains(list, i) {
			list = append(list, i)
		}
	}
	return list
}

// Detach detaches this rank from ranks that move or, in one of them, from all
// others. When it returns, nothing is in flight between them, and control
// messages for them wait. All ranks call it, paused, with no message in flight.
// The links stay open: Reattach or Relink must follow. If one of these ranks is
// lost meanwhile, Reattach reports it. The lock is held.
func (e *Engine) Detach(ctx context.Context, moving []int) error {
	if e.unconnected {
		return ErrNotConnected
	}
	list := e.partners(moving)
	for _, i := range list {
		if e.peers[i].ended {
			return fmt.Errorf("%w: rank %d, so ranks cannot be moved any more", ErrEnded, i)
		}
		if e.peers[i].muted {
			return fmt.Errorf("cannot move ranks %v: rank %d has already detached from rank %d", moving, e.rank, i)
		}
	}
	if err := e.exchangeDetach(ctx, list); err != nil {
		return fmt.Errorf("rank %d cannot detach from ranks that move: %w", e.rank, err)
	}
	return nil
}

// Reattach cancels a move: links that Detach left are used again. If Detach was
// not called, or failed, it does what is left to do. The lock is held.
func (e *Engine) Reattach(moving []int) {
	for _, i := range e.partners(moving) {
		p := &e.peers[i]
		if !p.muted || p.link == nil {
			continue
		}
		e.head = frame{kind: kindReattach, seq: p.detaches}
		e.emit(i, nil, nil)
		e.unmute(i)
		if err := p.gone; err != nil {
			p.gone = nil
			e.lost(i, err)
		}
	}
	e.sleep.broadcast()
}

// Relink connects this rank with the processes that have taken over the ranks
// in moving. endpoints, indexed by rank, has the endpoints of these processes.
// Such a process itself connects with all ranks, and needs the endpoints of
// all. moving is the same on all ranks. Relink drops the old links to these
// ranks, and sends what waited for them. The lock is not held, and nothing is
// sent to these ranks meanwhile.
func (e *Engine) Relink(ctx context.Context, moving []int, endpoints [][]byte) (err error) {
	if e.size == 1 {
		return nil
	}
	if runtime.GOOS != "linux" {
		return errSystem
	}
	defer func() {
		if err != nil {
			e.Fail(err) // these ranks cannot be reached
		}
	}()
	read, err := e.readEndpoints(endpoints)
	if err != nil {
		return err
	}
	e.lock()
	if !e.unconnected && slices.Contains(moving, e.rank) {
		e.mu.Unlock()
		return fmt.Errorf("rank %d has moved to another process", e.rank)
	}
	list := e.partners(moving)
	for _, i := range list {
		if read[i].Size == 0 {
			e.mu.Unlock()
			return fmt.Errorf("rank %d needs the endpoint of rank %d to connect with it", e.rank, i)
		}
		if e.peers[i].ended {
			e.mu.Unlock()
			return fmt.Errorf("%w: rank %d, before it was moved", ErrEnded, i)
		}
	}
	idle := e.dropLinks(list)
	e.mu.Unlock()
	var errs []error
	for _, l := range idle {
		if err := l.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.driver.Name(), err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	again, err := e.join(ctx, read, moving)
	if err != nil {
		return err
	}
	if err := e.connect(ctx, e.endpoints, append(list, again...), nil); err != nil {
		return err
	}
	e.lock()
	defer e.mu.Unlock()
	e.unconnected = false
	return e.err
}

// join lets destinations join transports that cannot connect with them
// otherwise. It closes the links of such a transport first, and returns the
// ranks that these links served, which must be connected again.
func (e *Engine) join(ctx context.Context, read []endpoint, moving []int) (again []int, err error) {
	e.lock()
	e.settle(read)
	drivers := slices.Clone(e.cfg.Drivers)
	e.mu.Unlock()
	slices.SortFunc(drivers, func(a, b transport.Driver) int { return cmp.Compare(a.Name(), b.Name()) }) // as in connect
	for _, d := range drivers {
		j, ok := d.(transport.Joiner)
		if !ok {
			continue
		}
		endpoints := make([][]byte, e.size)
		for i := range endpoints {
			endpoints[i] = e.endpoints[i].Addresses[d.Name()]
		}
		endpoints[e.rank] = d.Address()
		if !j.Joins(endpoints, moving) || e.dispensable(d) {
			continue
		}
		if err := func() error {
			e.lock()
			defer e.mu.Unlock()
			var to []int
			for i := range e.peers {
				if slices.ContainsFunc(e.links, func(l link) bool { return l.driver == d && e.peers[i].link == l.Link }) {
					to = append(to, i)
				}
			}
			again = append(again, to...)
			return e.closeLinks(ctx, to, func(l link) bool { return l.driver == d })
		}(); err != nil {
			return nil, err
		}
		c, cancel := context.WithTimeout(ctx, connectTime)
		err := j.Join(c, endpoints, moving)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.Name(), err)
		}
	}
	return again, nil
}

// dispensable reports whether no pair of ranks uses a transport, because all
// prefer another one that connects this rank with all others. All ranks get the
// same result, because a transport that connects one rank with all connects all
// pairs.
func (e *Engine) dispensable(d transport.Driver) bool {
	e.lock()
	defer e.mu.Unlock()
	mine := e.endpoint()
	for _, o := range e.cfg.Drivers {
		if slices.ContainsFunc(e.others(), func(i int) bool {
			theirs := &e.endpoints[i]
			return !theirs.prefers(o, d) || !o.Reaches(theirs.Addresses[o.Name()])
		}) || !mine.prefers(o, d) {
			continue
		}
		return true
	}
	return false
}

// prefers reports whether a rank has a transport and prefers it to another one.
func (c *endpoint) prefers(o, than transport.Driver) bool {
	i, j := slices.Index(c.Transports, o.Name()), slices.Index(c.Transports, than.Name())
	return i >= 0 && c.Addresses[o.Name()] != nil && (j < 0 || i < j)
}

// Reaches returns an error unless Relink would find a transport to each rank
// that has an endpoint. The lock is not held.
func (e *Engine) Reaches(endpoints [][]byte) error {
	read, err := e.readEndpoints(endpoints)
	if err != nil {
		return err
	}
	e.lock()
	defer e.mu.Unlock()
	mine := e.endpoint()
	for i := range read {
		if read[i].Size == 0 || i == e.rank {
			continue
		}
		if _, err := e.route(&mine, &read[i]); err != nil {
			return err
		}
	}
	return nil
}

// dropLinks drops the links to ranks, and returns those that serve no rank any
// more, which the caller closes. The lock is held.
func (e *Engine) dropLinks(list []int) (idle []link) {
	for _, i := range list {
		p := &e.peers[i]
		p.muted = true // until there is a new link
		if l := p.link; l != nil {
			p.link, p.puller = nil, nil
			l.Drop(i)
		}
		p.gone, p.incoming, p.into = nil, nil, nil
	}
	e.links = slices.DeleteFunc(e.links, func(l link) bool {
		if slices.ContainsFunc(e.peers, func(p peer) bool { return p.link == l.Link }) {
			return false
		}
		idle = append(idle, l)
		return true
	})
	e.sleep.wake()
	return idle
}

// Counters is what an engine needs to continue from that of another process,
// besides the messages of Capture(false).
type Counters struct {
	Epoch    uint32   // checkpoints that were taken
	Contexts uint32   // the next free context
	Sent     []uint64 // messages, by rank
	Received []uint64
	Taken    []uint64
	Restored []bool // for each message of Capture: it is from before a restart
}

// Counters returns this engine's counters. Nothing is in flight. The lock is
// held.
func (e *Engine) Counters() Counters {
	l := Counters{Epoch: e.epoch, Contexts: e.contexts}
	for i := range e.peers {
		p := &e.peers[i]
		l.Sent, l.Received, l.Taken = append(l.Sent, p.sent), append(l.Received, p.received), append(l.Taken, p.taken)
	}
	for _, m := range e.waiting(false) {
		l.Restored = append(l.Restored, m.restored)
	}
	return l
}

// SetCounters makes an unconnected engine continue from another one's counters.
// RestoreInflight adds the messages after it, before Relink. The lock is not
// held.
func (e *Engine) SetCounters(l Counters) error {
	e.lock()
	defer e.mu.Unlock()
	if len(e.links) > 0 {
		return errors.New("this rank is already connected and counts its own messages")
	}
	if err := e.endReplay(); err != nil {
		return err
	}
	if len(l.Sent) != e.size || len(l.Received) != e.size || len(l.Taken) != e.size {
		return fmt.Errorf("counters of %d, %d and %d ranks in a run of %d ranks", len(l.Sent), len(l.Received), len(l.Taken), e.size)
	}
	for i := range e.peers {
		if l.Taken[i] > l.Received[i] && i != e.rank {
			return fmt.Errorf("the program received %d messages of rank %d, but only %d came", l.Taken[i], i, l.Received[i])
		}
	}
	e.epoch, e.contexts, e.restoredFlags = l.Epoch, max(l.Contexts, e.contexts), slices.Clone(l.Restored)
	for i := range e.peers {
		p := &e.peers[i]
		p.sent, p.received, p.taken = l.Sent[i], l.Received[i], l.Taken[i]
	}
	return nil
}
