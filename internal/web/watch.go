//go:build linux

package web

import (
	"context"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/supervise/client"
)

// lookEvery is the time between two looks at the run while someone watches.
const lookEvery = 250 * time.Millisecond

// watcher has the history and the state of a run. It looks at the run while
// someone watches, and when it is asked.
type watcher struct {
	run  string
	over chan struct{} // closed by close

	looking  sync.Mutex // locked during a look; guards reader, measured and asked
	reader   *events.Reader
	measured measured
	asked    time.Time // when the state was asked for last

	mu       sync.Mutex
	list     []events.Event
	life     int // grows when another run begins in the directory
	state    *control.RunState
	storage  storage
	version  int           // grows with every change of state, storage or err
	err      error         // why the state is not known
	news     chan struct{} // closed and replaced at every change
	watching map[bool]int  // true: of visitors with the token
	closed   bool
}

func newWatcher(run string) *watcher {
	return &watcher{run: run, over: make(chan struct{}), reader: events.NewReader(filepath.Join(run, events.FileName)), news: make(chan struct{}), watching: make(map[bool]int)}
}

// close ends all streams, after they have sent what is new.
func (w *watcher) close() {
	w.look()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed = true
		close(w.over)
	}
}

// begin says that someone watches, with the token or without, until end is
// called. It reports false if as many as the limit do already.
func (w *watcher) begin(owner bool, limit int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watching[owner] >= limit {
		return false
	}
	if w.watching[owner]++; w.watching[true]+w.watching[false] == 1 {
		go w.work()
	}
	return true
}

func (w *watcher) end(owner bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watching[owner]--
}

// work looks at the run until nobody watches any more.
func (w *watcher) work() {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		w.look()
		select {
		case <-t.C:
		case <-w.over:
			return
		}
		w.mu.Lock()
		if w.watching[true]+w.watching[false] == 0 {
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
	}
}

// look reads what is new.
func (w *watcher) look() {
	w.looking.Lock()
	defer w.looking.Unlock()
	list, anew, err := w.reader.Next()
	state, s := w.state, w.storage // only look changes them
	if time.Since(w.asked) >= stateEvery || len(list) > 0 {
		var serr error
		if state, serr = client.Read(context.Background(), w.run); err == nil {
			err = serr
		}
		if state != nil {
			state.Settings = nil // --on-event may have a secret in it, and visitors have no token
			s = w.measure(state)
		}
		w.asked = time.Now()
	} else if err == nil {
		err = w.err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := len(list) > 0
	if anew {
		w.list, w.life, changed = nil, w.life+1, true
	}
	w.list = append(w.list, list...)
	if state == nil {
		state = w.state
	}
	if !reflect.DeepEqual(state, w.state) || s != w.storage || (err == nil) != (w.err == nil) {
		w.state, w.storage, w.err, changed = state, s, err, true
		w.version++
	}
	if changed {
		close(w.news)
		w.news = make(chan struct{})
	}
}

// view is what a visitor has not seen yet.
type view struct {
	events  []events.Event
	life    int
	state   *control.RunState
	storage storage
	version int
	err     error
	next    <-chan struct{} // closed when there is more
}

// since returns what is new after so many events of a life.
func (w *watcher) since(life, events int) view {
	w.mu.Lock()
	defer w.mu.Unlock()
	if life != w.life {
		events = 0
	}
	return view{w.list[events:len(w.list):len(w.list)], w.life, w.state, w.storage, w.version, w.err, w.news}
}
