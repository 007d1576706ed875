// Package peer copies objects of checkpoints between the helpers of a run's
// hosts. It drives package copies, which decides what is copied where, over TCP
// connections and over package kept, which has the files.
//
// Between two hosts there is one connection, which begins with the handshake of
// package control. The host with the lower name connects. Then both send
// PeerMessage, which carries messages of package copies, and PeerBytes, each
// before a chunk of an object:
//
//	owner                                  holder
//	  PeerMessage{Offer}              →
//	                                  ←    PeerMessage{Want}, Transfer 5, Offset 0
//	  PeerBytes{Transfer 5}, chunk    →    writes it
//	  …                                    digest compared, file and name durable
//	                                  ←    PeerMessage{Stored}
//
// If the connection breaks, the holder keeps what has come, and its next Want
// says from which offset it needs the rest. A number identifies each transfer,
// so bytes of one that was given up are not taken for those of another. The
// sender checks what it reads against the digest in the object's name, and
// sends the last chunk only if it is right; the holder checks again.
//
// Fetch uses connections of its own, with GetObject and PeerBytes.
//
// Memory is bounded: one chunk per transfer and per connection, and a few
// stripes where shards are made.
package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/copies"
	"github.com/cairnrun/cairn/internal/tier/kept"
	"github.com/cairnrun/cairn/internal/tier/recovery"
)

// Options say who a Service is.
type Options struct {
	Self   string // this host
	Kept   *kept.Store
	Secret []byte // of the supervisor
	// Rates bounds the bytes per second that are sent for a tier; 0: no bound.
	Rates map[copies.Tier]int64
	// These are called one at a time. They may call the Service.
	Report  func(copies.Report)
	Trouble func(copies.Trouble)
	Rotten  func(kept.Rotten)

	wrap  func(host string, conn net.Conn) net.Conn // for tests: a connection that fails
	pause time.Duration                             // for tests: the first pause before something is tried again
}

// Host is another host, and where its Service can be reached.
type Host struct {
	Name      string
	Addresses []string
}

// These bound the pauses before something is tried again, which double.
const (
	firstDial, maxDial   = 100 * time.Millisecond, 5 * time.Second
	firstAgain, maxAgain = time.Second, 5 * time.Minute
	idleTime             = 2 * time.Minute // after that, a peer that takes nothing is gone
	maxMessage           = 1 << 20
)

// Service is a host's side of copying. Its methods may be called concurrently.
type Service struct {
	o      Options
	secret []byte
	limits map[copies.Tier]*tier.Limiter
	port   *control.Listener
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	node      *copies.Node
	links     map[string]*link
	hosts     map[string]*remote
	expects   map[copies.ID]*expect
	transfers map[uint64]*expect
	number    uint64 // of the last transfer
	later     *time.Timer
	pause     time.Duration // before the next Again
	events    []any
	wake      chan struct{} // there are events
}

// remote is a host that SetPeers named.
type remote struct {
	addresses []string
	stop      context.CancelFunc // ends connecting to it; nil: it connects to this host
}

// expect is something that is being received.
type expect struct {
	id     copies.ID
	from   string
	number uint64

	mu       sync.Mutex // taken after Service.mu
	in       *kept.Incoming
	complete bool // all bytes are there, and are being made durable
	ended    bool
}

// Serve begins to copy. Close, or the end of ctx, ends it.
func Serve(ctx context.Context, o Options) (*Service, error) {
	if o.Self == "" || len(o.Self) > 255 {
		return nil, fmt.Errorf("%.300q is no name of a host", o.Self)
	}
	s := &Service{o: o, secret: control.Derive(o.Secret, "copies"), limits: map[copies.Tier]*tier.Limiter{}, links: map[string]*link{}, hosts: map[string]*remote{},
		expects: map[copies.ID]*expect{}, transfers: map[uint64]*expect{}, wake: make(chan struct{}, 1)}
	for t, rate := range o.Rates {
		if rate > 0 {
			s.limits[t] = tier.NewLimiter(rate)
		}
	}
	s.o.pause = cmp.Or(s.o.pause, firstAgain)
	s.pause = s.o.pause
	ids, parts := o.Kept.Have()
	s.node = copies.New(copies.Config{Self: o.Self}, ids, parts)
	s.ctx, s.cancel = context.WithCancel(ctx)
	var err error
	if s.port, err = control.Listen(s.secret, s.accept); err != nil {
		s.cancel()
		return nil, err
	}
	s.work.Go(s.notify)
	context.AfterFunc(s.ctx, s.shut)
	return s, nil
}

// Addresses returns where other hosts reach the service, loopback last.
func (s *Service) Addresses() []string { return s.port.Addresses() }

// Close ends the service. It returns when nothing of it is at work.
func (s *Service) Close() {
	s.cancel()
	s.shut()
	s.port.Close()
	s.work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.expects {
		if s.forget(e) {
			e.in.Discard()
		}
	}
	s.o.Kept.Close()
}

// shut ends all connections.
func (s *Service) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, l := range s.links {
		l.close()
	}
	for _, r := range s.hosts {
		if r.stop != nil {
			r.stop()
		}
	}
	if s.later != nil {
		s.later.Stop()
	}
}

// SetPeers says which other hosts there are, and who holds for this one.
// Connections to hosts that are not there any more are ended.
func (s *Service) SetPeers(hosts []Host, view copies.View) {
	s.do(func() {
		for name, r := range s.hosts {
			if slices.ContainsFunc(hosts, func(h Host) bool { return h.Name == name && slices.Equal(h.Addresses, r.addresses) }) {
				continue
			}
			delete(s.hosts, name)
			if r.stop != nil {
				r.stop()
			}
			if l := s.links[name]; l != nil {
				s.drop(l)
			}
		}
		for _, h := range hosts {
			if h.Name == s.o.Self || s.hosts[h.Name] != nil {
				continue
			}
			r := &remote{addresses: slices.Clone(h.Addresses)}
			s.hosts[h.Name] = r
			if s.o.Self < h.Name {
				var ctx context.Context
				ctx, r.stop = context.WithCancel(s.ctx)
				s.work.Go(func() { s.connect(ctx, h) })
			}
		}
		s.node.SetView(view)
	})
}

// Keep says that a checkpoint is to be stored on a tier. parts are those of
// this host's ranks; the store has all their objects.
func (s *Service) Keep(t copies.Tier, parts []recovery.Part) error {
	for _, p := range parts {
		for _, o := range p.Objects {
			if !s.o.Kept.Has(copies.ID{Object: o.Name}) {
				return fmt.Errorf("checkpoint %d cannot be copied: %s: %w", p.Index, o.Name, tier.ErrNotExist)
			}
		}
		if err := s.o.Kept.StorePart(p); err != nil {
			return err
		}
	}
	s.do(func() { s.node.Keep(t, parts) })
	return nil
}

// Retain says which checkpoints each tier keeps. The rest is removed. Parts
// that were linked and not passed to Keep stay if they are newer than all of
// these: not all ranks may have committed them yet. If no tier keeps a
// checkpoint, all parts are removed.
func (s *Service) Retain(retain map[copies.Tier][]recovery.Checkpoint) {
	newest := uint64(0)
	retained := map[recovery.Checkpoint]bool{}
	for _, list := range retain {
		for _, c := range list {
			newest = max(newest, c.Index)
			retained[c] = true
		}
	}
	linked := s.o.Kept.Linked()
	s.do(func() {
		for _, p := range linked {
			if !retained[p.Checkpoint] && (newest == 0 || p.Index < newest) {
				s.node.Keep(copies.Local, []recovery.Part{p}) // so it is removed below
			}
		}
		s.node.Retain(retain)
	})
}

// Scrub reads all that the store has, and tells the other hosts, and found,
// what is damaged. The owners of what this host holds send it again; the caller
// has to fetch what this host's own ranks need.
func (s *Service) Scrub(ctx context.Context, found func(kept.Rotten)) error {
	return s.o.Kept.Scrub(ctx, func(r kept.Rotten) {
		s.rotten(r)
		found(r)
	})
}

// Verify reads something that the store has. If it is damaged, Verify tells the
// other hosts, as Scrub does.
func (s *Service) Verify(ctx context.Context, id copies.ID, l *tier.Limiter) error {
	err := s.o.Kept.Verify(ctx, id, l)
	if errors.Is(err, tier.ErrDamaged) {
		s.do(func() { s.node.Lost(id) })
	}
	return err
}

// Restored says that the store has something again.
func (s *Service) Restored(id copies.ID) { s.do(func() { s.written(id, nil) }) }

// rotten says that the store does not use something any more.
func (s *Service) rotten(r kept.Rotten) {
	s.do(func() {
		s.node.Lost(r.ID)
		s.event(r)
	})
}

// do calls f with the node locked, and carries the node's actions out.
func (s *Service) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	f()
	for {
		actions := s.node.Take()
		if len(actions) == 0 {
			return
		}
		s.carryOut(actions)
	}
}

func (s *Service) carryOut(actions []copies.Action) {
	var parts []copies.PartID
	var ids []copies.ID
	for i, a := range actions {
		switch a := a.(type) {
		case copies.RemovePart:
			parts = append(parts, a.ID)
		case copies.Remove:
			ids = append(ids, a.ID)
		case copies.Send:
			s.send(a)
		case copies.Transfer:
			s.transfer(a)
		case copies.Expect:
			s.expect(a)
		case copies.Abort:
			s.abort(a.ID)
		case copies.StorePart:
			s.node.PartWritten(copies.PartID{Checkpoint: a.Part.Checkpoint, Rank: a.Part.Rank}, s.o.Kept.StorePart(a.Part))
		case copies.Report:
			if a.Missing == 0 {
				s.pause = s.o.pause
			}
			s.event(a)
		case copies.Trouble:
			s.event(a)
		case copies.Later:
			s.tryLater()
		}
		// Removals are done before whatever follows them.
		last := i+1 == len(actions)
		if !last {
			switch actions[i+1].(type) {
			case copies.RemovePart, copies.Remove:
			default:
				last = true
			}
		}
		if last && len(parts)+len(ids) > 0 {
			if err := s.o.Kept.Remove(parts, ids); err != nil {
				s.event(copies.Trouble{Peer: s.o.Self, Why: err.Error()})
			}
			parts, ids = nil, nil
		}
	}
}

// tryLater calls Again after a pause.
func (s *Service) tryLater() {
	if s.later != nil {
		return
	}
	s.later = time.AfterFunc(s.pause, func() {
		s.do(func() {
			s.later = nil
			s.node.Again()
		})
	})
	s.pause = min(2*s.pause, maxAgain)
}

// event passes something to the caller's functions.
func (s *Service) event(e any) {
	s.events = append(s.events, e)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Service) notify() {
	for {
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
		s.mu.Lock()
		events := s.events
		s.events = nil
		s.mu.Unlock()
		for _, e := range events {
			switch e := e.(type) {
			case copies.Report:
				if s.o.Report != nil {
					s.o.Report(e)
				}
			case copies.Trouble:
				if s.o.Trouble != nil {
					s.o.Trouble(e)
				}
			case kept.Rotten:
				if s.o.Rotten != nil {
					s.o.Rotten(e)
				}
			}
		}
	}
}

// expect prepares to receive something.
func (s *Service) expect(a copies.Expect) {
	in, err := s.o.Kept.Receive(a.ID, a.Size)
	if err != nil {
		s.node.Written(a.ID, err)
		return
	}
	s.number++
	e := &expect{id: a.ID, from: a.From, number: s.number, in: in}
	s.expects[a.ID], s.transfers[e.number] = e, e
	if in.Left() == 0 { // it is empty, or all of it came before the connection broke
		e.complete = true
		s.commit(e)
	}
}

// forget ends the effect of an expect, and reports whether it is up to the
// caller to end what is being received.
func (s *Service) forget(e *expect) bool {
	if s.expects[e.id] == e {
		delete(s.expects, e.id)
	}
	delete(s.transfers, e.number)
	e.mu.Lock()
	defer e.mu.Unlock()
	mine := !e.complete && !e.ended
	e.ended = true
	return mine
}

// abort keeps what has come of something, for the next time.
func (s *Service) abort(id copies.ID) {
	if e := s.expects[id]; e != nil && s.forget(e) {
		e.in.Pause()
	}
}

// received writes bytes of a transfer. Those of one that has ended are ignored.
func (s *Service) received(from string, number uint64, data []byte) {
	s.mu.Lock()
	e := s.transfers[number]
	s.mu.Unlock()
	if e == nil || e.from != from {
		return
	}
	e.mu.Lock()
	if e.ended || e.complete {
		e.mu.Unlock()
		return
	}
	_, err := e.in.Write(data)
	e.complete = err == nil && e.in.Left() == 0
	complete := e.complete
	e.mu.Unlock()
	switch {
	case err != nil:
		s.failed(e, err)
	case complete:
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed {
			s.commit(e)
		}
	}
}

// failed gives something up that is being received.
func (s *Service) failed(e *expect, err error) {
	s.do(func() {
		current := s.expects[e.id] == e
		if s.forget(e) {
			e.in.Discard()
		}
		if current {
			s.node.Written(e.id, err)
		}
	})
}

// commit makes something durable that has come. The caller has locked the
// service.
func (s *Service) commit(e *expect) {
	s.work.Go(func() {
		err := e.in.Commit(s.ctx)
		s.do(func() {
			current := s.expects[e.id] == e
			s.forget(e)
			if current || err == nil {
				s.written(e.id, err)
			}
		})
	})
}

// written says that something is in the store, or why it is not. Another
// transfer of the same is not needed then.
func (s *Service) written(id copies.ID, err error) {
	if e := s.expects[id]; e != nil && s.forget(e) {
		e.in.Discard()
	}
	s.node.Written(id, err)
}

// errorOf says in PeerBytes why no more bytes come.
func errorOf(number uint64, err error) *control.PeerBytes {
	return &control.PeerBytes{Transfer: number, Error: err.Error(), Damaged: isDamage(err) || errors.Is(err, errSize)}
}
