// Package erasure cuts an object into data shards and parity shards by a
// Reed–Solomon code, and rebuilds the object, and any shards, from as many
// shards as there are data shards. Memory is bounded, whatever the size of the
// object.
//
// An object is coded in stripes. A stripe has Data units of the object, one
// after the other, and Parity units that are computed from them:
//
//	object    │ 0 1 2 3 │ 4 5 6 7 │ 8 9 . . │       units; the last stripe is filled up with zeros
//	shard 0   │ 0       │ 4       │ 8       │
//	shard 1   │   1     │   5     │   9     │
//	shard 2   │     2   │     6   │     .   │
//	shard 3   │       3 │       7 │       . │
//	shard 4   │ p       │ p       │ p       │       parity
//	shard 5   │ q       │ q       │ q       │
//
// A shard begins with a header of 64 bytes; numbers are little-endian:
//
//	0   8   "cairnrs1"
//	8   2   data shards            16  4   bytes of a unit
//	10  2   parity shards          20  4   0
//	12  2   number of this shard   24  8   bytes of the object
//	14  2   0                      32  16  XXH3-128 of the object
//	48  16  XXH3-128 of the 48 bytes before
//
// Then come its units, each followed by its XXH3-128. The seed is stripe·256 +
// number, exclusive-or the first 8 bytes of the object's digest as a number: so
// a unit of another stripe, shard or object is found, too. The units of the
// last stripe are as long as they have to be, rounded up to 64 bytes. A digest
// is two numbers of 8 bytes, the high half first, each with its high byte
// first.
//
// The parity is that of github.com/klauspost/reedsolomon with its default
// matrix: a Vandermonde matrix whose upper square was made the identity. A
// damaged unit counts as missing in its stripe only. So even if all shards are
// damaged, the object can be rebuilt if every stripe has enough sound units.
package erasure

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/reedsolomon"
	"github.com/zeebo/xxh3"
)

// Code is a Reed–Solomon code.
type Code struct {
	Data   int // data shards
	Parity int // parity shards
}

func (c Code) String() string { return fmt.Sprintf("%d+%d", c.Data, c.Parity) }

// total returns the number of all shards.
func (c Code) total() int { return c.Data + c.Parity }

const maxTotal = 256

func (c Code) check() error {
	if c.Data < 1 || c.Parity < 1 || c.total() > maxTotal {
		return fmt.Errorf("there is no code %v: it has at least one data and one parity shard, and at most %d together", c, maxTotal)
	}
	return nil
}

// Digest is the XXH3-128 of an object.
type Digest [16]byte

func digestOf(h xxh3.Uint128) (d Digest) {
	binary.BigEndian.PutUint64(d[:8], h.Hi)
	binary.BigEndian.PutUint64(d[8:], h.Lo)
	return d
}

// Errors wrap one of these.
var (
	ErrDamaged = errors.New("damaged")            // a shard, or what was rebuilt
	ErrTooFew  = errors.New("too few shards")     // to rebuild the object
	ErrSource  = errors.New("the object differs") // from what it was said to be
)

// workers is how many stripes are coded at the same time.
const workers = 2

const (
	magic      = "cairnrs1"
	headerSize = 64
	digestSize = 16
	align      = 64
	maxUnit    = 64 << 10
	stripeSize = 512 << 10 // bytes of all units of a stripe: small, so that it stays in a processor's cache
)

// unit returns the bytes of a unit for a code.
func (c Code) unit() int {
	const page = 4096
	return min(maxUnit, max(page, stripeSize/c.total()/page*page))
}

// header is what a shard begins with.
type header struct {
	Code
	number int
	unit   int
	size   int64
	digest Digest
}

func (h *header) append(b []byte) []byte {
	start := len(b)
	b = append(b, magic...)
	for _, n := range []int{h.Data, h.Parity, h.number, 0} {
		b = binary.LittleEndian.AppendUint16(b, uint16(n))
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(h.unit))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.size))
	b = append(b, h.digest[:]...)
	d := digestOf(xxh3.Hash128(b[start:]))
	return append(b, d[:]...)
}

func parseHeader(b []byte) (h header, err error) {
	if len(b) != headerSize || string(b[:8]) != magic {
		return h, fmt.Errorf("%w: it does not begin as a shard does", ErrDamaged)
	}
	if d := digestOf(xxh3.Hash128(b[:48])); string(d[:]) != string(b[48:]) {
		return h, fmt.Errorf("%w: the digest of its header differs", ErrDamaged)
	}
	u16 := func(at int) int { return int(binary.LittleEndian.Uint16(b[at:])) }
	h.Data, h.Parity, h.number = u16(8), u16(10), u16(12)
	h.unit = int(binary.LittleEndian.Uint32(b[16:]))
	h.size = int64(binary.LittleEndian.Uint64(b[24:]))
	copy(h.digest[:], b[32:48])
	if err := h.check(); err != nil {
		return h, fmt.Errorf("%w: %v", ErrDamaged, err)
	}
	if h.number >= h.total() || h.unit < align || h.unit > maxUnit || h.unit%align != 0 || h.size < 0 {
		return h, fmt.Errorf("%w: shard %d of %v, units of %d, %d bytes", ErrDamaged, h.number, h.Code, h.unit, h.size)
	}
	return h, nil
}

// stripes returns the number of stripes.
func (h *header) stripes() int64 {
	full := int64(h.unit) * int64(h.Data)
	n := h.size / full
	if h.size%full > 0 {
		n++
	}
	return n
}

// data returns how many bytes of the object a stripe has, and the bytes of its
// units.
func (h *header) data(stripe int64) (bytes, unit int) {
	full := int64(h.unit) * int64(h.Data)
	rest := min(h.size-stripe*full, full)
	if rest == full {
		return int(full), h.unit
	}
	unit = (int(rest) + h.Data - 1) / h.Data
	return int(rest), (unit + align - 1) / align * align
}

// offset returns where the unit of a stripe begins in a shard.
func (h *header) offset(stripe int64) int64 {
	return headerSize + stripe*int64(h.unit+digestSize)
}

// ShardSize returns the bytes of each shard of an object.
func ShardSize(c Code, size int64) int64 {
	h := header{Code: c, unit: c.unit(), size: size}
	n := h.stripes()
	if n == 0 {
		return headerSize
	}
	_, last := h.data(n - 1)
	return h.offset(n-1) + int64(last) + digestSize
}

// unitDigest returns the digest of a unit.
func (h *header) unitDigest(unit []byte, stripe int64, number int) Digest {
	seed := (uint64(stripe)<<8 | uint64(number)) ^ binary.LittleEndian.Uint64(h.digest[:])
	return digestOf(xxh3.Hash128Seed(unit, seed))
}

// coders keeps coders: making one inverts a matrix.
var coders struct {
	sync.Mutex
	byRows map[coderKey]reedsolomon.Encoder
}

type coderKey struct {
	Code
	rows string // numbers of parity shards, one byte each; "": all
}

const maxCoders = 64

// coder returns a coder for the given parity shards, or for all.
func (c Code) coder(rows []int) (reedsolomon.Encoder, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	key := coderKey{Code: c}
	if len(rows) < c.Parity {
		for _, r := range rows {
			key.rows += string([]byte{byte(r)})
		}
	}
	coders.Lock()
	e := coders.byRows[key]
	coders.Unlock()
	if e != nil {
		return e, nil
	}
	e, err := reedsolomon.New(c.Data, c.Parity, reedsolomon.WithMaxGoroutines(1))
	if err != nil {
		return nil, err
	}
	if key.rows != "" {
		matrix, err := parityMatrix(c, e)
		if err != nil {
			return nil, err
		}
		var some [][]byte
		for _, r := range rows {
			some = append(some, matrix[r-c.Data])
		}
		if e, err = reedsolomon.New(c.Data, len(rows), reedsolomon.WithMaxGoroutines(1), reedsolomon.WithCustomMatrix(some)); err != nil {
			return nil, err
		}
	}
	coders.Lock()
	defer coders.Unlock()
	if len(coders.byRows) >= maxCoders || coders.byRows == nil {
		coders.byRows = make(map[coderKey]reedsolomon.Encoder)
	}
	coders.byRows[key] = e
	return e, nil
}

// parityMatrix returns the coefficients by which parity is computed: what an
// encoder makes of the unit vectors.
func parityMatrix(c Code, e reedsolomon.Encoder) ([][]byte, error) {
	shards := make([][]byte, c.total())
	for i := range shards {
		shards[i] = make([]byte, c.Data)
		if i < c.Data {
			shards[i][i] = 1
		}
	}
	if err := e.Encode(shards); err != nil {
		return nil, err
	}
	return shards[c.Data:], nil
}
