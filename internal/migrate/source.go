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

// Source is the source's end of a move. One goroutine at a time uses it.
type Source struct {
	o       Options
	s       *stream
	about   ckpt.Description
	buffers chan []byte
	zeros   mem.ZeroDigests

	// What the destination knows.
	helloOnce sync.Once
	helloErr  error
	described bool
	sent      [sections]section
	datasets  []ckpt.Dataset
	tables    []*table

	round    *round // the last one that ran ahead
	warmed   bool   // devices are ready
	canceled atomic.Bool
	stats    Stats

	kept         chan []byte       // what the destination says it still has
	confirmation chan confirmFrame // … that all has arrived
	closed       chan struct{}     // closed when it says no more
	stop         chan struct{}
	wg           sync.WaitGroup

	closing sync.Once
}

// round is one that runs ahead.
type round struct {
	done chan struct{}
	sent int64
	err  error
}

// errClosed is why all fails of a move that was closed early.
var errClosed = errors.New("the move was given up")

// NewSource begins a move to whoever calls Receive at the other end of conn,
// which belongs to the Source from now on.
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

// listen takes what the destination says. It returns why it ends.
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
				return fmt.Errorf("%w: the destination's word: %v", ckpt.ErrCorrupt, err)
			}
			select {
			case g.confirmation <- w:
				continue
			default:
			}
		case frameFail:
			return rootCause{fmt.Errorf("the destination gives up: %s", payload)}
		}
		return fmt.Errorf("%w: the destination sends a frame %d that was not asked for", ckpt.ErrCorrupt, kind)
	}
}

// failed says where an error comes from, with the destination's reason if it has
// given one.
func (g *Source) failed(err error) error {
	if err == nil {
		return nil
	}
	var e net.Error
	if errors.As(err, &e) { // the destination may have said why
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
// once. The image is the call's own: what Collect gave must not be collected
// into again. Only blocks that the destination lacks are sent; what is on devices
// is not. Wait waits for the end of it.
func (g *Source) Precopy(img *graph.Image) error {
	if g.round != nil {
		select {
		case <-g.round.done:
		default:
			return errors.New("a round of sending ahead is under way")
		}
		if g.round.err != nil {
			return g.round.err
		}
	}
	r := &round{done: make(chan struct{})}
	g.round = r
	if g.o.Sequential {
		close(r.done)
		return nil
	}
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		defer close(r.done)
		before := g.s.sent.Load()
		err := g.sendPrecopy(img)
		r.sent = g.s.sent.Load() - before
		g.stats.Precopied += r.sent
		g.stats.Rounds++
		r.err = g.failed(err)
	}()
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

// Wait waits until the round that Precopy began is over, and returns how many
// bytes were sent in it.
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

// Finish sends what the destination lacks of an image that nobody changes, and
// returns when the destination has said that all is there, verified and in place.
// A round that is under way is cut short. After an error the move cannot be
// continued.
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
	go func() { synced <- ckpt.SyncWritten(files) }() // the destination's host must see what they hold
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
	if err := g.end(endFrame{Last: true, Digest: root}, began); err != nil {
		return err
	}
	w, err := g.answer(root)
	g.stats.Sent = g.s.sent.Load() - sent
	g.stats.TransferNS = g.s.transfer.Load() - transfer
	g.stats.ReadNS = w.ReadNS
	return err
}

// end says that the last round is over.
func (g *Source) end(e endFrame, began time.Time) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if err := g.s.last(frameEnd, text); err != nil || !g.o.Sequential {
		return err
	}
	g.stats.WriteNS = int64(time.Since(began))
	return g.s.sendSpool()
}

// answer waits for the destination's word.
func (g *Source) answer(root string) (confirmFrame, error) {
	w, err := waitFor(g, g.confirmation)
	if err == nil && w.Digest != root {
		err = fmt.Errorf("%w: the destination has taken over another state: digest %s instead of %s", ckpt.ErrCorrupt, w.Digest, root)
	}
	return w, err
}

// waitFor waits for something that the destination says. While it works it says at
// least that.
func waitFor[T any](g *Source, from <-chan T) (v T, err error) {
	t := time.NewTicker(max(g.o.Stall/4, time.Millisecond))
	defer t.Stop()
	began := time.Now() // until then it had no reason to say anything
	for {
		select {
		case v = <-from:
			return v, nil
		case <-g.closed:
			select {
			case v = <-from: // the last thing that it said
				return v, nil
			default:
				return v, g.s.reason(net.ErrClosed)
			}
		case <-t.C:
			if q := min(g.s.silence(), time.Since(began)); q > g.o.Stall {
				return v, fmt.Errorf("the destination says nothing for %v: %w", q.Round(time.Millisecond), os.ErrDeadlineExceeded)
			}
		}
	}
}

// Close ends the move, if it is not over, and closes the connection. A round
// that is under way is cut short. It may be called at any time.
func (g *Source) Close() error {
	g.canceled.Store(true)
	g.s.close(rootCause{errClosed})
	g.closing.Do(func() { close(g.stop) })
	g.wg.Wait()
	return nil
}
