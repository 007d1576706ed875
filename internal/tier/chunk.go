package tier

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"
)

// Chunk is a buffer for bytes on their way between two helpers. A chunk is sent
// with its length and its digest in front:
//
//	┌────────────┬──────────────────┬────────┐
//	│ length u32 │ XXH3-128 (16)    │ bytes  │
//	└────────────┴──────────────────┴────────┘
type Chunk []byte

// MaxChunk is the most bytes that a chunk has.
const MaxChunk = 1 << 20

const chunkHeader = 4 + 16

// ErrAltered means that bytes were changed on their way.
var ErrAltered = errors.New("bytes were altered on their way")

// NewChunk returns a buffer for chunks of at most n bytes, or of MaxChunk if n
// is larger.
func NewChunk(n int64) Chunk { return make(Chunk, chunkHeader+min(max(n, 0), MaxChunk)) }

// Data returns the memory for the bytes. A nil Chunk has none.
func (c Chunk) Data() []byte {
	if c == nil {
		return nil
	}
	return c[chunkHeader:]
}

// Send writes a chunk with the first n bytes of Data.
func (c Chunk) Send(w io.Writer, n int) error {
	binary.BigEndian.PutUint32(c, uint32(n))
	d := xxh3.Hash128(c.Data()[:n]).Bytes()
	copy(c[4:], d[:])
	_, err := w.Write(c[:chunkHeader+n])
	return err
}

// Receive reads a chunk of at most limit bytes and returns them.
func (c Chunk) Receive(r io.Reader, limit int64) ([]byte, error) {
	if _, err := io.ReadFull(r, c[:chunkHeader]); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(c))
	if n == 0 || n > limit || n > int64(len(c.Data())) {
		return nil, fmt.Errorf("%w: a chunk of %d bytes", ErrAltered, n)
	}
	data := c.Data()[:n]
	if _, err := io.ReadFull(r, data); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if d := xxh3.Hash128(data).Bytes(); string(d[:]) != string(c[4:chunkHeader]) {
		return nil, ErrAltered
	}
	return data, nil
}
