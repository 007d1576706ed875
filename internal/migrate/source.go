package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
)

// Source is the source's end of a migration. One goroutine at a time may use
// it.
type Source struct {
	o       Options
	s       *stream
	about   ckpt.Description
	buffers chan []byte
	zeros   mem.ZeroDigests

	// What the destination has.
	helloOnce sync.Once
	helloErr  error
	described bool
	sent      [sections]section
	datasets  []ckpt.Dataset
	tables    []*table

	round    *round // the last precopy round
	warmed   bool   // devices are prepared
	canceled atomic.Bool
	stats    Stats

	kept         chan []byte       // which datasets the destination still has
	confirmation chan confirmFrame // sent by the destination at the end
	closed       chan struct{}     // closed when the destination sends no more
	stop         chan struct{}
	wg           sync.WaitGroup

	closing sync.Once
}

// round is a precopy round.
type round struct {
	done chan struct{}
	sent int64
	err  error
}

// errClosed is the error of a migration that was closed before its end.
var errClosed = errors.New("the move was given up")

// NewSource begins a migration to the caller of Receive at the other end of
// conn. The Source owns conn.
func NewSource(conn net.Conn, o Options) *Source {
	o.defaults()
	g := &Source{
		o: o, s: newStream(conn, o.Stall), buffers: make(chan []byte, 2), zeros: make(mem.ZeroDigests),
		kept: make(chan []byte, 1), confirmation: make(chan confirmFrame, 1), closed: make(chan struct{}), stop: make(chan struct{}),
	}
	for range cap(g.buffers) {
		g.buffers <- nil
	}
	g.s.noDeadline = true
	g.wg.Add(2)
	go func() {
		defer g.wg.Done()
		defer close(g.closed)
		g.s.close(g.listen())
	}()
	go func() {
		defer g.wg.Done()
		if g.sendHello() == nil {
			g.s.keepAlive(g.stop, func() bool { return true })
		}
	}()
	return g
}

// listen handles the destination's frames. It returns why it ended.
func (g *Source) listen() error {
	for {
		kind, payload, err := g.s.await()
		if err != nil {
			return err
		}
		switch kind {
		case frameKept:
			select {
			case g.kept <- append([]byte(nil), payload...):
				continue
			default:
			}
		case frameConfirm:
			var w confirmFrame
			if err := json.Unmarshal(payload, &w); err != nil {
				return fmt.Errorf("%w: the destination's confirmation: %v", ckpt.ErrCorrupt, err)
			}
			select {
			case g.confirmation <- w:
				continue
			default:
			}
		case frameFail:
			return rootCause{fmt.Errorf("the destination gives up: %s", payload)}
		}
		return fmt.Errorf("%w: the destination sent an unexpected frame %d", ckpt.ErrCorrupt, kind)
	}
}

// failed completes an error, with the destination's reason if there is one.
func (g *Source) failed(err error) error {
	if err == nil {
		return nil
	}
	var e net.Error
	if errors.As(err, &e) { // the destination may have sent a reason
		select {
		case <-g.closed:
		case <-time.After(time.Second):
		}
		err = g.s.reason(err)
	} else {
		g.s.sendFailure(err)
	}
	g.s.close(err)
	return fmt.Errorf("rank %d cannot move: %w", g.o.Rank, err)
}

// Precopy begins to send an image while the program changes it, and returns at
// once. The Source owns the image: the caller must not collect into it again.
// Only blocks that the destination lacks are sent, and none from devices. Wait
// waits for the end.
func (g *Source) Precopy(img *graph.Image) error {
	select {
	case <-g.stop:
		return errClosed
	default:
	}
	if g.round != nil {
		select {
		case <-g.round.done:
		default:
			return errors.New("a precopy round is in progress")
		}
		if g.round.err != nil {
			return g.round.err
		}
	}
	r := &round{done: make(chan struct{})}
	g.round = r
	g.wg.Go(func() {
		defer close(r.done)
		before := g.s.sent.Load()
		err := g.sendPrecopy(img)
		r.sent = g.s.sent.Load() - before
		g.stats.Precopied += r.sent
		g.stats.Rounds++
		r.err = g.failed(err)
	})
	return nil
}

func (g *Source) sendPrecopy(img *graph.Image) error {
	l, err := plan(img, &g.about, false)
	if err != nil {
		return err
	}
	f := &finder{l: l, precopy: true}
	if err := f.resolve(); err != nil {
		return err
	}
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		if !g.warmed {
			g.warmed = true
			prepareDevices(l)
		}
	}()
	err = g.transmit(img, f, nil, nil)
	<-ready
	return err
}

// Wait waits until the precopy round has ended, and returns how many bytes were
// sent in it.
func (g *Source) Wait(ctx context.Context) (sent int64, err error) {
	if g.round == nil {
		return 0, nil
	}
	select {
	case <-g.round.done:
		return g.round.sent, g.round.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// Finish makes the final copy: it sends what the destination lacks of an image
// that does not change. It returns when the destination has confirmed that
// everything is verified and in place. A precopy round in progress is canceled.
// After an error the migration cannot continue.
func (g *Source) Finish(ctx context.Context, img *graph.Image, files []ckpt.FileEntry, note ckpt.Note, extra []byte) (Stats, error) {
	began := time.Now()
	defer context.AfterFunc(ctx, func() { g.s.close(rootCause{context.Cause(ctx)}) })()
	if g.round != nil {
		g.canceled.Store(true)
		<-g.round.done
		if g.round.err != nil {
			return g.stats, g.round.err
		}
		g.canceled.Store(false)
	}
	err := g.finish(img, files, note, extra)
	g.stats.AllNS = int64(time.Since(began))
	return g.stats, g.failed(err)
}

func (g *Source) finish(img *graph.Image, files []ckpt.FileEntry, note ckpt.Note, extra []byte) error {
	if g.s.ended {
		return errors.New("it has moved already")
	}
	sent, transfer := g.s.sent.Load(), g.s.transfer.Load()
	synced := make(chan error, 1)
	go func() { synced <- ckpt.SyncWritten(files) }() // the destination's host must see their content
	began := time.Now()
	l, err := plan(img, &g.about, true)
	f := &finder{l: l}
	if err == nil {
		err = f.resolve()
	}
	if err != nil {
		<-synced
		return err
	}
	f.workNS = int64(time.Since(began))
	err = g.transmit(img, f, &rest{files, note, note.Sent, note.Received}, extra)
	if e := <-synced; err == nil {
		err = e
	}
	g.stats.State, g.stats.Zero = l.Bytes, f.zeroBytes
	g.stats.WriteNS = f.workNS
	if err != nil {
		return err
	}
	root := rootDigest(g.tables)
	text, err := json.Marshal(endFrame{Last: true, Digest: root})
	if err != nil {
		return err
	}
	if err := g.s.last(frameEnd, text); err != nil {
		return err
	}
	w, err := g.answer(root)
	g.stats.Sent = g.s.sent.Load() - sent
	g.stats.TransferNS = g.s.transfer.Load() - transfer
	g.stats.ReadNS = w.ReadNS
	return err
}

// answer waits for the destination's confirmation.
func (g *Source) answer(root string) (confirmFrame, error) {
	w, err := waitFor(g, g.confirmation)
	if err == nil && w.Digest != root {
		err = fmt.Errorf("%w: the destination has another state: digest %s instead of %s", ckpt.ErrCorrupt, w.Digest, root)
	}
	return w, err
}

// waitFor waits for an answer of the destination. A destination that is working
// sends pings.
func waitFor[T any](g *Source, from <-chan T) (v T, err error) {
	t := time.NewTicker(max(g.o.Stall/4, time.Millisecond))
	defer t.Stop()
	began := time.Now() // before that the destination had no reason to send anything
	for {
		select {
		case v = <-from:
			return v, nil
		case <-g.closed:
			select {
			case v = <-from: // it may be in the last frame
				return v, nil
			default:
				return v, g.s.reason(net.ErrClosed)
			}
		case <-t.C:
			if q := min(g.s.silence(), time.Since(began)); q > g.o.Stall {
				return v, fmt.Errorf("the destination was silent for %v: %w", q.Round(time.Millisecond), os.ErrDeadlineExceeded)
			}
		}
	}
}

// Close ends the migration and closes the connection. A round in progress is
// canceled. Close may be called at any time.
func (g *Source) Close() error {
	g.canceled.Store(true)
	g.s.close(rootCause{errClosed})
	g.closing.Do(func() { close(g.stop) })
	g.wg.Wait()
	return nil
}
