// Package zstd has the part of github.com/klauspost/compress/zstd that Cairn's
// run time uses, and replaces it in programs that Cairn builds, which can rely
// on the standard library only. It decompresses, by an internal package of the
// standard library. It does not compress: under 'cairn run', a process of Cairn
// does that.
package zstd

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// ErrDecoderSizeExceeded says that the output is larger than the room for it.
var ErrDecoderSizeExceeded = errors.New("zstd: more bytes than there is room for")

// ErrNoEncoder says that this program cannot compress.
var ErrNoEncoder = errors.New("zstd compression is not part of programs that Cairn builds; " +
	"start the program by 'cairn run', which compresses for it, or choose Gzip")

// stream reads a compressed stream.
type stream interface {
	io.Reader
	Reset(io.Reader)
}

// Decoder decompresses. Goroutines may share one.
type Decoder struct{ streams sync.Pool }

// DOption is an option of NewReader.
type DOption struct{}

// WithDecoderConcurrency has no effect: a Decoder has no limit.
func WithDecoderConcurrency(int) DOption { return DOption{} }

// WithDecodeAllCapLimit has no effect: DecodeAll always keeps to dst's
// capacity.
func WithDecodeAllCapLimit(bool) DOption { return DOption{} }

// NewReader returns a Decoder for DecodeAll. r must be nil.
func NewReader(r io.Reader, _ ...DOption) (*Decoder, error) {
	if r != nil {
		return nil, errors.New("zstd: only DecodeAll is there")
	}
	return &Decoder{}, nil
}

// DecodeAll appends the decompressed input to dst, within dst's capacity.
func (d *Decoder) DecodeAll(input, dst []byte) ([]byte, error) {
	in := bytes.NewReader(input)
	s, _ := d.streams.Get().(stream)
	if s == nil {
		s = newStream(in)
	} else {
		s.Reset(in)
	}
	// A stream that failed is not used again.
	for {
		if len(dst) == cap(dst) {
			var one [1]byte
			switch n, err := s.Read(one[:]); {
			case n > 0:
				return dst, ErrDecoderSizeExceeded
			case err == io.EOF:
				d.streams.Put(s)
				return dst, nil
			case err != nil:
				return dst, err
			}
			continue
		}
		n, err := s.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if err == io.EOF {
			d.streams.Put(s)
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}

// Encoder compresses. There is none.
type Encoder struct{}

// EncoderLevel is how much an Encoder compresses.
type EncoderLevel int

// EOption is an option of NewWriter.
type EOption struct{}

// EncoderLevelFromZstd returns the EncoderLevel for a level of the original.
func EncoderLevelFromZstd(level int) EncoderLevel { return EncoderLevel(level) }

// WithEncoderLevel has no effect.
func WithEncoderLevel(EncoderLevel) EOption { return EOption{} }

// WithEncoderCRC has no effect.
func WithEncoderCRC(bool) EOption { return EOption{} }

// NewWriter returns ErrNoEncoder.
func NewWriter(io.Writer, ...EOption) (*Encoder, error) { return nil, ErrNoEncoder }

// EncodeAll is never reached: there is no Encoder.
func (*Encoder) EncodeAll(_, dst []byte) []byte { return dst }
