package p2p

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/cairnrun/cairn/internal/transport"
)

// Kinds of frames.
const (
	kindEager = iota + 1
	kindAnnounce
	kindReady
	kindData
	kindDone
	kindControl  // a message of the coordination, for the layer above
	kindBye      // this rank sends no more messages
	kindDetach   // the last frame before this link is closed, to be reopened or because the process is replaced
	kindReattach // cancels kindDetach: this link is used again
	kindRollback // what this rank sent before belongs to an abandoned time
)

// Bits of the byte order in frames.
const (
	orderLittle = 1 << iota // little-endian, otherwise big-endian
	orderNarrow             // an int has 32 bits, otherwise 64
)

// order is this machine's byte order and int size, as in frames.
var order = func() byte {
	o := byte(0)
	if one := uint16(1); *(*byte)(unsafe.Pointer(&one)) == 1 {
		o |= orderLittle
	}
	if bits.UintSize == 32 {
		o |= orderNarrow
	}
	return o
}()

// frame is a decoded header.
type frame struct {
	kind   byte
	order  byte
	ctx    uint32
	tag    int32
	epoch  uint32
	seq    uint64
	length uint64
	id     uint64
	other  uint64
}

func (f *frame) put(h *transport.Header) {
	h[0], h[1], h[2], h[3] = f.kind, f.order, 0, 0
	le := binary.LittleEndian
	le.PutUint32(h[4:], f.ctx)
	le.PutUint32(h[8:], uint32(f.tag))
	le.PutUint32(h[12:], f.epoch)
	le.PutUint64(h[16:], f.seq)
	le.PutUint64(h[24:], f.length)
	le.PutUint64(h[32:], f.id)
	le.PutUint64(h[40:], f.other)
}

func (f *frame) get(h *transport.Header) {
	le := binary.LittleEndian
	f.kind, f.order = h[0], h[1]
	f.ctx = le.Uint32(h[4:])
	f.tag = int32(le.Uint32(h[8:]))
	f.epoch = le.Uint32(h[12:])
	f.seq = le.Uint64(h[16:])
	f.length = le.Uint64(h[24:])
	f.id = le.Uint64(h[32:])
	f.other = le.Uint64(h[40:])
}

// address returns the address of p, for a peer that reads the memory.
func address(p []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) }

// maxLength is the maximum length in a frame: what a slice can have.
const maxLength = uint64(1)<<(bits.UintSize-2) - 1
