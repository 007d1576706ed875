// Package seal encrypts what a tier keeps. Whoever can read the tier sees
// names, sizes and times of objects, and nothing of their content; whoever can
// write to it can remove objects, but not change one, or put one in the place
// of another, without being noticed.
//
// # Format
//
// An object is a header and chunks of 64 KiB of content; the last may be
// shorter. An empty object has one empty chunk. Numbers are little-endian.
//
//	header   0  "cairnsl1"
//	         8  identity of the key, 16 bytes
//	        24  size of the content
//	        32  salt, 32 bytes
//	        64  SHA-256 of the bytes before
//	chunk    0  content, encrypted
//	         …  tag, 16 bytes
//
// The key file has 32 random bytes K. All other keys are made of it by
// HKDF-SHA256:
//
//	identity of the key  HKDF(K, no salt, "cairn seal: identity"), 16 bytes
//	key of salts         HKDF(K, no salt, "cairn seal: salts"), 32 bytes
//	key of an object     HKDF(K, salt, "cairn seal: object"), 32 bytes
//	salt                 HMAC-SHA256(key of salts, size, digest, name)
//
// A chunk is encrypted with AES-256-GCM under the object's key. The nonce is
// the chunk's number (12 bytes, big-endian); the additional data is the header
// and the object's name. So each chunk can be read alone, and belongs to one
// place in one object of one name and size.
//
// The salt depends on the object's name and content and on nothing else. So an
// interrupted Put continues with the same bytes, an equal object is equal when
// it is encrypted, and different content has different keys.
package seal

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"iter"

	"github.com/cairnrun/cairn/internal/tier"
)

const (
	magic      = tier.SealMagic
	chunkSize  = 64 << 10
	tagSize    = 16
	headerSize = 96
	idSize     = 16
)

// New returns t with everything that it keeps encrypted with key.
func New(t tier.Tier, key *Key) tier.Tier { return &sealed{t, key} }

type sealed struct {
	tier.Tier
	key *Key
}

// storedSize returns how many bytes an object with so much content has.
func storedSize(size int64) int64 { return headerSize + size + chunks(size)*tagSize }

func chunks(size int64) int64 { return max(1, (size+chunkSize-1)/chunkSize) }

// contentSize is the inverse of storedSize.
func contentSize(stored int64) (size int64, ok bool) {
	body := stored - headerSize
	size = body - (body+chunkSize+tagSize-1)/(chunkSize+tagSize)*tagSize
	return size, size >= 0 && storedSize(size) == stored
}

// object has what the chunks of an object are encrypted with.
type object struct {
	header []byte
	aead   cipher.AEAD
	extra  []byte // the additional data
	size   int64
}

// begin returns the object for content that is to be encrypted.
func (k *Key) begin(name string, size int64, digest tier.Digest) (*object, error) {
	h := make([]byte, 0, headerSize)
	h = append(h, magic...)
	h = append(h, k.id[:]...)
	h = binary.LittleEndian.AppendUint64(h, uint64(size))
	mac := hmac.New(sha256.New, k.salts())
	mac.Write(h[24:32])
	mac.Write(digest[:])
	io.WriteString(mac, name)
	h = mac.Sum(h)
	sum := sha256.Sum256(h)
	return k.open(name, append(h, sum[:]...))
}

// open returns the object that has a header.
func (k *Key) open(name string, h []byte) (*object, error) {
	sum := sha256.Sum256(h[:64])
	if string(h[:8]) != magic || string(h[64:]) != string(sum[:]) {
		return nil, fmt.Errorf("%w: its header is not that of an encrypted object; was it stored without a key?", tier.ErrDamaged)
	}
	if id := h[8:24]; string(id) != string(k.id[:]) {
		return nil, fmt.Errorf("%w: key %x, and this is key %x", tier.ErrKey, id[:8], k.id[:8])
	}
	size := int64(binary.LittleEndian.Uint64(h[24:]))
	if size < 0 || size > 1<<60 {
		return nil, fmt.Errorf("%w: its header says %d bytes", tier.ErrDamaged, size)
	}
	secret, err := hkdf.Key(sha256.New, k.secret(), h[32:64], "cairn seal: object", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &object{h, aead, append(append([]byte{}, h...), name...), size}, nil
}

func nonce(chunk int64) []byte {
	n := make([]byte, 12)
	binary.BigEndian.PutUint64(n[4:], uint64(chunk))
	return n
}

// length returns how many bytes of content a chunk has.
func (o *object) length(chunk int64) int64 { return min(chunkSize, o.size-chunk*chunkSize) }

// encrypted is the stored form of a content.
type encrypted struct {
	*object
	content io.ReaderAt
}

// ReadAt encrypts the chunks that p needs.
func (e *encrypted) ReadAt(p []byte, off int64) (done int, err error) {
	if off < headerSize {
		done = copy(p, e.header[off:])
	}
	buf := make([]byte, chunkSize+tagSize)
	for done < len(p) {
		at := off + int64(done) - headerSize
		chunk, skip := at/(chunkSize+tagSize), at%(chunkSize+tagSize)
		if chunk >= chunks(e.size) {
			return done, io.EOF
		}
		plain := buf[:e.length(chunk)]
		if n, err := e.content.ReadAt(plain, chunk*chunkSize); n < len(plain) {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return done, err
		}
		stored := e.aead.Seal(plain[:0], nonce(chunk), plain, e.extra)
		if skip >= int64(len(stored)) {
			return done, io.EOF
		}
		done += copy(p[done:], stored[skip:])
	}
	return done, nil
}

// source returns the stored form of src as a source.
func (s *sealed) source(name string, src tier.Source) (tier.Source, error) {
	o, err := s.key.begin(name, src.Size, src.Digest)
	if err != nil {
		return tier.Source{}, err
	}
	// The salt identifies the content without telling anything about it.
	return tier.Source{ReaderAt: &encrypted{o, src}, Size: storedSize(src.Size), Digest: tier.Digest(o.header[32:48])}, nil
}

func (s *sealed) Put(ctx context.Context, name string, src tier.Source) error {
	stored, err := s.source(name, src)
	if err != nil {
		return err
	}
	return s.Tier.Put(ctx, name, stored)
}

func (s *sealed) Create(ctx context.Context, name string, data []byte) error {
	stored, err := s.source(name, tier.BytesSource(data))
	if err != nil {
		return err
	}
	text := make([]byte, stored.Size)
	if _, err := stored.ReadAt(text, 0); err != nil {
		return err
	}
	return s.Tier.Create(ctx, name, text)
}

func (s *sealed) Stat(ctx context.Context, name string) (tier.Info, error) {
	info, err := s.Tier.Stat(ctx, name)
	if err != nil {
		return info, err
	}
	size, ok := contentSize(info.Size)
	if !ok {
		return tier.Info{}, fmt.Errorf("%s: %s: %w: an encrypted object cannot have %d bytes", s, name, tier.ErrDamaged, info.Size)
	}
	info.Size = size
	return info, nil
}

// List returns -1 as the size of an object that cannot be an encrypted one.
func (s *sealed) List(ctx context.Context, prefix string) iter.Seq2[tier.Info, error] {
	return func(yield func(tier.Info, error) bool) {
		for info, err := range s.Tier.List(ctx, prefix) {
			if size, ok := contentSize(info.Size); ok {
				info.Size = size
			} else {
				info.Size = -1
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

func (s *sealed) Get(ctx context.Context, name string, offset, n int64) (io.ReadCloser, error) {
	fail := func(err error) (io.ReadCloser, error) { return nil, fmt.Errorf("%s: %s: %w", s, name, err) }
	head, err := s.read(ctx, name)
	if err != nil {
		return nil, err
	}
	o, err := s.key.open(name, head)
	if err != nil {
		return fail(err)
	}
	if n < 0 {
		n = o.size - offset
	}
	if offset < 0 || n < 0 || offset > o.size-n {
		return fail(fmt.Errorf("%w: it has %d bytes; the request is for %d from %d on", tier.ErrDamaged, o.size, n, offset))
	}
	// At least one chunk is read, to authenticate the header.
	first := min(offset/chunkSize, chunks(o.size)-1)
	last := max(first, (offset+n-1)/chunkSize)
	from := headerSize + first*(chunkSize+tagSize)
	length := (last-first)*(chunkSize+tagSize) + o.length(last) + tagSize
	r, err := s.Tier.Get(ctx, name, from, length)
	if err != nil {
		return nil, err
	}
	d := &decrypter{r: r, object: o, what: fmt.Sprintf("%s: %s", s, name), chunk: first, last: last, skip: offset - first*chunkSize, n: n}
	if err := d.fill(); err != nil {
		r.Close()
		return nil, err
	}
	return d, nil
}

// read returns the header of an object.
func (s *sealed) read(ctx context.Context, name string) ([]byte, error) {
	r, err := s.Tier.Get(ctx, name, 0, headerSize)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	h := make([]byte, headerSize)
	if _, err := io.ReadFull(r, h); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", s, name, err)
	}
	return h, nil
}

// decrypter reads n bytes of content.
type decrypter struct {
	*object
	r           io.ReadCloser
	what        string
	chunk, last int64
	skip, n     int64
	buf         []byte
	plain       []byte // decrypted, and not read yet
}

// fill decrypts the next chunk.
func (d *decrypter) fill() error {
	if d.buf == nil {
		d.buf = make([]byte, chunkSize+tagSize)
	}
	stored := d.buf[:d.length(d.chunk)+tagSize]
	if _, err := io.ReadFull(d.r, stored); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	plain, err := d.aead.Open(stored[:0], nonce(d.chunk), stored, d.extra)
	if err != nil {
		return fmt.Errorf("%s: %w: chunk %d was changed, or belongs elsewhere", d.what, tier.ErrDamaged, d.chunk)
	}
	d.chunk++
	d.plain = plain[d.skip:]
	d.skip = 0
	return nil
}

func (d *decrypter) Read(p []byte) (int, error) {
	if d.n == 0 {
		return 0, io.EOF
	}
	if len(d.plain) == 0 {
		if err := d.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p[:min(int64(len(p)), d.n)], d.plain)
	d.plain = d.plain[n:]
	d.n -= int64(n)
	return n, nil
}

func (d *decrypter) Close() error { return d.r.Close() }
