package p2p

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/transport"
)

// card is what a rank tells the others about itself.
type card struct {
	Rank  int               `json:"rank"`
	Size  int               `json:"size"`
	Ways  []string          `json:"ways"` // transports, in order of preference
	Cards map[string][]byte `json:"cards"`
}

func (e *Engine) exchange(ctx context.Context) ([]card, error) {
	mine := card{Rank: e.rank, Size: e.size, Cards: make(map[string][]byte)}
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
	return cards, nil
}

// Connect connects this rank with all others, each pair by the first
// transport, in the order that the lower rank prefers, that serves it.
func (e *Engine) Connect(ctx context.Context) error {
	if e.size == 1 {
		return nil
	}
	cards, err := e.exchange(ctx)
	if err != nil {
		return err
	}
	return e.connect(ctx, cards, nil)
}

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
		l, err := d.Connect(ctx, to, handler{e})
		if err != nil {
			return fmt.Errorf("%s: %w", d.Name(), err)
		}
		e.mu.Lock()
		e.links = append(e.links, link{l, d})
		for i := range to {
			if to[i] == nil {
				continue
			}
			p := &e.peers[i]
			p.link, p.eager, p.puller = l, l.EagerLimit(), nil
			if pl, ok := l.(transport.Puller); ok && pl.CanPull(i) {
				p.puller = pl
			}
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
// saved, and returns whether there were any. Nothing may be in flight. The
// lock is held.
func (e *Engine) CloseFragile(ctx context.Context) (bool, error) {
	var errs []error
	e.links = slices.DeleteFunc(e.links, func(l link) bool {
		if !fragile(l.Link) {
			return false
		}
		for i := range e.peers {
			if e.peers[i].link == l.Link {
				e.peers[i].link, e.peers[i].puller = nil, nil
			}
		}
		if err := l.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.driver.Name(), err))
		}
		return true
	})
	for i := range e.peers {
		if i != e.rank && e.peers[i].link == nil {
			return true, errors.Join(errs...)
		}
	}
	return false, nil
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
// caller.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	for i := range e.peers {
		if i != e.rank && !e.peers[i].ended {
			e.head = frame{kind: kindBye}
			e.emit(i, nil, nil)
		}
	}
	stop := context.AfterFunc(ctx, e.Wake)
	err := e.Serve(func() bool { return e.allEnded() || ctx.Err() != nil })
	stop()
	links := e.links
	e.links = nil
	for i := range e.peers {
		e.peers[i].link, e.peers[i].puller = nil, nil
	}
	e.mu.Unlock()
	if err == nil && !e.allEnded() {
		err = ctx.Err()
	}
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
	e.mu.Lock()
	e.sleep.close()
	e.mu.Unlock()
	return errors.Join(err, errors.Join(errs...))
}

func (e *Engine) allEnded() bool {
	for i := range e.peers {
		if i != e.rank && !e.peers[i].ended {
			return false
		}
	}
	return true
}
