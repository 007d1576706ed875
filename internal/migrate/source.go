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
	o       MoveOptions
	s       *moveStream
	about   ckpt.Description
	buffers chan []byte
	zeros   mem.ZeroDigests

	// What the newcomer knows.
	helloOnce sync.Once
	helloErr  error
	headed    bool
	told      [sections]section
	datasets  []ckpt.Dataset
	tables    []*moveTable

	round  *round // the last one that ran ahead
	warmed bool   // devices are ready
	cut    atomic.Bool
	stats  MoveStats

	keeps        chan []byte           // what the newcomer says it still has
	confirmation chan moveConfirmation // … that all has arrived
	gone         chan struct{}         // closed when it says no more
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

// errGivenUp is why all fails of a move that was closed early.
var errGivenUp = errors.New("the move was given up")

// NewSource begins a move to whoever calls Receive at the other end of conn,
// which belongs to the Source from now on.
func NewSource(conn net.Conn, o MoveOptions) *Source {
	o.defaults()
	g := &Source{
		o: o, s: newMoveStream(conn, o.Stall), buffers: make(chan []byte, 2), zeros: make(mem.ZeroDigests),
		keeps: make(chan []byte, 1), confirmation: make(chan moveConfirmation, 1), gone: make(chan struct{}), stop: make(chan struct{}),
	}
	for range cap(g.buffers) {
		g.buffers <- nil
	}
	g.s.patient = true
	g.wg.Add(2)
	go func() {
		defer g.wg.Done()
		defer close(g.gone)
		g.s.close(g.listen())
	}()
	go func() {
		defer g.wg.Done()
		if g.sendHello() == nil {
			g.s.pings(g.stop, func() bool { return true })
		}
	}()
	return g
}

// listen takes what the newcomer says. It returns why it ends.
func (g *Source) listen() error {
	for {
		kind, payload, err := g.s.await()
		if err != nil {
			return err
		}
		switch kind {
		case frameKeep:
			select {
			case g.keeps <- append([]byte(nil), payload...):
				continue
			default:
			}
		case frameConfirm:
			var w moveConfirmation
			if err := json.Unmarshal(payload, &w); err != nil {
				return fmt.Errorf("%w: the newcomer's word: %v", ckpt.ErrCorrupt, err)
			}
			select {
			case g.confirmation <- w:
				continue
			default:
			}
		case frameFail:
			return decisive{fmt.Errorf("the newcomer gives up: %s", payload)}
		}
		return fmt.Errorf("%w: the newcomer sends a frame %d that was not asked for", ckpt.ErrCorrupt, kind)
	}
}

// failed says where an error comes from, with the newcomer's reason if it has
// given one.
func (g *Source) failed(err error) error {
	if err == nil {
		return nil
	}
	var e net.Error
	if errors.As(err, &e) { // the newcomer may have said why
		select {
		case <-g.gone:
		case <-time.After(time.Second):
		}
		err = g.s.because(err)
	} else {
		g.s.giveUp(err)
	}
	g.s.close(err)
	return fmt.Errorf("rank %d can't move: %w", g.o.Rank, err)
}

// Precopy begins to send an image while the program changes it, and returns at
// once. The image is the call's own: what Collect gave must not be collected
// into again. Only blocks that the newcomer lacks are sent; what is on devices
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
		err := g.precopy(img)
		r.sent = g.s.sent.Load() - before
		g.stats.Precopied += r.sent
		g.stats.Rounds++
		r.err = g.failed(err)
	}()
	return nil
}

func (g *Source) precopy(img *graph.Image) error {
	l, err := planMove(img, &g.about, false)
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
			warm(l)
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

// Finish sends what the newcomer lacks of an image that nobody changes, and
// returns when the newcomer has said that all is there, verified and in place.
// A round that is under way is cut short. After an error the move can't be
// gone on with.
func (g *Source) Finish(ctx context.Context, img *graph.Image, files []ckpt.FileEntry, note ckpt.Note, extra []byte) (MoveStats, error) {
	began := time.Now()
	defer context.AfterFunc(ctx, func() { g.s.close(decisive{context.Cause(ctx)}) })()
	if g.round != nil {
		g.cut.Store(true)
		<-g.round.done
		if g.round.err != nil {
			return g.stats, g.round.err
		}
		g.cut.Store(false)
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
	go func() { synced <- ckpt.SyncWritten(files) }() // the newcomer's host must see what they hold
	began := time.Now()
	l, err := planMove(img, &g.about, true)
	f := &finder{l: l}
	if err == nil {
		err = f.resolve()
	}
	if err != nil {
		<-synced
		return err
	}
	f.work = int64(time.Since(began))
	err = g.transmit(img, f, &moveRest{files, note, note.Sent, note.Received}, extra)
	if e := <-synced; err == nil {
		err = e
	}
	g.stats.State, g.stats.Zero = l.Bytes, f.zero
	g.stats.WriteNS = f.work
	if err != nil {
		return err
	}
	root := rootDigest(g.tables)
	if err := g.end(moveEnd{Last: true, Digest: root}, began); err != nil {
		return err
	}
	w, err := g.answer(root)
	g.stats.Sent = g.s.sent.Load() - sent
	g.stats.TransferNS = g.s.transfer.Load() - transfer
	g.stats.ReadNS = w.ReadNS
	return err
}

// end says that the last round is over.
func (g *Source) end(e moveEnd, began time.Time) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if err := g.s.last(frameEnd, text); err != nil || !g.o.Sequential {
		return err
	}
	g.stats.WriteNS = int64(time.Since(began))
	return g.s.unspool()
}

// answer waits for the newcomer's word.
func (g *Source) answer(root string) (moveConfirmation, error) {
	w, err := hear(g, g.confirmation)
	if err == nil && w.Digest != root {
		err = fmt.Errorf("%w: the newcomer has taken over another state: digest %s instead of %s", ckpt.ErrCorrupt, w.Digest, root)
	}
	return w, err
}

// hear waits for something that the newcomer says. While it works it says at
// least that.
func hear[T any](g *Source, from <-chan T) (v T, err error) {
	t := time.NewTicker(max(g.o.Stall/4, time.Millisecond))
	defer t.Stop()
	began := time.Now() // until then it had no reason to say anything
	for {
		select {
		case v = <-from:
			return v, nil
		case <-g.gone:
			select {
			case v = <-from: // the last thing that it said
				return v, nil
			default:
				return v, g.s.because(net.ErrClosed)
			}
		case <-t.C:
			if q := min(g.s.quietFor(), time.Since(began)); q > g.o.Stall {
				return v, fmt.Errorf("the newcomer says nothing for %v: %w", q.Round(time.Millisecond), os.ErrDeadlineExceeded)
			}
		}
	}
}

// Close ends the move, if it is not over, and closes the connection. A round
// that is under way is cut short. It may be called at any time.
func (g *Source) Close() error {
	g.cut.Store(true)
	g.s.close(decisive{errGivenUp})
	g.closing.Do(func() { close(g.stop) })
	g.wg.Wait()
	return nil
}
