package hdf5

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"sync"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// Filter is one step of a chunk's pipeline. Filters are listed in the order in
// which the writer applies them.
type Filter struct {
	ID     uint16
	Params []uint32
}

// Registered filter identifiers.
const (
	FilterDeflate    = 1
	FilterShuffle    = 2
	FilterFletcher32 = 3
	FilterZstd       = 32015
)

// Shuffle puts the first bytes of all elements first, then the second bytes,
// and so on.
func Shuffle(elemSize int) Filter { return Filter{FilterShuffle, []uint32{uint32(elemSize)}} }

// Deflate compresses with zlib at level 0 to 9.
func Deflate(level int) Filter { return Filter{FilterDeflate, []uint32{uint32(level)}} }

// Zstd compresses with Zstandard, at a level of the zstd tool. The HDF5 library
// needs a plugin to read it.
func Zstd(level int) Filter { return Filter{FilterZstd, []uint32{uint32(level)}} }

func (f Filter) String() string {
	switch f.ID {
	case FilterDeflate:
		return "deflate"
	case FilterShuffle:
		return "shuffle"
	case FilterFletcher32:
		return "fletcher32"
	case FilterZstd:
		return "zstd"
	}
	return fmt.Sprintf("filter %d", f.ID)
}

func (f Filter) param() int {
	if len(f.Params) == 0 {
		return 0
	}
	return int(int32(f.Params[0]))
}

// growth returns an upper bound of how many bytes one stored byte can decode
// to.
func (f Filter) growth() uint64 {
	switch f.ID {
	case FilterDeflate:
		return 1032
	case FilterZstd:
		return 1 << 15 // a block of 128 KiB may take 4 bytes
	}
	return 1
}

// decodable reports whether stored bytes can decode to a chunk of want bytes.
// If not, nothing is allocated for the chunk.
func decodable(filters []Filter, mask uint32, stored, want uint64) bool {
	limit := stored
	for i, f := range filters {
		if mask>>i&1 == 0 {
			g, ok := mul(limit, f.growth())
			if !ok {
				return true
			}
			limit = g
		}
	}
	return want <= limit
}

var scratch = sync.Pool{New: func() any { return new([]byte) }}

// DecodeChunk undoes the filters of a stored chunk. If bit i of mask is set,
// filter i was not applied. len(dst) is the size of the chunk before filtering,
// and the result has exactly that length: it is dst, or stored itself if there
// was nothing to undo. Anything else is ErrCorrupt. A hostile chunk cannot make
// DecodeChunk allocate more than a small multiple of len(dst).
func DecodeChunk(filters []Filter, mask uint32, stored, dst []byte) ([]byte, error) {
	if len(filters) > 32 {
		return nil, fmt.Errorf("%w: %d filters on a chunk", ErrUnsupported, len(filters))
	}
	tmp := scratch.Get().(*[]byte)
	defer scratch.Put(tmp)
	cur := stored
	for i := len(filters) - 1; i >= 0; i-- {
		if mask>>i&1 != 0 {
			continue
		}
		f := filters[i]
		// The last step writes to dst, the step before it to tmp, and so on. A
		// step before the last one may produce more bytes than the chunk has,
		// because of the overhead of the filters that are undone after it.
		room := dst
		if moves, kept := movesBefore(filters[:i], mask); moves%2 == 1 || !kept || overlap(dst, cur) {
			limit := len(dst) + len(dst)/64 + 4096
			if cap(*tmp) < limit || overlap(*tmp, cur) {
				*tmp = make([]byte, limit)
			}
			room = (*tmp)[:limit]
		}
		var err error
		switch f.ID {
		case FilterFletcher32:
			if len(cur) < 4 {
				return nil, fmt.Errorf("%w: chunk too short for its checksum", ErrCorrupt)
			}
			sum, want := fletcher32(cur[:len(cur)-4]), le.Uint32(cur[len(cur)-4:])
			// Early versions of the library swapped the bytes of each half.
			if sum != want && bits.ReverseBytes32(bits.RotateLeft32(sum, 16)) != want {
				return nil, fmt.Errorf("%w: chunk has checksum %#x and not %#x", ErrCorrupt, sum, want)
			}
			cur = cur[:len(cur)-4]
			continue
		case FilterShuffle:
			if f.param() <= 1 || len(cur) < f.param() {
				continue
			}
			if len(room) < len(cur) {
				return nil, fmt.Errorf("%w: chunk of %d bytes should have %d", ErrCorrupt, len(cur), len(dst))
			}
			unshuffle(room[:len(cur)], cur, f.param())
			cur = room[:len(cur)]
		case FilterDeflate:
			cur, err = inflate(cur, room)
		case FilterZstd:
			cur, err = unzstd(cur, room)
		default:
			return nil, fmt.Errorf("%w: %s", ErrUnsupported, f)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %v", ErrCorrupt, f, err)
		}
	}
	if len(cur) != len(dst) {
		return nil, fmt.Errorf("%w: chunk of %d bytes should have %d", ErrCorrupt, len(cur), len(dst))
	}
	if overlap(*tmp, cur) { // the pool must not keep a buffer that is still in use
		copy(dst, cur)
		cur = dst
	}
	return cur, nil
}

// movesBefore returns how many of the filters that are still to be undone copy
// the chunk, and whether all of them keep its size.
func movesBefore(filters []Filter, mask uint32) (moves int, kept bool) {
	kept = true
	for i, f := range filters {
		if mask>>i&1 != 0 {
			continue
		}
		if f.ID != FilterShuffle {
			kept = false
		}
		if f.ID != FilterFletcher32 {
			moves++
		}
	}
	return moves, kept
}

// overlap reports whether p starts where buf starts. Slices that share memory
// here always start at the same address.
func overlap(buf, p []byte) bool {
	return cap(buf) > 0 && cap(p) > 0 && &buf[:1][0] == &p[:1][0]
}

var zlibReaders sync.Pool

// inflate decompresses all of src into room and returns the used part of room.
func inflate(src, room []byte) ([]byte, error) {
	in := bytes.NewReader(src)
	z, _ := zlibReaders.Get().(io.ReadCloser)
	if z == nil {
		var err error
		if z, err = zlib.NewReader(in); err != nil {
			return nil, err
		}
	} else if err := z.(zlib.Resetter).Reset(in, nil); err != nil {
		return nil, err
	}
	defer zlibReaders.Put(z)
	n, err := io.ReadFull(z, room)
	switch err {
	case io.EOF, io.ErrUnexpectedEOF:
		// ReadFull does not report whether the stream ended correctly. The end
		// of the stream is sticky, so read once more.
		if _, err = z.Read(make([]byte, 1)); err != io.EOF {
			return nil, io.ErrUnexpectedEOF
		}
	case nil:
		var one [1]byte
		switch k, err := z.Read(one[:]); {
		case k > 0:
			return nil, errors.New("more bytes than the chunk has")
		case err != io.EOF:
			return nil, err
		}
	default:
		return nil, err
	}
	return room[:n], nil
}

var zstdReader = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true))
})

func unzstd(src, room []byte) ([]byte, error) {
	d, err := zstdReader()
	if err != nil {
		return nil, err
	}
	return d.DecodeAll(src, room[:0:len(room)])
}

// EncodeChunk applies filters to src. It uses the capacity of dst for the
// result if possible. If the result is not smaller than src, EncodeChunk
// returns src itself and a mask that skips every filter.
func EncodeChunk(filters []Filter, src, dst []byte) (out []byte, mask uint32, err error) {
	if len(filters) > 32 {
		return nil, 0, fmt.Errorf("%w: %d filters on a chunk", ErrUnsupported, len(filters))
	}
	tmp := scratch.Get().(*[]byte)
	defer scratch.Put(tmp)
	cur, free, other := src, dst[:0], (*tmp)[:0]
	owned := false // cur is not src
	for _, f := range filters {
		switch f.ID {
		case FilterShuffle:
			if f.param() <= 1 || len(cur) < f.param() {
				continue
			}
			if cap(free) < len(cur) {
				free = make([]byte, len(cur))
			}
			free = free[:len(cur)]
			shuffle(free, cur, f.param())
		case FilterFletcher32:
			free = append(free[:0], cur...)
			free = le.AppendUint32(free, fletcher32(cur))
		case FilterDeflate:
			free, err = deflate(cur, free[:0], f.param())
		case FilterZstd:
			free, err = enzstd(cur, free[:0], f.param())
		default:
			err = fmt.Errorf("%w: %s", ErrUnsupported, f)
		}
		if err != nil {
			return nil, 0, err
		}
		if owned {
			cur, free = free, cur
		} else {
			cur, free, owned = free, other, true
		}
	}
	if len(cur) >= len(src) {
		if owned {
			keepScratch(tmp, cur, free, dst)
		}
		return src, uint32(1<<len(filters) - 1), nil
	}
	if overlap(*tmp, cur) { // the pool must not keep a buffer that is still in use
		free = append(free[:0], cur...)
		cur, free = free, cur
	}
	keepScratch(tmp, free, nil, dst)
	return cur, 0, nil
}

// keepScratch gives the larger of a and b to the pool, unless it belongs to the
// caller.
func keepScratch(tmp *[]byte, a, b, dst []byte) {
	for _, p := range [][]byte{a, b} {
		if cap(p) > cap(*tmp) && !overlap(dst, p) {
			*tmp = p[:0]
		}
	}
}

var zlibWriters [10]sync.Pool // by level

func deflate(src, dst []byte, level int) ([]byte, error) {
	level = min(max(level, 0), 9)
	out := bytes.NewBuffer(dst)
	z, _ := zlibWriters[level].Get().(*zlib.Writer)
	if z == nil {
		var err error
		if z, err = zlib.NewWriterLevel(out, level); err != nil {
			return nil, err
		}
	} else {
		z.Reset(out)
	}
	if _, err := z.Write(src); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	zlibWriters[level].Put(z)
	return out.Bytes(), nil
}

var zstdWriters sync.Map // zstd.EncoderLevel → *zstd.Encoder

func enzstd(src, dst []byte, level int) ([]byte, error) {
	l := zstd.EncoderLevelFromZstd(level)
	e, ok := zstdWriters.Load(l)
	if !ok {
		n, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(l), zstd.WithEncoderCRC(false))
		if err != nil {
			return nil, err
		}
		e, _ = zstdWriters.LoadOrStore(l, n)
	}
	return e.(*zstd.Encoder).EncodeAll(src, dst), nil
}
