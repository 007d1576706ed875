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

// Pause says that this rank stands at a point where a set is being taken:
// messages that belong to the time after the set are kept aside from now on.
// The lock is held.
func (e *Engine) Pause() { e.paused = true }

// Pull says whether announced messages are fetched even if the program does
// not ask for them yet. The lock is held.
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

// Continue ends Pause. With next, a set was taken, and messages sent from now
// on belong to the time after it. The lock is held.
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

// Capture returns the messages that wait to be received, in the order in
// which they came. Their data is not copied, and stays as it is while the
// lock is held and after. The lock is held, and all are whole.
//
// With alone it leaves out what other ranks sent since the last restart: that
// was sent after the point at which each of them saves by itself.
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

// SaveReceive tells what to save of a receive: that it is done, or when it was
// posted. It counts those that are pending, see SavedReceives. The lock is not held.
func (e *Engine) SaveReceive(r *Request) (done bool, posted uint64, st Status, err error) {
	e.lock()
	defer e.mu.Unlock()
	if r.done {
		return true, 0, e.status(r), r.err
	}
	e.saved++
	return false, r.posted, Status{}, nil
}

// SavedReceives returns how many pending receives went through SaveReceive since it was
// called last. The lock is held.
func (e *Engine) SavedReceives() int {
	n := e.saved
	e.saved = 0
	return n
}

// restoredReceive is a receive that was pending when a set was taken.
type restoredReceive struct {
	posted uint64
	post   func() (r *Request, ctx uint32, from int, tag int32, buf []byte, err error)
}

// RestoreReceive takes note of a receive from a set. The lock is not held.
func (e *Engine) RestoreReceive(posted uint64, post func() (*Request, uint32, int, int32, []byte, error)) {
	e.lock()
	defer e.mu.Unlock()
	e.restored = append(e.restored, restoredReceive{posted, post})
}

// RestoreInflight puts back what was in flight when a set was taken: messages, and
// then the receives that were adopted, in the order in which they were
// posted. With drop, it forgets those instead. The lock is held.
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
		r, ctx, from, tag, buf, err := a.post()
		if err != nil {
			return err
		}
		e.receive(r, ctx, from, tag, buf)
	}
	e.inject(kept)
	return nil
}
