package kept

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/copies"
	"github.com/cairnrun/cairn/internal/tier/erasure"
	"github.com/cairnrun/cairn/internal/vfs"
)

// check reads a file of some size and compares it with the digests that it must
// have.
func check(ctx context.Context, r io.ReaderAt, size int64, id copies.ID, l *tier.Limiter) error {
	digest, err := DigestOf(id.Object)
	if err != nil {
		return err
	}
	in := &contextReaderAt{ctx, r, l}
	if id.Data > 0 {
		object, err := erasure.Verify(in, code(id), id.Shard, erasure.Digest(digest))
		if err == nil && fileSize(id, object) != size {
			err = fmt.Errorf("it has %d bytes, not %d", size, fileSize(id, object))
		}
		return err
	}
	src, err := tier.NewSource(ctx, in, size)
	if err == nil && src.Digest != digest {
		err = fmt.Errorf("its digest is %s", src.Digest)
	}
	return err
}

// contextReaderAt reads until a context is done, at a bounded rate.
type contextReaderAt struct {
	ctx context.Context
	r   io.ReaderAt
	l   *tier.Limiter // nil: no bound
}

func (c *contextReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	if c.l != nil {
		if err := c.l.Wait(c.ctx, len(p)); err != nil {
			return 0, err
		}
	}
	return c.r.ReadAt(p, off)
}

// maxIdle is how many paused Incomings are kept.
const maxIdle = 4

// Incoming is a copy or a shard that is being received. It serves one
// goroutine. Commit, Pause or Discard ends it.
type Incoming struct {
	s      *Store
	id     copies.ID
	object int64 // bytes of the object
	size   int64 // bytes of the file
	path   string
	f      vfs.File // nil: nothing has come
	off    int64
	digest tier.Digester
}

// Receive begins to receive a copy or a shard of an object of some size. If an
// Incoming of the same was paused, it continues that.
func (s *Store) Receive(id copies.ID, size int64) (*Incoming, error) {
	n, err := FileSize(id, size)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.partials[id]; in != nil {
		s.forget(id)
		if in.object == size {
			return in, nil
		}
		in.drop()
	}
	s.next++
	return &Incoming{s: s, id: id, object: size, size: n, path: s.path(incomingDir, strconv.Itoa(s.next))}, nil
}

// forget takes an Incoming out of the paused ones.
func (s *Store) forget(id copies.ID) {
	delete(s.partials, id)
	s.idle = slices.DeleteFunc(s.idle, func(x copies.ID) bool { return x == id })
}

// Offset returns how many bytes have come, and Left how many have to come.
func (in *Incoming) Offset() int64 { return in.off }
func (in *Incoming) Left() int64   { return in.size - in.off }

// Write appends bytes.
func (in *Incoming) Write(p []byte) (n int, err error) {
	if int64(len(p)) > in.Left() {
		return 0, fmt.Errorf("%s: more than %d bytes", in.id, in.size)
	}
	if err := in.create(); err != nil {
		return 0, err
	}
	if n, err = in.f.WriteAt(p, in.off); err != nil {
		return n, err
	}
	in.digest.Write(p)
	in.off += int64(n)
	return n, nil
}

// create creates the file, with room for all of it.
func (in *Incoming) create() (err error) {
	if in.f != nil {
		return nil
	}
	if in.f, err = in.s.fs.Create(in.path); err != nil {
		return err
	}
	return in.f.Allocate(in.size)
}

// Pause ends receiving for now. The newest few are kept until the process ends,
// so that Receive can continue them.
func (in *Incoming) Pause() {
	s := in.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if in.f == nil || s.partials[in.id] != nil {
		in.drop()
		return
	}
	s.partials[in.id] = in
	if s.idle = append(s.idle, in.id); len(s.idle) > maxIdle {
		old := s.partials[s.idle[0]]
		s.forget(old.id)
		old.drop()
	}
}

// Discard removes what has come.
func (in *Incoming) Discard() { in.drop() }

func (in *Incoming) drop() {
	if in.f != nil {
		in.f.Close()
		in.s.fs.Remove(in.path) // if it stays, the next Open removes it
		in.f = nil
	}
}

// Close discards what was paused.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, in := range s.partials {
		in.drop()
	}
	clear(s.partials)
	s.idle = nil
}

// Commit checks what has come, and makes it a copy or a shard of the store,
// durably. If it is not what its name says, the error is tier.ErrDamaged. After
// an error, nothing of it is left.
func (in *Incoming) Commit(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			in.drop()
		}
	}()
	if in.Left() != 0 {
		return fmt.Errorf("%s: %w: %d of %d bytes are there", in.id, io.ErrUnexpectedEOF, in.off, in.size)
	}
	if err := in.create(); err != nil { // it is empty
		return err
	}
	if err := in.check(ctx); err != nil {
		return err
	}
	if err := errors.Join(in.f.Sync(), in.f.Close()); err != nil {
		return err
	}
	return in.s.publish(in.path, in.id, in.size)
}

func (in *Incoming) check(ctx context.Context) error {
	want, err := DigestOf(in.id.Object)
	if err == nil && in.id.Data == 0 && in.digest.Digest() != want {
		err = fmt.Errorf("its digest is %s", in.digest.Digest())
	}
	if in.id.Data > 0 {
		err = check(ctx, in.f, in.size, in.id, nil)
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s: %w: %w", in.id, tier.ErrDamaged, err)
	}
	return err
}

// publish gives a file in incoming, whose content is durable, its name.
func (s *Store) publish(path string, id copies.ID, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.file(id)
	step.At("tier.keep")
	err := s.fs.Rename(path, at)
	step.At("tier.kept")
	if err == nil {
		err = s.fs.SyncDir(filepath.Dir(at))
	}
	if err != nil {
		return err
	}
	// If both names were links to one file, nothing was renamed.
	if err := s.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.files[id] = &entry{size}
	if _, was := s.bad[id]; was {
		delete(s.bad, id)
		s.fs.Remove(at + badSuffix)
	}
	return nil
}
