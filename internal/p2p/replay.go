package p2p

import "fmt"

// A process that takes the place of another one runs the program's start
// again, and what a program exchanges before its state is restored has no
// partner there: the others did that long ago. So every rank keeps what it got
// then, and its successor is given the same messages, while what it sends is
// dropped.

// recording is what came before the state was restored.
type recording struct {
	list  []*SavedMessage
	bytes int
	limit int
	on    bool
	over  bool // there was more than the limit
}

// Record begins to keep what comes from other ranks, up to a number of bytes,
// until EndRecord. It is called before Connect.
func (e *Engine) Record(limit int) { e.recording = recording{limit: limit, on: true} }

// EndRecord ends it.
func (e *Engine) EndRecord() {
	e.lock()
	defer e.mu.Unlock()
	e.recording.on = false
}

// Recorded returns what was kept, for Replay. The lock is not held.
func (e *Engine) Recorded() ([]SavedMessage, error) {
	e.lock()
	defer e.mu.Unlock()
	if e.recording.over {
		return nil, fmt.Errorf("the program has exchanged more than %d MiB before Restore, and its successor would need them again", e.recording.limit>>20)
	}
	var list []SavedMessage
	for _, k := range e.recording.list {
		list = append(list, *k)
	}
	return list, nil
}

// Replay gives the program of an engine that is not connected what another
// process got in its place, and drops what it sends to other ranks, until
// SetCounters.
func (e *Engine) Replay(list []SavedMessage) {
	e.lock()
	defer e.mu.Unlock()
	for i := range list {
		e.recording.list = append(e.recording.list, &list[i]) // for its own successor
		e.recording.bytes += len(list[i].Data)
	}
	e.replaying = true
	e.inject(list)
}

// endReplay drops what the program has not taken. The lock is held.
func (e *Engine) endReplay() error {
	if !e.replaying {
		return nil
	}
	if n := e.Pending(); n > 0 {
		return fmt.Errorf("%d receives that the program has begun before Restore are pending", n)
	}
	e.replaying = false
	clear(e.matchers)
	e.lastQueues = nil
	for i := range e.peers {
		e.peers[i].taken = 0
	}
	return nil
}

// record begins to keep a message; its data comes later.
func (e *Engine) record(from int, f *frame, n int) *SavedMessage {
	r := &e.recording
	if !r.on || r.over {
		return nil
	}
	if r.bytes += n; r.bytes > r.limit {
		r.list, r.over = nil, true
		return nil
	}
	k := &SavedMessage{Context: f.ctx, Source: from, Tag: int(f.tag), Little: f.order&orderLittle != 0}
	r.list = append(r.list, k)
	return k
}

// setData is what came of it.
func (k *SavedMessage) setData(data []byte) {
	if k != nil {
		k.Data = append([]byte(nil), data...)
	}
}
