package p2p

import "fmt"

// A process that takes over a rank runs the start of the program again. The
// other ranks did so long ago, and do not repeat the messages that the program
// exchanges before its state is restored. So every rank records the messages
// that it received then. Its successor gets the same messages, and what it
// sends is dropped.

// recording holds the messages that came before the state was restored.
type recording struct {
	list  []*SavedMessage
	bytes int
	limit int
	on    bool
	over  bool // the messages exceeded the limit
}

// Record begins to record messages from other ranks, up to limit bytes, until
// EndRecord. It is called before Connect.
func (e *Engine) Record(limit int) { e.recording = recording{limit: limit, on: true} }

// EndRecord ends the recording.
func (e *Engine) EndRecord() {
	e.lock()
	defer e.mu.Unlock()
	e.recording.on = false
}

// Recorded returns the recorded messages, for Replay. The lock is not held.
func (e *Engine) Recorded() ([]SavedMessage, error) {
	e.lock()
	defer e.mu.Unlock()
	if e.recording.over {
		return nil, fmt.Errorf("the program received more than %d MiB before Restore, which its successor would need again", e.recording.limit>>20)
	}
	var list []SavedMessage
	for _, k := range e.recording.list {
		list = append(list, *k)
	}
	return list, nil
}

// Replay gives the program of an unconnected engine the messages that another
// process recorded. Until SetCounters, it drops what the program sends to other
// ranks.
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

// endReplay drops messages that the program has not received. The lock is held.
func (e *Engine) endReplay() error {
	if !e.replaying {
		return nil
	}
	if n := e.Pending(); n > 0 {
		return fmt.Errorf("%d receives that the program started before Restore are pending", n)
	}
	e.replaying = false
	clear(e.matchers)
	e.lastQueues = nil
	for i := range e.peers {
		e.peers[i].taken = 0
	}
	return nil
}

// record begins to record a message. setData adds its data later.
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

// addData adds a part of the data of a recorded message. k may be nil.
func (k *SavedMessage) addData(part []byte) {
	if k != nil {
		k.Data = append(k.Data, part...)
	}
}

// setData sets the data of a recorded message. k may be nil.
func (k *SavedMessage) setData(data []byte) {
	if k != nil {
		k.Data = append([]byte(nil), data...)
	}
}
