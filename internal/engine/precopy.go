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

// precopy connects this rank with its destination, and sends state while the
// program computes. Each round begins at a point and sends what has changed
// since the previous one. precopy tells the supervisor when more rounds are of
// no use.
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
		// The program writes faster than the link sends, or hardly at all.
		if l.rounds > 1 && (sent > last*7/10 || sent < last/50) {
			break
		}
		last = sent
	}
	p.identity.supervisor.send(&control.Precopied{Move: m.ID})
}

// open keeps the stream to a destination, unless the move was canceled.
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

// close ends the stream. The lock is held.
func (l *outgoing) close(why error) {
	l.cancel(why)
	if l.stream != nil {
		go l.stream.Close() // it may have to inform the destination
	}
}

// setupLimit bounds the messages that a rank keeps of those that it received
// before Restore.
const setupLimit = 64 << 20

// sendSetup sends a destination what this rank received before Restore, and
// waits until the destination calls Restore, at most for limit (0: forever).
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
		return fmt.Errorf("the destination was started, but did not call Restore within %v; --start-limit gives it more time", limit.Round(time.Millisecond))
	}
	conn.SetReadDeadline(time.Time{})
	if err != nil {
		err = fmt.Errorf("the destination did not call Restore: %w", err)
	}
	return err
}

// precopyImage hands the state at this point to precopy, if it waits for one.
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
		if p.saver.Busy() { // one copy at a time
			l.images <- done
			p.wakePoint()
			return
		}
		if p.opts.OnCopy != nil {
			if err := p.opts.OnCopy(); err != nil { // try again at the next point
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

// image returns the state of the program, after OnCopy.
func (p *Run) image(c *graph.Collector) (*graph.Image, error) {
	if _, err := p.files.entries(); err != nil { // removes closed files, so that Collect finds them closed
		return nil, err
	}
	return p.collectState(c)
}

// dialDestination connects to the destination at the first of some addresses
// where it proves its identity.
func dialDestination(ctx context.Context, addresses []string, secret []byte) (net.Conn, error) {
	if len(addresses) == 0 {
		return nil, errors.New("the destination named no address")
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
			if err == nil { // the destination accepts one connection
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
		return nil, fmt.Errorf("the destination cannot be reached: %w", errors.Join(errs...))
	}
	return found, nil
}

// dialTimeout bounds the time to reach a destination.
const dialTimeout = 20 * time.Second
