package p2p

import (
	"cmp"
	"slices"
)

// message is a message that has arrived or was announced, and that the program
// has not received yet.
type message struct {
	source   int
	ctx      uint32
	tag      int32
	epoch    uint32
	order    byte
	arrival  uint64
	length   int
	data     []byte // payload; nil until it is being fetched
	whole    bool   // the payload is complete
	id       uint64 // number of the sender's request, if it was announced
	addr     uint64 // address of the payload in the sender's memory; 0: ask the sender to send it
	asked    bool   // it was announced, and its payload was requested
	restored bool   // it is from before a restart: its sender does not count it
	want     *Request
	recorded *SavedMessage // see Record
}

// queue is a list from which usually the first element is removed.
type queue[T comparable] []T

func (q *queue[T]) remove(v T) {
	s := *q
	if i := slices.Index(s, v); i > 0 {
		*q = slices.Delete(s, i, i+1)
	} else if i == 0 {
		var none T
		s[0] = none
		*q = s[1:]
		if len(s) == 1 {
			*q = s[:0]
		}
	}
}

// matchQueues holds the posted receives and the unexpected messages of one
// context.
type matchQueues struct {
	posted     []queue[*Request] // by source plus 1; 0: any
	unexpected []queue[*message] // by source, in the order of arrival
	messages   int
	receives   int
}

func (e *Engine) queues(ctx uint32) *matchQueues {
	if e.lastQueues != nil && e.lastCtx == ctx {
		return e.lastQueues
	}
	b := e.matchers[ctx]
	if b == nil {
		b = &matchQueues{posted: make([]queue[*Request], e.size+1), unexpected: make([]queue[*message], e.size)}
		e.matchers[ctx] = b
	}
	e.lastCtx, e.lastQueues = ctx, b
	return b
}

// take finds the oldest receive that matches a message (source, tag), and
// removes it.
func (b *matchQueues) take(source int, tag int32) *Request {
	if b.receives == 0 {
		return nil
	}
	r := firstPosted(b.posted[source+1], tag)
	if any := firstPosted(b.posted[0], tag); any != nil && (r == nil || any.posted < r.posted) {
		r = any
	}
	if r != nil {
		b.unpost(r)
	}
	return r
}

func firstPosted(q queue[*Request], tag int32) *Request {
	for _, r := range q {
		if r.tag == Any || r.tag == tag {
			return r
		}
	}
	return nil
}

func (b *matchQueues) post(r *Request) {
	b.posted[r.peer+1] = append(b.posted[r.peer+1], r)
	b.receives++
}

func (b *matchQueues) unpost(r *Request) {
	b.posted[r.peer+1].remove(r)
	b.receives--
}

func (b *matchQueues) add(m *message) {
	b.unexpected[m.source] = append(b.unexpected[m.source], m)
	b.messages++
}

func (b *matchQueues) remove(m *message) {
	b.unexpected[m.source].remove(m)
	b.messages--
}

// find returns the message that a receive (source, tag) takes: the oldest of
// its source, or with any source the one that came first.
func (b *matchQueues) find(source int, tag int32) *message {
	if b.messages == 0 {
		return nil
	}
	if source != Any {
		return firstWaiting(b.unexpected[source], tag)
	}
	var first *message
	for _, q := range b.unexpected {
		if m := firstWaiting(q, tag); m != nil && (first == nil || m.arrival < first.arrival) {
			first = m
		}
	}
	return first
}

func firstWaiting(q queue[*message], tag int32) *message {
	for _, m := range q {
		if tag == Any || m.tag == tag {
			return m
		}
	}
	return nil
}

// sortMessages sorts messages by their arrival.
func sortMessages(m []*message) {
	slices.SortFunc(m, func(a, b *message) int { return cmp.Compare(a.arrival, b.arrival) })
}
