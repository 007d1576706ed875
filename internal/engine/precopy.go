package engine

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/migrate"
	"github.com/cairnrun/cairn/internal/p2p"
)

// What a rank that moves sends before the others wait for it.

// precopy connects this rank with its newcomer, and sends state while the
// program goes on: in each round, which begins at a point, what differs from
// what was sent before. It says Near when that is of no more use.
func (p *Run) precopy(ctx context.Context, l *outgoing, m *control.Precopy) {
	conn, err := dialDestination(ctx, m.Addresses, p.identity.moveSecret(m.ID))
	if err != nil {
		p.moveFailed(m.ID, cmp.Or(context.Cause(ctx), err))
		return
	}
	if err := p.sendSetup(ctx, conn, m.StartLimit); err != nil {
		conn.Close()
		p.moveFailed(m.ID, cmp.Or(context.Cause(ctx), err))
		return
	}
	if !p.migration.open(ctx, l, migrate.NewSource(conn, moveOptions(&m.Move, p.identity))) {
		p.moveFailed(m.ID, context.Cause(ctx))
		return
	}
	last := int64(0)
	for range m.Rounds {
		done := make(chan error, 1)
		l.images <- done
		p.wakePoint()
		select {
		case err = <-done:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		var sent int64
		if err == nil {
			sent, err = l.stream.Wait(ctx)
		}
		if err != nil {
			p.moveFailed(m.ID, cmp.Or(context.Cause(ctx), err))
			return
		}
		l.sent += sent
		l.rounds++
		// The program writes faster than the link takes it, or hardly at all.
		if l.rounds > 1 && (sent > last*7/10 || sent < last/50) {
			break
		}
		last = sent
	}
	p.identity.supervisor.send(&control.Precopied{Move: m.ID})
}

// open keeps the stream to a newcomer, unless the move is off.
func (v *migration) open(ctx context.Context, l *outgoing, s *migrate.Source) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if ctx.Err() != nil {
		s.Close()
		return false
	}
	l.stream = s
	return true
}

// close ends it. The lock is held.
func (l *outgoing) close(why error) {
	l.cancel(why)
	if l.stream != nil {
		go l.stream.Close() // it may have to tell the other end
	}
}

// setupLimit bounds what a rank keeps of what it received before Restore.
const setupLimit = 64 << 20

// sendSetup gives a newcomer what this rank received before Restore, and
// waits until it has come to Restore, too, for so long at most (0: as long as it
// takes).
func (p *Run) sendSetup(ctx context.Context, conn net.Conn, limit time.Duration) error {
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	var setup []p2p.SavedMessage
	if p.identity.Size > 1 {
		var err error
		if setup, err = p.peers.engine.Recorded(); err != nil {
			return err
		}
	}
	said, err := json.Marshal(setup)
	if err != nil {
		return err
	}
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(said))), said...)); err != nil {
		return err
	}
	if limit > 0 {
		conn.SetReadDeadline(time.Now().Add(limit))
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the process that is to take its place was started, but did not come to Restore within %v; --start-limit gives it more time", limit.Round(time.Millisecond))
	}
	conn.SetReadDeadline(time.Time{})
	if err != nil {
		err = fmt.Errorf("the process that is to take its place did not come to Restore: %w", err)
	}
	return err
}

// precopyImage hands over the state as it is at this point, if it is to be sent ahead.
func (p *Run) precopyImage() {
	v := &p.migration
	v.mu.Lock()
	l := v.outgoing
	v.mu.Unlock()
	if l == nil {
		return
	}
	select {
	case done := <-l.images:
		if p.saver.Busy() { // what prepares a copy counts on one at a time
			l.images <- done
			p.wakePoint()
			return
		}
		if p.opts.OnCopy != nil {
			if err := p.opts.OnCopy(); err != nil { // not at this point: perhaps at the next
				l.images <- done
				p.wakePoint()
				return
			}
		}
		img, err := p.image(&l.collector)
		if err == nil {
			err = l.stream.Precopy(img)
		}
		done <- err
	default:
	}
}

// image is the state of the program as it is now, after OnCopy.
func (p *Run) image(c *graph.Collector) (*graph.Image, error) {
	if _, err := p.files.entries(); err != nil { // forgets closed files, which Collect then refuses
		return nil, err
	}
	return c.Collect(p.roots, p.env())
}

// dialDestination connects to a process that waits for its state at one of some
// addresses: the first that proves to be it.
func dialDestination(ctx context.Context, addresses []string, secret []byte) (net.Conn, error) {
	if len(addresses) == 0 {
		return nil, errors.New("the process that is to take its place named no address")
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	type dialed struct {
		conn net.Conn
		err  error
	}
	got := make(chan dialed, len(addresses))
	for _, a := range addresses {
		go func() {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", a)
			if err == nil {
				_, err = control.Client(conn, secret)
			}
			if err == nil { // it takes one of them
				conn.SetReadDeadline(time.Now().Add(dialTimeout))
				if _, err = io.ReadFull(conn, make([]byte, 1)); err != nil {
					conn.Close()
				}
				conn.SetReadDeadline(time.Time{})
			}
			got <- dialed{conn, err}
		}()
	}
	var found net.Conn
	var errs []error
	for range addresses {
		switch d := <-got; {
		case d.err != nil:
			errs = append(errs, d.err)
		case found == nil:
			found = d.conn
			cancel()
		default:
			d.conn.Close()
		}
	}
	if found == nil {
		return nil, fmt.Errorf("the process that is to take its place can't be reached: %w", errors.Join(errs...))
	}
	return found, nil
}

// dialTimeout bounds how long it takes to reach a newcomer.
const dialTimeout = 20 * time.Second
