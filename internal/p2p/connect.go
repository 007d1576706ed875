package p2p

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/transport"
)

// endpoint tells the other ranks how to reach a rank.
type endpoint struct {
	Rank       int               `json:"rank"`
	Size       int               `json:"size"`
	Machine    string            `json:"machine"`
	Transports []string          `json:"transports"` // in order of preference
	Addresses  map[string][]byte `json:"addresses"`
}

// Endpoint returns this rank's endpoint, as Connect gives it to the others. It
// changes only with AddDriver.
func (e *Engine) Endpoint() ([]byte, error) {
	e.lock()
	defer e.mu.Unlock()
	return json.Marshal(e.endpoint())
}

func (e *Engine) endpoint() endpoint {
	mine := endpoint{Rank: e.rank, Size: e.size, Machine: e.cfg.Machine, Addresses: make(map[string][]byte)}
	for _, d := range e.cfg.Drivers {
		mine.Transports = append(mine.Transports, d.Name())
		mine.Addresses[d.Name()] = d.Address()
	}
	return mine
}

func (e *Engine) exchange(ctx context.Context) ([]endpoint, error) {
	raw, err := e.Endpoint()
	if err != nil {
		return nil, err
	}
	all, err := e.cfg.Exchange(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("exchanging addresses: %w", err)
	}
	if len(all) != e.size {
		return nil, fmt.Errorf("exchanging addresses: %d endpoints for %d ranks", len(all), e.size)
	}
	return e.readEndpoints(all)
}

// readEndpoints decodes endpoints, which are indexed by rank. A missing
// endpoint is empty in the result.
func (e *Engine) readEndpoints(all [][]byte) ([]endpoint, error) {
	endpoints := make([]endpoint, e.size)
	for i, raw := range all {
		if raw == nil {
			continue
		}
		if i >= e.size {
			return nil, fmt.Errorf("an endpoint of rank %d in a run of %d ranks", i, e.size)
		}
		if err := json.Unmarshal(raw, &endpoints[i]); err != nil {
			return nil, fmt.Errorf("endpoint of rank %d: %w", i, err)
		}
		if endpoints[i].Rank != i || endpoints[i].Size != e.size {
			return nil, fmt.Errorf("endpoint of rank %d is that of rank %d of %d", i, endpoints[i].Rank, endpoints[i].Size)
		}
	}
	return endpoints, nil
}

// settle stores the endpoints and machines of ranks. The lock is held.
func (e *Engine) settle(endpoints []endpoint) {
	here := 0
	for i := range e.peers {
		if endpoints[i].Size > 0 {
			e.endpoints[i], e.peers[i].machine = endpoints[i], endpoints[i].Machine
		}
		if i == e.rank || e.peers[i].machine == e.cfg.Machine {
			here++
		}
	}
	e.oversubscribed = e.cfg.Oversubscribed || here > runtime.NumCPU()
}

// Connect connects this rank with all others. Each pair uses the first
// transport that connects them, in the lower rank's order of preference.
func (e *Engine) Connect(ctx context.Context) error {
	if e.size == 1 {
		return nil
	}
	if runtime.GOOS != "linux" {
		return errSystem
	}
	endpoints, err := e.exchange(ctx)
	if err != nil {
		return err
	}
	if err := e.connect(ctx, endpoints, e.others(), nil); err != nil {
		return err
	}
	e.lock()
	e.unconnected = false
	e.mu.Unlock()
	return nil
}

var errSystem = errors.New("runs of several ranks need Linux")

// others returns all ranks but this one.
func (e *Engine) others() []int {
	list := make([]int, 0, e.size)
	for i := range e.size {
		if i != e.rank {
			list = append(list, i)
		}
	}
	return list
}

// connectTime is how long ranks may take to connect. All of them run and know
// each other's endpoints.
const connectTime = time.Minute

// route chooses the transport to a rank: the first one that connects them, in
// the lower rank's order of preference. Both ranks choose the same.
func (e *Engine) route(mine, theirs *endpoint) (transport.Driver, error) {
	ways := mine.Transports
	if theirs.Rank < e.rank {
		ways = theirs.Transports
	}
	for _, w := range ways {
		d := e.driver(w)
		if d != nil && theirs.Addresses[w] != nil && d.Reaches(theirs.Addresses[w]) {
			return d, nil
		}
	}
	return nil, fmt.Errorf("no transport leads from rank %d (which has %s) to rank %d (which has %s)", e.rank, strings.Join(mine.Transports, ", "), theirs.Rank, strings.Join(theirs.Transports, ", "))
}

// connect makes links to some ranks. If only is not nil, it makes only links of
// that driver.
func (e *Engine) connect(ctx context.Context, endpoints []endpoint, to []int, only transport.Driver) error {
	e.lock()
	e.settle(endpoints)
	mine := e.endpoint()
	drivers := slices.Clone(e.cfg.Drivers)
	e.mu.Unlock()
	// All ranks use the drivers in the same order, so that they cannot wait
	// for each other in a circle.
	slices.SortFunc(drivers, func(a, b transport.Driver) int { return cmp.Compare(a.Name(), b.Name()) })
	per := make(map[transport.Driver][][]byte)
	for _, i := range to {
		d, err := e.route(&mine, &endpoints[i])
		if err != nil {
			return err
		}
		if per[d] == nil {
			per[d] = make([][]byte, e.size)
		}
		per[d][i] = endpoints[i].Addresses[d.Name()]
	}
	for _, d := range drivers {
		if per[d] == nil || only != nil && d != only {
			continue
		}
		c, cancel := context.WithTimeout(ctx, connectTime)
		h := &handler{Engine: e}
		l, err := d.Connect(c, per[d], h)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", d.Name(), err)
		}
		e.lock()
		h.link = l
		e.addLink(l, d, per[d])
		e.mu.Unlock()
	}
	return nil
}

// addLink adds a new link to the ranks that have an address. The lock is held.
func (e *Engine) addLink(l transport.Link, d transport.Driver, endpoints [][]byte) {
	e.links = append(e.links, link{l, d})
	for i := range endpoints {
		if endpoints[i] == nil {
			continue
		}
		p := &e.peers[i]
		p.link, p.eager, p.puller, p.detached, p.gone, p.detaches, p.peerDetaches = l, l.EagerLimit(), nil, false, nil, 0, 0
		if pl, ok := l.(transport.Puller); ok && pl.CanPull(i) {
			p.puller = pl
		}
		e.unmute(i)
	}
	e.sleep.wake() // a sleeping goroutine watches only the old links
}

// unmute sends the control messages that have waited for a link. The lock is
// held.
func (e *Engine) unmute(to int) {
	p := &e.peers[to]
	p.muted = false
	waited := p.backlog
	p.backlog = nil
	for _, m := range waited {
		e.control(to, m)
	}
}

func (e *Engine) driver(name string) transport.Driver {
	i := slices.IndexFunc(e.cfg.Drivers, func(d transport.Driver) bool { return d.Name() == name })
	if i < 0 {
		return nil
	}
	return e.cfg.Drivers[i]
}

// fragile reports whether a link must be closed before state is saved.
func fragile(l transport.Link) bool {
	f, ok := l.(transport.Fragile)
	return ok && f.MustClose()
}

// exchangeDetach exchanges last frames with ranks, and returns when theirs have
// come: then nothing is in flight. Control messages for these ranks wait from
// now on. The lock is held.
func (e *Engine) exchangeDetach(ctx context.Context, with []int) error {
	for _, i := range with {
		e.peers[i].detaches++
		e.head = frame{kind: kindDetach, seq: e.peers[i].detaches}
		e.emit(i, nil, nil)
		e.peers[i].muted = true
	}
	stop := context.AfterFunc(ctx, e.Wake)
	defer stop()
	err := e.Serve(func() bool {
		return !slices.ContainsFunc(with, func(i int) bool { return e.peers[i].peerDetaches < e.peers[i].detaches }) || ctx.Err() != nil
	})
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// CloseFragile closes the links that cannot stay open while state is saved, and
// reports whether there were any. All ranks call it, with no message in flight.
// Control messages for the ranks concerned wait until Reopen. The lock is held.
func (e *Engine) CloseFragile(ctx context.Context) (bool, error) {
	var to []int
	for i := range e.peers {
		if i != e.rank && e.peers[i].link != nil && fragile(e.peers[i].link) {
			to = append(to, i)
		}
	}
	if len(to) == 0 {
		return false, nil
	}
	return true, e.closeLinks(ctx, to, func(l link) bool { return fragile(l.Link) })
}

// closeLinks exchanges last frames with the ranks that some links serve, and
// closes these links. The lock is held.
func (e *Engine) closeLinks(ctx context.Context, to []int, which func(link) bool) error {
	if err := e.exchangeDetach(ctx, to); err != nil {
		return err
	}
	for _, i := range to {
		e.peers[i].link, e.peers[i].puller = nil, nil
	}
	var errs []error
	e.links = slices.DeleteFunc(e.links, func(l link) bool {
		if !which(l) {
			return false
		}
		if err := l.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.driver.Name(), err))
		}
		return true
	})
	return errors.Join(errs...)
}

// Reopen connects again what CloseFragile closed. All ranks call it. The lock
// is not held, and nothing is sent meanwhile.
func (e *Engine) Reopen(ctx context.Context) error {
	endpoints, err := e.exchange(ctx)
	if err != nil {
		return err
	}
	for _, d := range e.cfg.Drivers {
		open := slices.ContainsFunc(e.links, func(l link) bool { return l.driver == d })
		if open {
			continue
		}
		if err := e.connect(ctx, endpoints, e.others(), d); err != nil {
			return err
		}
	}
	return nil
}

// Close announces that no more messages come from this rank, serves the others
// until all have announced the same, and closes the links. The caller closes
// the drivers. done says that this rank's work is done. Close returns whether
// that holds for all ranks.
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
	if err != nil { // do not wait for ranks that do not read
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
