package erasure

import (
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/reedsolomon"
	"github.com/zeebo/xxh3"
)

// Source is an object that is encoded.
type Source struct {
	io.ReaderAt
	Size   int64
	Digest Digest // of the object; zero: not known
	// Check compares the digest with that of what is read. It is for objects
	// that were written long ago.
	Check bool
}

// Encode reads an object and writes its shards: to w[i] shard i, except where
// w[i] is nil. It reads the object once, at several places at the same time,
// and writes to one shard after the other. If the object has another digest,
// the error wraps ErrSource; then the shards must not be used.
func Encode(src Source, c Code, w []io.Writer) error {
	if err := c.check(); err != nil {
		return err
	}
	if len(w) != c.total() || src.Size < 0 {
		return fmt.Errorf("%d shards of an object of %d bytes: the code is %v", len(w), src.Size, c)
	}
	h := header{Code: c, unit: c.unit(), size: src.Size, digest: src.Digest}
	e := &encoder{header: h, src: src, w: w}
	if src.Check {
		e.whole = newWholeDigest()
	}
	for i := c.Data; i < c.total(); i++ {
		if w[i] != nil {
			e.rows = append(e.rows, i)
		}
	}
	if len(e.rows) > 0 {
		var err error
		if e.coder, err = c.coder(e.rows); err != nil {
			return err
		}
	}
	for i := range w {
		h.number = i
		if err := e.write(i, h.append(nil)); err != nil {
			return err
		}
	}
	return e.run()
}

type encoder struct {
	header
	src   io.ReaderAt
	w     []io.Writer
	rows  []int // parity shards that are needed
	coder reedsolomon.Encoder
	whole *wholeDigest // nil: it is not compared
}

// run encodes all stripes.
func (e *encoder) run() error {
	err := inOrder(e.stripes(), func(s *stripe) error {
		err := e.encode(s)
		if err != nil && e.whole != nil {
			e.whole.giveUp()
		}
		return err
	}, e.writeStripe)
	if err != nil || e.whole == nil {
		return err
	}
	if got := digestOf(e.whole.hash.Sum128()); got != e.digest {
		return fmt.Errorf("%w: its digest is %x, not %x", ErrSource, got, e.digest)
	}
	return nil
}

// encode reads a stripe and computes its parity.
func (e *encoder) encode(s *stripe) error {
	if s.data == nil {
		s.data = make([]byte, e.unit*(e.Data+len(e.rows)))
		s.digest = make([]Digest, e.total())
	}
	bytes, unit := e.header.data(s.number)
	if _, err := readFull(e.src, s.data[:bytes], s.number*int64(e.unit)*int64(e.Data)); err != nil {
		return fmt.Errorf("reading an object of %d bytes: %w", e.size, err)
	}
	if e.whole != nil {
		e.whole.add(s.number, func(h *xxh3.Hasher) { h.Write(s.data[:bytes]) })
	}
	clear(s.data[bytes : unit*e.Data])
	coded := s.units[:0] // those that the coder knows
	for i := range e.Data + len(e.rows) {
		coded = append(coded, s.data[i*unit:(i+1)*unit:(i+1)*unit])
	}
	s.units = coded
	if len(e.rows) > 0 {
		if err := e.coder.Encode(coded); err != nil {
			return err
		}
	}
	for i := range e.w {
		if e.w[i] != nil {
			s.digest[i] = e.unitDigest(coded[e.place(i)], s.number, i)
		}
	}
	return nil
}

// place returns where in a stripe's units a shard is.
func (e *encoder) place(number int) int {
	if number < e.Data {
		return number
	}
	return e.Data + slices.Index(e.rows, number)
}

// writeStripe writes the units of a stripe.
func (e *encoder) writeStripe(s *stripe) error {
	for i := range e.w {
		if e.w[i] == nil {
			continue
		}
		if err := e.write(i, s.units[e.place(i)]); err != nil {
			return err
		}
		if err := e.write(i, s.digest[i][:]); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) write(number int, b []byte) error {
	if e.w[number] == nil {
		return nil
	}
	if _, err := e.w[number].Write(b); err != nil {
		return fmt.Errorf("writing shard %d of %v: %w", number, e.Code, err)
	}
	return nil
}

// readFull reads len(p) bytes, as io.ReadFull does.
func readFull(r io.ReaderAt, p []byte, at int64) (int, error) {
	n, err := r.ReadAt(p, at)
	switch {
	case n == len(p):
		return n, nil
	case err == io.EOF || err == nil:
		return n, io.ErrUnexpectedEOF
	}
	return n, err
}
