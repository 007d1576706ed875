package p2p

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/transport"
)

// card is what a rank tells the others about itself.
type card struct {
	Rank  int               `json:"rank"`
	Size  int               `json:"size"`
	Where string            `json:"where"` // the machine
	Ways  []string          `json:"ways"`  // transports, in order of preference
	Cards map[string][]byte `json:"cards"`
}

func (e *Engine) exchange(ctx context.Context) ([]card, error) {
	mine := card{Rank: e.rank, Size: e.size, Where: e.cfg.Machine, Cards: make(map[string][]byte)}
	for _, d := range e.cfg.Drivers {
		mine.Ways = append(mine.Ways, d.Name())
		mine.Cards[d.Name()] = d.Card()
	}
	raw, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all, err := e.cfg.Exchange(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("exchanging addresses: %w", err)
	}
	if len(all) != e.size {
		return nil, fmt.Errorf("exchanging addresses: %d cards for %d ranks", len(all), e.size)
	}
	cards := make([]card, e.size)
	for i, raw := range all {
		if err := json.Unmarshal(raw, &cards[i]); err != nil {
			return nil, fmt.Errorf("card of rank %d: %w", i, err)
		}
		if cards[i].Rank != i || cards[i].Size != e.size {
			return nil, fmt.Errorf("card of rank %d is that of rank %d of %d", i, cards[i].Rank, cards[i].Size)
		}
	}
	here := 0
	for i := range cards {
		if cards[i].Where == e.cfg.Machine {
			here++
		}
	}
	e.lock()
	e.cfg.Crowded = e.cfg.Crowded || here > runtime.NumCPU()
	e.mu.Unlock()
	return cards, nil
}

// Connect connects this rank with all others, each pair by the first
// transport, in the order that the lower rank prefers, that serves it.
func (e *Engine) Connect(ctx context.Context) error {
	if e.size == 1 {
		return nil
	}
	if runtime.GOOS != "linux" {
		return errors.New("runs of several ranks need Linux")
	}
	cards, err := e.exchange(ctx)
	if err != nil {
		return err
	}
	return e.connect(ctx, cards, nil)
}

// connectTime is how long ranks may take to connect. All of them run, and know
// each other's cards.
const connectTime = time.Minute

// connect makes the links; with only set, no others than that driver's.
func (e *Engine) connect(ctx context.Context, cards []card, only transport.Driver) error {
	per := make(map[string][][]byte)
	for i := range cards {
		if i == e.rank {
			continue
		}
		ways := cards[min(i, e.rank)].Ways
		way := ""
		for _, w := range ways {
			d := e.driver(w)
			if d != nil && cards[i].Cards[w] != nil && d.Reaches(cards[i].Cards[w]) {
				way = w
				break
			}
		}
		if way == "" {
			return fmt.Errorf("no transport leads from rank %d (which has %s) to rank %d (which has %s)", e.rank, strings.Join(cards[e.rank].Ways, ", "), i, strings.Join(cards[i].Ways, ", "))
		}
		if per[way] == nil {
			per[way] = make([][]byte, e.size)
		}
		per[way][i] = cards[i].Cards[way]
	}
	for _, d := range e.cfg.Drivers {
		to := per[d.Name()]
		if to == nil || only != nil && d != only {
			continue
		}
		c, cancel := context.WithTimeout(ctx, connectTime)
		l, err := d.Connect(c, to, handler{e})
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", d.Name(), err)
		}
		e.lock()
		e.links = append(e.links, link{l, d})
		for i := range to {
			if to[i] == nil {
				continue
			}
			p := &e.peers[i]
			p.link, p.eager, p.puller, p.paused, p.muted = l, l.EagerLimit(), nil, false, false
			if pl, ok := l.(transport.Puller); ok && pl.CanPull(i) {
				p.puller = pl
			}
			for _, m := range p.backlog {
				e.Control(i, m)
			}
			p.backlog = nil
		}
		e.mu.Unlock()
	}
	return nil
}

func (e *Engine) driver(name string) transport.Driver {
	i := slices.IndexFunc(e.cfg.Drivers, func(d transport.Driver) bool { return d.Name() == name })
	if i < 0 {
		return nil
	}
	return e.cfg.Drivers[i]
}

// fragile reports whether the link asks to be closed before state is saved.
func fragile(l transport.Link) bool {
	f, ok := l.(transport.Fragile)
	return ok && f.MustClose()
}

// CloseFragile closes the links that can't stay open while the state is
// saved, and reports whether there were any. All ranks call it, with no
// message in flight; control messages to the ranks concerned wait until
// Reopen. The lock is held.
func (e *Engine) CloseFragile(ctx context.Context) (bool, error) {
	mine := func(i int) bool { return i != e.rank && e.peers[i].link != nil && fragile(e.peers[i].link) }
	var to []int
	for i := range e.peers {
		if mine(i) {
			to = append(to, i)
			e.head = frame{kind: kindPause}
			e.emit(i, nil, nil)
			e.peers[i].muted = true
		}
	}
	if len(to) == 0 {
		return false, nil
	}
	// When all have sent their last frame, none is on its way.
	err := e.Serve(func() bool {
		return !slices.ContainsFunc(to, func(i int) bool { return !e.peers[i].paused }) || ctx.Err() != nil
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return true, err
	}
	for _, i := range to {
		e.peers[i].link, e.peers[i].puller = nil, nil
	}
	var errs []error
	e.links = slices.DeleteFunc(e.links, func(l link) bool {
		if !fragile(l.Link) {
			return false
		}
		if err := l.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.driver.Name(), err))
		}
		return true
	})
	return true, errors.Join(errs...)
}

// Reopen connects again what CloseFragile closed, on all ranks. The lock is
// not held, and nothing is sent meanwhile.
func (e *Engine) Reopen(ctx context.Context) error {
	cards, err := e.exchange(ctx)
	if err != nil {
		return err
	}
	for _, d := range e.cfg.Drivers {
		open := slices.ContainsFunc(e.links, func(l link) bool { return l.driver == d })
		if open {
			continue
		}
		if err := e.connect(ctx, cards, d); err != nil {
			return err
		}
	}
	return nil
}

// Close tells the others that no more messages come from here, serves them
// until all have said so, and closes the links. Drivers are left to the
// caller. done says that the work of this rank is done; Close returns whether
// that holds for all.
func (e *Engine) Close(ctx context.Context, done bool) (all bool, err error) {
	e.lock()
	if e.closed {
		e.mu.Unlock()
		return false, nil
	}
	e.closed = true
	e.peers[e.rank].finished = done
	for i := range e.peers {
		if i != e.rank {
			e.head = frame{kind: kindBye}
			if done {
				e.head.tag = 1
			}
			e.emit(i, nil, nil)
		}
	}
	stop := context.AfterFunc(ctx, e.Wake)
	err = e.Serve(func() bool { return e.allEnded() || ctx.Err() != nil })
	stop()
	links := e.links
	e.links = nil
	for i := range e.peers {
		e.peers[i].link, e.peers[i].puller = nil, nil
	}
	all = err == nil
	for i := range e.peers {
		all = all && e.peers[i].finished
	}
	if err == nil && !e.allEnded() {
		err = ctx.Err()
	}
	e.mu.Unlock()
	cctx := ctx
	if err != nil { // don't wait for those who won't read
		c, cancel := context.WithCancel(context.Background())
		cancel()
		cctx = c
	}
	var errs []error
	for _, l := range links {
		if cerr := l.Close(cctx); cerr != nil && err == nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.driver.Name(), cerr))
		}
	}
	e.lock()
	e.sleep.close()
	e.mu.Unlock()
	return all, errors.Join(err, errors.Join(errs...))
}

func (e *Engine) allEnded() bool {
	for i := range e.peers {
		if i != e.rank && !e.peers[i].ended {
			return false
		}
	}
	return true
}
