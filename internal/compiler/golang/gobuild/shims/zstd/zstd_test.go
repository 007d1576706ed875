package zstd

import (
	"bytes"
	"errors"
	"io"
	"testing"

	real "github.com/klauspost/compress/zstd"
)

// standIn has the behaviour of internal/zstd, which only the standard library
// can import. The tests of package gobuild run the shim there.
type standIn struct{ *real.Decoder }

func (s standIn) Reset(r io.Reader) { s.Decoder.Reset(r) }

// TestDecodeAll decodes what the library has compressed, with a stand-in for
// the stream of the standard library.
func TestDecodeAll(t *testing.T) {
	newStream = func(r io.Reader) stream {
		d, err := real.NewReader(r)
		if err != nil {
			t.Fatal(err)
		}
		return standIn{d}
	}
	e, err := real.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewReader(nil, WithDecoderConcurrency(0), WithDecodeAllCapLimit(true))
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte("all work and no play "), 5000)
	packed := e.EncodeAll(text, nil)
	for range 3 { // streams are reused
		got, err := d.DecodeAll(packed, make([]byte, 0, len(text)))
		if err != nil || !bytes.Equal(got, text) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		got, err = d.DecodeAll(packed, append(make([]byte, 0, len(text)+10), "before"...))
		if err != nil || !bytes.Equal(got[6:], text) || string(got[:6]) != "before" {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		if _, err := d.DecodeAll(packed, make([]byte, 0, len(text)-1)); !errors.Is(err, ErrDecoderSizeExceeded) {
			t.Errorf("too little room: %v", err)
		}
		if _, err := d.DecodeAll(packed[:len(packed)-5], make([]byte, 0, len(text))); err == nil {
			t.Error("a cut stream was read")
		}
		if _, err := d.DecodeAll([]byte("no such stream"), make([]byte, 0, len(text))); err == nil {
			t.Error("what is no stream was read")
		}
	}
	if _, err := NewWriter(nil, WithEncoderLevel(EncoderLevelFromZstd(1)), WithEncoderCRC(false)); !errors.Is(err, ErrNoEncoder) {
		t.Errorf("an encoder: %v", err)
	}
}
