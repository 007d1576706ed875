package erasure

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/reedsolomon"
)

// Damage is a shard that was found damaged, or could not be read, in the first
// stripe where that was so. Stripe -1 is its header.
type Damage struct {
	Shard  int
	Stripe int64
	Err    error
}

// Rebuild reads shards (shards[i] is shard i, or nil) and writes the object to
// dst. It reads Data shards, those with low numbers first; others only if one
// of these is damaged. digest, if not zero, is the object's: shards of other
// objects are not used. Rebuild returns the damage that it has seen. If a
// stripe has too few sound units, the error wraps ErrTooFew. Then what was
// written must not be used.
//
// The digests of units show damage since the object was encoded. The caller
// compares the digest of what dst got, which it computes anyway, to see whether
// the object had changed before.
func Rebuild(shards []io.ReaderAt, c Code, digest Digest, dst io.Writer) ([]Damage, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if len(shards) != c.total() {
		return nil, fmt.Errorf("%d shards: the code is %v", len(shards), c)
	}
	r := &rebuilder{shards: slices.Clone(shards), dst: dst}
	if err := r.readHeaders(c, digest); err != nil {
		return r.damage, err
	}
	var err error
	if r.coder, err = c.coder(nil); err != nil {
		return nil, err
	}
	r.need = make([]bool, c.total())
	for i := range c.Data {
		r.need[i] = true
	}
	err = inOrder(r.stripes(), r.rebuild, r.write)
	slices.SortFunc(r.damage, func(a, b Damage) int { return cmp.Or(cmp.Compare(a.Stripe, b.Stripe), cmp.Compare(a.Shard, b.Shard)) })
	return r.damage, err
}

type rebuilder struct {
	header
	coder  reedsolomon.Encoder
	shards []io.ReaderAt // nil: it is not there, or not used any more
	dst    io.Writer
	need   []bool // by shard: it is part of the object

	mu     sync.Mutex
	damage []Damage
}

// damaged notes the first damage of a shard.
func (r *rebuilder) damaged(shard int, stripe int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.damage {
		if d := &r.damage[i]; d.Shard == shard {
			if stripe < d.Stripe {
				*d = Damage{shard, stripe, err}
			}
			return
		}
	}
	r.damage = append(r.damage, Damage{shard, stripe, err})
}

// readHeaders reads the headers of all shards. Shards of another object, or
// whose header is damaged, are not used. If digest is zero, the majority
// decides.
func (r *rebuilder) readHeaders(c Code, digest Digest) error {
	headers := make([]header, len(r.shards))
	votes := make(map[header]int)
	var b [headerSize]byte
	for i, s := range r.shards {
		if s == nil {
			continue
		}
		_, err := readFull(s, b[:], 0)
		if err == nil {
			headers[i], err = parseHeader(b[:])
		}
		h := headers[i]
		switch {
		case err != nil:
		case h.number != i || h.Code != c:
			err = fmt.Errorf("%w: it is shard %d of %v, not %d of %v", ErrDamaged, h.number, h.Code, i, c)
		case digest != Digest{} && h.digest != digest:
			err = fmt.Errorf("%w: it is a shard of another object", ErrDamaged)
		}
		if err != nil {
			r.damaged(i, -1, err)
			r.shards[i] = nil
			continue
		}
		h.number = 0
		votes[h]++
	}
	best, most := header{}, 0
	for h, n := range votes {
		if n > most || n == most && string(h.digest[:]) > string(best.digest[:]) {
			best, most = h, n
		}
	}
	for i, s := range r.shards {
		h := headers[i]
		h.number = 0
		if s != nil && h != best {
			r.damaged(i, -1, fmt.Errorf("%w: most shards are of another object", ErrDamaged))
			r.shards[i] = nil
		}
	}
	r.header = best
	if most < c.Data {
		return fmt.Errorf("%w: %d are there and sound, and %d are needed", ErrTooFew, most, c.Data)
	}
	return nil
}

// rebuild reads a stripe, and computes what is missing of it.
func (r *rebuilder) rebuild(s *stripe) error {
	if s.units == nil {
		s.units, s.room = make([][]byte, r.total()), make([][]byte, r.total())
	}
	if err := r.readStripe(s); err != nil {
		return err
	}
	missing := false
	for i, need := range r.need {
		if need && len(s.units[i]) == 0 {
			missing = true
			r.makeRoom(s, i)
			s.units[i] = s.room[i][:0]
		}
	}
	if missing {
		if err := r.coder.ReconstructSome(s.units, r.need); err != nil {
			return fmt.Errorf("stripe %d: %w", s.number, err)
		}
	}
	return nil
}

func (r *rebuilder) makeRoom(s *stripe, i int) {
	if s.room[i] == nil {
		s.room[i] = make([]byte, r.unit+digestSize)
	}
}

// write writes a stripe of the object.
func (r *rebuilder) write(s *stripe) error {
	left, unit := r.data(s.number)
	for i := 0; i < r.Data && left > 0; i++ {
		p := s.units[i][:min(unit, left)]
		left -= len(p)
		if _, err := r.dst.Write(p); err != nil {
			return fmt.Errorf("writing the rebuilt object: %w", err)
		}
	}
	return nil
}

// readStripe reads Data sound units of a stripe.
func (r *rebuilder) readStripe(s *stripe) error {
	_, unit := r.data(s.number)
	for i := range s.units {
		s.units[i] = s.room[i][:0]
	}
	have, next := 0, 0
	var errs []error
	for have < r.Data {
		// As many as are missing, at the same time.
		var batch []int
		for ; next < r.total() && len(batch) < r.Data-have; next++ {
			if r.shards[next] != nil {
				batch = append(batch, next)
			}
		}
		if len(batch) == 0 {
			return fmt.Errorf("%w: stripe %d has %d sound units, and %d are needed: %w", ErrTooFew, s.number, have, r.Data, errors.Join(errs...))
		}
		result := make([]error, len(batch))
		var wait sync.WaitGroup
		for k, i := range batch {
			r.makeRoom(s, i)
			wait.Go(func() { result[k] = r.readUnit(s, i, unit) })
		}
		wait.Wait()
		for k, i := range batch {
			if result[k] == nil {
				have++
				continue
			}
			r.damaged(i, s.number, result[k])
			errs = append(errs, fmt.Errorf("shard %d: %w", i, result[k]))
		}
	}
	return nil
}

// readUnit reads one unit and checks it.
func (r *rebuilder) readUnit(s *stripe, i int, unit int) error {
	b := s.room[i][:unit+digestSize]
	if _, err := readFull(r.shards[i], b, r.offset(s.number)); err != nil {
		return err
	}
	if d := r.unitDigest(b[:unit], s.number, i); string(d[:]) != string(b[unit:]) {
		return fmt.Errorf("%w: the digest of its unit in stripe %d differs", ErrDamaged, s.number)
	}
	s.units[i] = b[:unit]
	return nil
}

// Verify reads a shard and checks all of it. digest, if not zero, is the
// object's. It returns the bytes of the object.
func Verify(shard io.ReaderAt, c Code, number int, digest Digest) (size int64, err error) {
	var b [headerSize]byte
	if _, err := readFull(shard, b[:], 0); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	h, err := parseHeader(b[:])
	switch {
	case err != nil:
		return 0, err
	case h.number != number || h.Code != c:
		return 0, fmt.Errorf("%w: it is shard %d of %v, not %d of %v", ErrDamaged, h.number, h.Code, number, c)
	case digest != Digest{} && h.digest != digest:
		return 0, fmt.Errorf("%w: it is a shard of another object", ErrDamaged)
	}
	buf := make([]byte, h.unit+digestSize)
	for i := range h.stripes() {
		_, unit := h.data(i)
		u := buf[:unit+digestSize]
		if _, err := readFull(shard, u, h.offset(i)); err != nil {
			return 0, fmt.Errorf("%w: stripe %d: %w", ErrDamaged, i, err)
		}
		if d := h.unitDigest(u[:unit], i, number); string(d[:]) != string(u[unit:]) {
			return 0, fmt.Errorf("%w: the digest of stripe %d differs", ErrDamaged, i)
		}
	}
	return h.size, nil
}
