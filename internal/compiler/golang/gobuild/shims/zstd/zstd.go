// Package zstd has the part of github.com/klauspost/compress/zstd that Cairn's run
// time uses, and takes its place in programs that Cairn builds: there, nothing
// outside the standard library can be counted on. It reads, by a package inside
// the standard library; it does not compress: under 'cairn run' a process of
// Cairn's own does that.
package zstd

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// ErrDecoderSizeExceeded says that there is more than room was given for.
var ErrDecoderSizeExceeded = errors.New("zstd: more bytes than there is room for")

// ErrNoEncoder says that this program can't compress.
var ErrNoEncoder = errors.New("zstd compression is not part of programs that Cairn builds; " +
	"start the program by 'cairn run', which compresses for it, or choose Gzip")

// stream is what reads a compressed stream.
type stream interface {
	io.Reader
	Reset(io.Reader)
}

// Decoder decompresses. Goroutines may share one.
type Decoder struct{ streams sync.Pool }

// DOption is an option of NewReader.
type DOption struct{}

// WithDecoderConcurrency is taken; a Decoder knows no bound.
func WithDecoderConcurrency(int) DOption { return DOption{} }

// WithDecodeAllCapLimit is taken; DecodeAll never goes beyond its room.
func WithDecodeAllCapLimit(bool) DOption { return DOption{} }

// NewReader makes a Decoder for DecodeAll. There is nothing else: r must be nil.
func NewReader(r io.Reader, _ ...DOption) (*Decoder, error) {
	if r != nil {
		return nil, errors.New("zstd: only DecodeAll is there")
	}
	return &Decoder{}, nil
}

// DecodeAll appends what input holds to dst, within dst's capacity.
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

// EncoderLevelFromZstd is the EncoderLevel for a level of the original.
func EncoderLevelFromZstd(level int) EncoderLevel { return EncoderLevel(level) }

// WithEncoderLevel is taken.
func WithEncoderLevel(EncoderLevel) EOption { return EOption{} }

// WithEncoderCRC is taken.
func WithEncoderCRC(bool) EOption { return EOption{} }

// NewWriter returns ErrNoEncoder.
func NewWriter(io.Writer, ...EOption) (*Encoder, error) { return nil, ErrNoEncoder }

// EncodeAll is never reached: there is no Encoder.
func (*Encoder) EncodeAll(_, dst []byte) []byte { return dst }
