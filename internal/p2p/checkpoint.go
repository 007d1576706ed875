package p2p

import (
	"cmp"
	"slices"
)

// SavedMessage is a message that was sent and not yet received by the program.
type SavedMessage struct {
	Context uint32
	Source  int
	Tag     int
	Little  bool // byte order of the data
	Data    []byte
}

// Pause says that this rank is at a point where a checkpoint is being taken.
// From now on, messages that were sent after the checkpoint are deferred. The
// lock is held.
func (e *Engine) Pause() { e.paused = true }

// Pull sets whether announced messages are fetched before the program receives
// them. The lock is held.
func (e *Engine) Pull(on bool) {
	if e.pulling == on {
		return
	}
	if e.pulling = on; !on {
		return
	}
	for _, b := range e.matchers {
		for _, q := range b.unexpected {
			for _, m := range q {
				if m.id != 0 && !m.whole {
					e.fetch(m)
				}
			}
		}
	}
}

// Continue ends Pause. With next, a checkpoint was taken, and messages sent
// from now on belong to the time after it. The lock is held.
func (e *Engine) Continue(next bool) {
	e.paused = false
	if next {
		e.epoch++
	}
	late := e.deferred
	e.deferred = nil
	for _, m := range late {
		b := e.queues(m.ctx)
		if r := b.take(m.source, m.tag); r != nil {
			e.claim(m, r)
			continue
		}
		b.add(m)
		if e.pulling && m.id != 0 {
			e.fetch(m)
		}
	}
	e.sleep.broadcast()
}

// Capture returns the messages that the program has not received, in the order
// in which they came. All of them must be complete. Their data is not copied,
// and does not change. The lock is held.
//
// With alone, it leaves out messages that other ranks sent since the last
// restart: they were sent after the point at which each rank saves alone.
func (e *Engine) Capture(alone bool) []SavedMessage {
	all := e.waiting(alone)
	kept := make([]SavedMessage, len(all))
	for i, m := range all {
		kept[i] = SavedMessage{Context: m.ctx, Source: m.source, Tag: int(m.tag), Little: m.order&orderLittle != 0, Data: m.data}
	}
	return kept
}

// waiting returns the messages of Capture.
func (e *Engine) waiting(alone bool) []*message {
	var all []*message
	for _, b := range e.matchers {
		for _, q := range b.unexpected {
			for _, m := range q {
				if !alone || m.restored || m.source == e.rank {
					all = append(all, m)
				}
			}
		}
	}
	sortMessages(all)
	return all
}

// inject puts back messages that Capture returned, before anything else is
// received.
func (e *Engine) inject(kept []SavedMessage) {
	old := e.restoredFlags
	e.restoredFlags = nil
	for i, k := range kept {
		if k.Source < 0 || k.Source >= e.size {
			continue
		}
		m := e.newMessage(k.Source, &frame{ctx: k.Context, tag: int32(k.Tag)}, len(k.Data))
		m.data, m.whole, m.restored = k.Data, true, i >= len(old) || old[i]
		m.order = e.order &^ orderLittle
		if k.Little {
			m.order |= orderLittle
		}
		b := e.queues(k.Context)
		if r := b.take(m.source, m.tag); r != nil {
			e.deliver(m, r)
			continue
		}
		b.add(m)
	}
}

// Pending returns the number of receives that wait for a message. The lock is
// held.
func (e *Engine) Pending() int {
	n := 0
	for _, b := range e.matchers {
		n += b.receives
	}
	return n
}

// SaveReceive returns what to save of a receive: that it is done, or when it
// was posted. It counts the pending ones for SavedReceives. The lock is not
// held.
func (e *Engine) SaveReceive(r *Request) (done bool, posted uint64, st Status, err error) {
	e.lock()
	defer e.mu.Unlock()
	if r.done {
		return true, 0, e.status(r), r.err
	}
	e.saved++
	return false, r.posted, Status{}, nil
}

// SavedReceives returns how many pending receives SaveReceive has seen since
// the last call. The lock is held.
func (e *Engine) SavedReceives() int {
	n := e.saved
	e.saved = 0
	return n
}

// restoredReceive is a receive that was pending when a checkpoint was taken.
type restoredReceive struct {
	posted uint64
	post   func() (r *Request, ctx uint32, from int, tag int32, buf []byte, m *Memory, err error)
}

// RestoreReceive notes a pending receive of a checkpoint. RestoreInflight posts
// it. The lock is not held.
func (e *Engine) RestoreReceive(posted uint64, post func() (*Request, uint32, int, int32, []byte, *Memory, error)) {
	e.lock()
	defer e.mu.Unlock()
	e.restored = append(e.restored, restoredReceive{posted, post})
}

// RestoreInflight puts back what was in flight when a checkpoint was taken:
// first the noted receives, in the order in which they were posted, then the
// messages. With drop, it forgets the receives instead. The lock is held.
func (e *Engine) RestoreInflight(kept []SavedMessage, drop bool) error {
	list := e.restored
	e.restored = nil
	if drop {
		return nil
	}
	slices.SortFunc(list, func(a, b restoredReceive) int { return cmp.Compare(a.posted, b.posted) })
	e.resuming = true
	defer func() { e.resuming = false }()
	for _, a := range list {
		r, ctx, from, tag, buf, memory, err := a.post()
		if err == nil && memory != nil {
			buf, err = memory.Direct(true)
		}
		if err != nil {
			return err
		}
		e.receive(r, ctx, from, tag, buf, memory)
	}
	e.inject(kept)
	return nil
}
