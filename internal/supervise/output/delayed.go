//go:build linux

package output

import (
	"math"
	"os"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/vfs"
)

// delayed is the state of a stream of which only a part may be shown: what was
// printed before a checkpoint, if the ranks never return to an older one.
// Goroutines or ranks may print in another order after a restart. What is in a
// pipe then cannot be taken back, so it must not be there yet. The rest stays
// in the rank's file, which the rank cuts when it restores a checkpoint. Sink's
// mutex guards the fields.
//
//	rank's file  ├────────────┼──────────────┼───────────────┤
//	             0            offset         committed       received
//	                          shown          may be shown
type delayed struct {
	on        bool
	committed int64     // may be shown up to here
	received  int64     // the rank's file is that of the current launch up to here
	compare   bool      // the tail must be compared with the file first
	queued    bool      // a piece in the queue makes run show the stream
	since     time.Time // when the oldest output that is delayed came; zero: there is none
}

// start begins a launch whose output comes from an offset on.
func (h *delayed) start(from int64) {
	h.committed, h.received, h.compare, h.since = 0, from, true, time.Time{}
}

// take notes a piece that has come, or that the file was cut.
func (h *delayed) take(out *control.Output) {
	h.received = out.Offset + int64(len(out.Data))
	switch {
	case out.Data == nil:
		h.compare = true
	case h.since.IsZero():
		h.since = time.Now()
	}
}

// Commit says that the ranks will never return to a checkpoint older than one
// in which a rank's stdout has that size. What was printed before it may be
// shown.
func (k *Sink) Commit(rank int, size int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	st := &k.ranks[rank][0]
	if !st.delayed.on {
		return
	}
	if size < st.offset-int64(len(st.tail)) { // too old to be compared
		st.again = true
	}
	st.delayed.committed = max(st.delayed.committed, size)
	k.showDelayed(rank)
}

// CommitAll says that the ranks are not started again, so that all of their
// output may be shown.
func (k *Sink) CommitAll() { k.commitAll(false) }

// commitAll does that. With whole, the ranks' files have all of their output.
func (k *Sink) commitAll(whole bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for r := range k.ranks {
		h := &k.ranks[r][0].delayed
		if !h.on {
			continue
		}
		h.committed = math.MaxInt64
		if whole {
			h.received = math.MaxInt64
		}
		k.showDelayed(r)
	}
}

// DelayedSince returns since when output is delayed; zero: none is.
func (k *Sink) DelayedSince() (since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for r := range k.ranks {
		if h := &k.ranks[r][0].delayed; h.on && !h.since.IsZero() && (since.IsZero() || h.since.Before(since)) {
			since = h.since
		}
	}
	return since
}

// showDelayed makes run show what may be shown of a rank's stdout.
func (k *Sink) showDelayed(rank int) {
	st := &k.ranks[rank][0]
	if st.delayed.queued || k.stuck || st.next() >= st.limit() {
		return
	}
	st.delayed.queued = true
	k.queue = append(k.queue, piece{from: &control.FromRank{Process: control.Process{Rank: rank}}, Output: &control.Output{Stream: control.Stdout}})
	k.some.Broadcast()
}

// next returns from where on the file is read to show more.
func (st *stream) next() int64 {
	if st.delayed.compare {
		return st.offset - int64(len(st.tail))
	}
	return st.offset
}

// limit returns up to where a stream may be shown.
func (st *stream) limit() int64 { return min(st.delayed.committed, st.delayed.received) }

// release shows what may be shown of a rank's stdout, from its file.
func (k *Sink) release(rank int) {
	st := &k.ranks[rank][0]
	k.mu.Lock()
	st.delayed.queued = false
	at := st.next()
	k.mu.Unlock()
	f, err := vfs.OpenPrivate(rundir.OutputFile(k.o.RankOutput, rank, control.Stdout), os.O_RDONLY)
	if err != nil { // it comes with the next piece, or at the end
		return
	}
	defer f.Close()
	data := make([]byte, tailSize)
	for {
		k.mu.Lock()
		k.began = time.Now()
		left := st.limit() - at
		stop := k.stuck || k.closed
		k.mu.Unlock()
		if stop || left <= 0 {
			break
		}
		n, _ := f.ReadAt(data[:min(left, int64(len(data)))], at)
		if n == 0 {
			break
		}
		k.show(piece{from: &control.FromRank{Process: control.Process{Rank: rank}}, Output: &control.Output{Stream: control.Stdout, Offset: at, Data: data[:n]}})
		at += int64(n)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	st.delayed.compare = st.delayed.compare && at < st.offset
	switch {
	case st.offset >= st.delayed.received:
		st.delayed.since = time.Time{}
	case !st.delayed.since.IsZero():
		st.delayed.since = time.Now()
	}
}
