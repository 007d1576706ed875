package shm

import (
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/cairnrun/cairn/internal/transport"
)

const (
	line     = 64                              // records begin at multiples of line
	inline   = line - 8 - transport.HeaderSize // largest payload that fits into the line of its header
	ahead    = 4 * line                        // how far in advance words are zeroed
	minRing  = 4 << 10
	maxRing  = 1 << 30
	maxFrame = min(1<<40, math.MaxInt) // a longer payload is invalid
)

// Kinds of records.
const (
	kindShort = 1 + iota
	kindFirst
	kindMore
	kindBye
)

// Offsets in the control page.
const (
	offRead     = 0
	offBlocked  = 64
	offGone     = 72
	offAttached = 128
	offAttacher = 136
)

// word returns a pointer to the word at an offset of mapped memory. All access
// must be atomic.
func word(m []byte, off uint64) *uint64 {
	_ = m[off+7]
	return (*uint64)(unsafe.Pointer(&m[off]))
}

// writer is the writing end of a ring. The fields belong to the writer; the
// memory is shared.
type writer struct {
	data  []byte  // the ring
	read  *uint64 // set by the reader
	mask  uint64
	pos   uint64 // position of the next record, counted from the first byte ever written
	seen  uint64 // the last known value of read
	clean uint64 // words at multiples of line in [pos, clean) are 0
	bad   bool   // the reader's position is invalid
	bell  bell   // wakes the reader
}

func newWriter(control, data []byte, b bell) writer {
	n := uint64(len(data))
	return writer{data: data, read: word(control, offRead), mask: n - 1, clean: n, bell: b}
}

// piece returns the maximum payload of one record.
func (w *writer) piece() int { return len(w.data) / 8 }

// room reports whether a record with n bytes after its first line fits.
func (w *writer) room(n int) bool {
	need := w.pos + size(n) + line // the word of the next record must be writable, too
	if need-w.seen <= uint64(len(w.data)) {
		return true
	}
	seen := atomic.LoadUint64(w.read)
	if seen-w.seen > w.pos-w.seen {
		w.bad = true
		return false
	}
	w.seen = seen
	return need-seen <= uint64(len(w.data))
}

// size returns the size of a record with n bytes after its first line.
func size(n int) uint64 { return line + (uint64(n)+line-1)&^(line-1) }

// publish completes the record of a kind and size that was written at pos. It
// has n bytes of payload.
func (w *writer) publish(kind, n int, size uint64) {
	at := w.pos
	next := at + size
	if w.clean < next+line {
		*word(w.data, next&w.mask) = 0
		w.clean = next + line
	}
	w.pos = next
	atomic.StoreUint64(word(w.data, at&w.mask), uint64(n)<<8|uint64(kind))
	w.bell.ring()
	// Zero more words, after the record has become visible.
	for w.clean < next+ahead && w.clean+line-w.seen <= uint64(len(w.data)) {
		*word(w.data, w.clean&w.mask) = 0
		w.clean += line
	}
}

// short writes a whole frame with at most inline bytes of payload. There must
// be room.
func (w *writer) short(h *transport.Header, payload []byte) {
	at := w.data[w.pos&w.mask:][:line]
	*(*transport.Header)(at[8:]) = *h
	switch len(payload) {
	case 0:
	case 1:
		at[line-inline] = payload[0]
	default:
		copy(at[line-inline:], payload)
	}
	w.publish(kindShort, len(payload), line)
}

// push writes as much of a frame as there is room for: the header if off is 0,
// then the payload from off on. It returns how much of the payload is written,
// and whether the frame is complete.
func (w *writer) push(h *transport.Header, payload []byte, off int) (int, bool) {
	if len(payload) <= inline {
		if !w.room(0) {
			return 0, false
		}
		w.short(h, payload)
		return len(payload), true
	}
	for off < len(payload) {
		n := min(len(payload)-off, w.piece())
		if !w.room(n) {
			return off, false
		}
		i := w.pos & w.mask
		kind := kindMore
		if off == 0 {
			kind = kindFirst
			*(*transport.Header)(w.data[i+8:]) = *h
			*word(w.data, i+line-8) = uint64(len(payload))
		}
		from := payload[off : off+n]
		done := copy(w.data[(i+line)&w.mask:], from)
		copy(w.data, from[done:])
		w.publish(kind, n, size(n))
		off += n
	}
	return off, true
}

// bye writes the last record. There must be room.
func (w *writer) bye() { w.publish(kindBye, 0, line) }

// reader is the reading end of a ring.
type reader struct {
	data      []byte // the ring
	read      *uint64
	mask      uint64
	pos       uint64 // position of the next record
	published uint64 // the value that was last stored in read
	// The following fields describe a frame that is not complete yet.
	head transport.Header
	buf  []byte // buffer for the whole payload
	off  int    // bytes of it that have been received
}

func newReader(control, data []byte) reader {
	return reader{data: data, read: word(control, offRead), mask: uint64(len(data)) - 1}
}

// ready reports whether there is a record.
func (r *reader) ready() bool { return atomic.LoadUint64(word(r.data, r.pos&r.mask)) != 0 }

// advance moves to the next record, and reports whether it has told the writer
// its position.
func (r *reader) advance(size uint64) bool {
	r.pos += size
	if r.pos-r.published < uint64(len(r.data))/4 {
		return false
	}
	r.published = r.pos
	atomic.StoreUint64(r.read, r.pos)
	return true
}

// next reads one record and calls h, unless h is nil. told says that the writer
// was told about more room. After an error the ring is unusable; ErrClosed
// means that this was the last record. There must be a record.
func (r *reader) next(peer int, h transport.Handler) (told bool, err error) {
	i := r.pos & r.mask
	w := atomic.LoadUint64(word(r.data, i))
	kind, n := w&0xff, w>>8
	switch {
	case kind == kindShort && n <= inline && r.buf == nil:
		// Copy the header: a faulty writer may change it at any time.
		r.head = transport.Header(r.data[i+8:])
		if h != nil {
			if n == 0 {
				h.Arriving(peer, &r.head, 0)
				h.Arrived(peer, &r.head, nil)
			} else {
				buf := fit(h.Arriving(peer, &r.head, int(n)), int(n))
				copy(buf, r.data[i+line-inline:])
				h.Arrived(peer, &r.head, buf)
			}
		}
		return r.advance(line), nil
	case kind == kindFirst && r.buf == nil:
		total := *word(r.data, i+line-8)
		if total > maxFrame || n > total || n > uint64(len(r.data))/8 || n == 0 {
			return false, fmt.Errorf("%w: a frame of %d bytes begins with %d", ErrCorrupt, total, n)
		}
		r.head = transport.Header(r.data[i+8:])
		if h == nil {
			return r.advance(size(int(n))), nil
		}
		r.buf, r.off = fit(h.Arriving(peer, &r.head, int(total)), int(total)), 0
	case kind == kindMore && h == nil && n <= uint64(len(r.data))/8:
		return r.advance(size(int(n))), nil
	case kind == kindMore && r.buf != nil && n > 0 && n <= uint64(len(r.data))/8 && n <= uint64(len(r.buf)-r.off):
	case kind == kindBye && n == 0 && r.buf == nil:
		return false, ErrClosed
	default:
		return false, fmt.Errorf("%w: a record says %#x at %d", ErrCorrupt, w, r.pos)
	}
	to := r.buf[r.off:][:n]
	done := copy(to, r.data[(i+line)&r.mask:])
	copy(to[done:], r.data)
	r.off += int(n)
	told = r.advance(size(int(n)))
	if r.off == len(r.buf) {
		buf := r.buf
		r.buf = nil
		h.Arrived(peer, &r.head, buf)
	}
	return told, nil
}

// fit returns buf, and panics unless it has n bytes.
func fit(buf []byte, n int) []byte {
	if len(buf) != n {
		panic(fmt.Sprintf("shm: Arriving returned %d bytes for a payload of %d", len(buf), n))
	}
	return buf
}
