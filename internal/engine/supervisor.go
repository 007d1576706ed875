package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/mpi"
)

// supervisor is the connection to the supervisor's helper, which started this
// rank.
type supervisor struct {
	conn      *control.Conn
	mu        sync.Mutex
	epoch     uint64
	exchanges map[uint64]chan [][]byte
	run       *Run // nil until attach
	early     []control.Message
	gone      error
}

// errUnsupervised says that the supervisor or its helper is gone.
var errUnsupervised = errors.New("the helper of this host is gone")

func supervised(conn *control.Conn) *supervisor {
	s := &supervisor{conn: conn, exchanges: make(map[uint64]chan [][]byte)}
	go s.listen()
	return s
}

func (s *supervisor) listen() {
	for {
		m, err := s.conn.Recv()
		s.mu.Lock()
		if err != nil {
			s.gone = fmt.Errorf("%w: %w", errUnsupervised, err)
			for _, c := range s.exchanges {
				close(c)
			}
			s.exchanges = nil
			run := s.run
			s.mu.Unlock()
			if run != nil {
				run.supervisorLost(s.gone)
			}
			return
		}
		if all, ok := m.(*control.Endpoints); ok {
			if c := s.exchanges[all.Epoch]; c != nil {
				delete(s.exchanges, all.Epoch)
				c <- all.Endpoints
			}
		} else if s.run == nil {
			s.early = append(s.early, m)
		} else {
			run := s.run
			s.mu.Unlock()
			run.handleMessage(m)
			continue
		}
		s.mu.Unlock()
	}
}

// attach passes messages to the run, those received so far included.
func (s *supervisor) attach(p *Run) {
	s.mu.Lock()
	early := s.early
	s.run, s.early = p, nil
	gone := s.gone
	s.mu.Unlock()
	for _, m := range early {
		p.handleMessage(m)
	}
	if gone != nil {
		p.supervisorLost(gone)
	}
}

// send sends a message to the supervisor. listen notices if the connection is
// lost.
func (s *supervisor) send(m control.Message) {
	if s != nil {
		s.conn.Send(m)
	}
}

// exchange gives every rank's endpoint to all ranks.
func (s *supervisor) exchange(ctx context.Context, endpoint []byte) ([][]byte, error) {
	c := make(chan [][]byte, 1)
	s.mu.Lock()
	if s.gone != nil {
		defer s.mu.Unlock()
		return nil, s.gone
	}
	s.epoch++
	epoch := s.epoch
	s.exchanges[epoch] = c
	s.mu.Unlock()
	if err := s.conn.Send(&control.Endpoint{Epoch: epoch, Data: endpoint}); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnsupervised, err)
	}
	select {
	case endpoints, ok := <-c:
		if !ok {
			return nil, errUnsupervised
		}
		return endpoints, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// exchangeCount returns the number of exchanges so far, and setExchangeCount
// sets it in a destination.
func (s *supervisor) exchangeCount() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

func (s *supervisor) setExchangeCount(times uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch = times
}

// handleMessage handles a message of the supervisor.
func (p *Run) handleMessage(m control.Message) {
	switch m := m.(type) {
	case *control.Checkpoint:
		if m.Stop {
			p.requestStop(m.Reason)
		} else {
			p.requestBy(m.Reason)
		}
	case *control.Precopy, *control.Pause, *control.Switch:
		p.handleMove(m)
	case *control.Spawn:
		go p.spawn(m)
	case *control.Lost:
		if p.identity.Size > 1 {
			p.peers.engine.Fail(fmt.Errorf("%w: rank %d: %s", mpi.ErrLost, m.Rank, m.Why))
		}
	}
}

// supervisorLost notes that the connection to the supervisor is lost. The run
// cannot continue: another supervisor is about to start its ranks again.
func (p *Run) supervisorLost(err error) {
	p.migration.end(err)
	if p.identity.Size > 1 {
		p.peers.engine.Fail(err)
		return
	}
	p.wakePoint() // the next Point fails
}

// err returns why the connection is lost, nil if it is not.
func (s *supervisor) err() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// report tells the supervisor twice a second how far the program is.
func (p *Run) report(done <-chan struct{}) {
	tick := make(chan struct{}, 1)
	alarm := control.NewAlarm(func() { tick <- struct{}{} })
	defer alarm.Close()
	onReport := p.opts.OnReport
	if onReport == nil {
		onReport = p.opts.OnDue
	}
	for {
		p.reportOnce()
		if onReport != nil { // a program that waits for it reports its progress by calling Point
			onReport()
		}
		alarm.Set(500 * time.Millisecond)
		select {
		case <-tick:
		case <-done:
			return
		}
	}
}

// Pause says that the program stands still because of Cairn, until Continue is
// called. The supervisor then does not expect points from it.
func (p *Run) Pause() {
	p.pauses.Add(1)
	p.paused.Store(true)
}

// StoppedSince says since when goroutines have stood still for the checkpoint
// that the next Point takes: that is part of its pause. The zero time: none.
func (p *Run) StoppedSince(t time.Time) { p.stoodSince = t }

// Continue ends what Pause has begun.
func (p *Run) Continue() { p.pauses.Add(-1) }

// NoteBlocked records why no checkpoint can be taken, "" if one can.
func (p *Run) NoteBlocked(why string) {
	if why == "" {
		p.blocked.Store(nil)
		return
	}
	p.blocked.Store(&why)
}

// Blocked reports whether NoteBlocked has recorded a reason.
func (p *Run) Blocked() bool { return p.blocked.Load() != nil }

// NoteLoop records how far the program is; nil: it is not known.
func (p *Run) NoteLoop(l *control.Loop) { p.loop.Store(l) }

func (p *Run) reportOnce() {
	m := &control.Progress{Points: p.reportedPoints.Load(), Paused: p.paused.Swap(false) || p.pauses.Load() > 0}
	if why := p.blocked.Load(); why != nil {
		m.Blocked = *why
	}
	m.Loop, m.Devices = p.loop.Load(), control.Devices()
	if p.identity.Size > 1 { // in a run of one rank, World may set peers at any time
		m.Messages = p.peers.engine.Traffic()
	}
	p.identity.supervisor.send(m)
}
