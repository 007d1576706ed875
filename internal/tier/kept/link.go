package kept

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/copies"
	"github.com/cairnrun/cairn/internal/tier/recovery"
	"github.com/cairnrun/cairn/internal/vfs"
)

// More is what is kept with a rank's file: its pack and the pack's bases.
type More struct {
	Packs  []Pack
	Absent []string // files of the program that the pack does not have
}

// Pack is a file whose name as an object is known.
type Pack struct {
	Name string // with the digest of its content
	Path string
}

// Link keeps a rank's committed file of a checkpoint, the bases that it needs,
// and its packs: as hard links, or as copies where the file system has none. It
// reads each file once for its digest, and stores the part. All of it is
// durable when Link returns. It may be repeated, with the same packs. If a pack
// is not what its name says, the error is tier.ErrDamaged.
func (s *Store) Link(ctx context.Context, ckptDir string, index uint64, rank int, more More) (recovery.Part, error) {
	p, err := s.link(ctx, ckptDir, index, rank, more)
	if err != nil {
		return recovery.Part{}, fmt.Errorf("keeping rank %d's file of checkpoint %d: %w", rank, index, err)
	}
	return p, nil
}

func (s *Store) unpin(pins *[]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range *pins {
		if s.pinned[name]--; s.pinned[name] == 0 {
			delete(s.pinned, name)
		}
	}
}

func (s *Store) link(ctx context.Context, ckptDir string, index uint64, rank int, more More) (p recovery.Part, err error) {
	var pins []string
	defer s.unpin(&pins)
	d := store.Open(s.fs, ckptDir, rank)
	main, err := ckpt.Open(s.fs, d.File(index))
	if err != nil {
		return p, err
	}
	defer main.Close()
	h := &main.Header
	if err := errors.Join(h.CheckPlace(index, rank), h.CheckRun(s.run)); err != nil {
		return p, err
	}
	at, err := time.Parse(time.RFC3339, h.Time)
	if err != nil {
		return p, err
	}
	p = recovery.Part{Checkpoint: recovery.Checkpoint{Index: index, Attempt: h.Attempt}, Rank: rank, Ranks: h.Ranks, Time: at.UnixNano()}
	add := func(index uint64, path, header string) error {
		o, err := s.linkFile(ctx, rank, index, path, header, &pins)
		p.Objects = append(p.Objects, o)
		return err
	}
	if err := add(index, d.File(index), main.Digest()); err != nil {
		return p, err
	}
	for i := range h.Bases {
		b := &h.Bases[i]
		path := filepath.Join(filepath.Dir(d.File(index)), d.BaseName(b.Index))
		base, err := ckpt.Open(s.fs, path)
		if err != nil {
			return p, err
		}
		err = main.CheckBase(b, base)
		if err = errors.Join(err, base.Close()); err != nil {
			return p, err
		}
		if err := add(b.Index, path, base.Digest()); err != nil {
			return p, err
		}
	}
	return s.linkPacks(ctx, p, more, &pins)
}

// linkPacks adds packs to a part, and stores it.
func (s *Store) linkPacks(ctx context.Context, p recovery.Part, more More, pins *[]string) (recovery.Part, error) {
	p.Absent = more.Absent
	for _, x := range more.Packs {
		o, err := s.linkPack(ctx, x, pins)
		if err != nil {
			return p, err
		}
		p.Objects = append(p.Objects, o)
	}
	if err := CheckPart(&p); err != nil {
		return p, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range p.Objects {
		if s.files[copies.ID{Object: o.Name}] == nil { // found damaged meanwhile
			return p, fmt.Errorf("%s: %w", o.Name, tier.ErrDamaged)
		}
	}
	if err := s.storePart(p); err != nil {
		return p, err
	}
	s.linked[partID(&p)] = true
	return p, nil
}

// linkFile keeps one file of a rank, and pins it.
func (s *Store) linkFile(ctx context.Context, rank int, index uint64, path, header string, pins *[]string) (o recovery.Object, err error) {
	prefix := filePrefix(rank, index, header)
	if o, ok := s.pinKnown(prefix, pins); ok {
		return o, nil
	}
	tmp, err := s.linkIncoming(ctx, path)
	if err != nil {
		return o, err
	}
	defer func() {
		if err != nil {
			s.fs.Remove(tmp) // if it stays, the next Open removes it
		}
	}()
	// From here on, the file cannot be replaced by another one.
	f, err := ckpt.Open(s.fs, tmp)
	if err != nil {
		return o, err
	}
	got, size := f.Digest(), f.Size
	if err := f.Close(); err != nil {
		return o, err
	}
	if got != header {
		return o, fmt.Errorf("%s was replaced while it was read", path)
	}
	file, err := s.fs.Open(tmp)
	if err != nil {
		return o, err
	}
	src, err := tier.NewSource(ctx, file, size)
	if err = errors.Join(err, file.Close()); err != nil {
		return o, err
	}
	o = recovery.Object{Name: ObjectName(rank, tier.File{Index: index, Header: header, Object: tier.Object{Digest: src.Digest}}), Size: size}
	s.pin(o.Name, pins)
	return o, s.publish(tmp, copies.ID{Object: o.Name}, size)
}

// linkIncoming makes a link to a file, or a copy, in incoming.
func (s *Store) linkIncoming(ctx context.Context, path string) (tmp string, err error) {
	s.mu.Lock()
	s.next++
	tmp = s.path(incomingDir, strconv.Itoa(s.next))
	s.mu.Unlock()
	err = s.fs.Link(path, tmp)
	if errors.Is(err, vfs.ErrNoLink) {
		err = s.copyFile(ctx, path, tmp)
	}
	if err != nil {
		s.fs.Remove(tmp)
	}
	return tmp, err
}

// pin keeps an object from being removed until Link returns. It reports whether
// the object is here.
func (s *Store) pin(name string, pins *[]string) (size int64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pinned[name]++
	*pins = append(*pins, name)
	if e := s.files[copies.ID{Object: name}]; e != nil {
		return e.size, true
	}
	return 0, false
}

// linkPack keeps a pack, and pins it.
func (s *Store) linkPack(ctx context.Context, x Pack, pins *[]string) (o recovery.Object, err error) {
	want, err := DigestOf(x.Name)
	if err != nil {
		return o, err
	}
	o.Name = x.Name
	var known bool
	if o.Size, known = s.pin(x.Name, pins); known {
		return o, nil
	}
	tmp, err := s.linkIncoming(ctx, x.Path)
	if err != nil {
		return o, err
	}
	defer func() {
		if err != nil {
			s.fs.Remove(tmp) // if it stays, the next Open removes it
		}
	}()
	f, err := s.fs.Open(tmp)
	if err != nil {
		return o, err
	}
	var src tier.Source
	if o.Size, err = f.Size(); err == nil {
		src, err = tier.NewSource(ctx, f, o.Size)
	}
	if err = errors.Join(err, f.Close()); err == nil && src.Digest != want {
		err = fmt.Errorf("%s: %w: its digest is %s", x.Path, tier.ErrDamaged, src.Digest)
	}
	if err != nil {
		return o, err
	}
	return o, s.publish(tmp, copies.ID{Object: o.Name}, o.Size)
}

// Export checks an object that is here, and makes a link to it, or a copy, at
// path, durably. It replaces what is there.
func (s *Store) Export(ctx context.Context, object, path string) error {
	id := copies.ID{Object: object}
	if err := s.Verify(ctx, id, nil); err != nil {
		return err
	}
	if err := s.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := s.fs.Link(s.file(id), path)
	if errors.Is(err, vfs.ErrNoLink) {
		err = s.copyFile(ctx, s.file(id), path)
	}
	if err != nil {
		return err
	}
	return s.fs.SyncDir(filepath.Dir(path))
}

// pinKnown finds a copy whose name begins with prefix, and pins it.
func (s *Store) pinKnown(prefix string, pins *[]string) (o recovery.Object, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, e := range s.files {
		if id.Data == 0 && strings.HasPrefix(id.Object, prefix) && strings.HasSuffix(id.Object, ".h5") {
			s.pinned[id.Object]++
			*pins = append(*pins, id.Object)
			return recovery.Object{Name: id.Object, Size: e.size}, true
		}
	}
	return o, false
}

func (s *Store) copyFile(ctx context.Context, from, to string) error {
	in, err := s.fs.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	size, err := in.Size()
	if err != nil {
		return err
	}
	out, err := s.fs.Create(to)
	if err != nil {
		return err
	}
	if err = out.Allocate(size); err == nil {
		err = tier.Copy(ctx, io.NewOffsetWriter(out, 0), io.NewSectionReader(in, 0, size), size)
	}
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// Place publishes a rank's file of a checkpoint, with its bases, in a
// checkpoint directory, from copies that are here. It reads and checks every
// byte. It replaces an older file of that checkpoint. Nobody else may write
// files of the rank meanwhile.
func (s *Store) Place(ctx context.Context, ckptDir string, part recovery.Part) error {
	err := s.place(ctx, ckptDir, part)
	if err != nil {
		return fmt.Errorf("placing rank %d's file of checkpoint %d: %w", part.Rank, part.Index, err)
	}
	return nil
}

func (s *Store) place(ctx context.Context, ckptDir string, part recovery.Part) (err error) {
	if err := CheckPart(&part); err != nil {
		return err
	}
	main := ""
	bases := map[uint64]string{}
	for _, o := range part.Objects {
		var rank int
		var index uint64
		if _, err := fmt.Sscanf(o.Name, "rank-%d-%d-", &rank, &index); err != nil || rank != part.Rank || !strings.HasSuffix(o.Name, ".h5") {
			continue // not a rank's file
		}
		if index == part.Index {
			main = o.Name
		} else {
			bases[index] = o.Name
		}
		if err := s.Verify(ctx, copies.ID{Object: o.Name}, nil); err != nil {
			return err
		}
	}
	if main == "" {
		return errors.New("the part has no file of the rank")
	}
	d := store.ForHelper(s.fs, ckptDir, part.Rank, nil)
	if err := d.Remove(part.Index); err != nil { // of another attempt, or damaged
		return err
	}
	p, err := d.Begin(part.Index)
	if err != nil {
		return err
	}
	for index, name := range bases {
		to := p.Receive(index)
		err := s.fs.Remove(to)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			from := s.file(copies.ID{Object: name})
			if err = s.fs.Link(from, to); errors.Is(err, vfs.ErrNoLink) {
				err = s.copyFile(ctx, from, to)
			}
		}
		if err != nil {
			p.Abort()
			return err
		}
	}
	if err := s.copyInto(ctx, p, main); err != nil {
		p.Abort()
		return err
	}
	return p.Commit()
}

// copyInto copies an object, and checks its digest.
func (s *Store) copyInto(ctx context.Context, f vfs.File, object string) error {
	in, size, err := s.OpenFile(copies.ID{Object: object})
	if err != nil {
		return err
	}
	defer in.Close()
	want, err := DigestOf(object)
	if err != nil {
		return err
	}
	if err := f.Allocate(size); err != nil {
		return err
	}
	var d tier.Digester
	err = tier.Copy(ctx, io.MultiWriter(io.NewOffsetWriter(f, 0), &d), io.NewSectionReader(in, 0, size), size)
	if err == nil && d.Digest() != want {
		err = fmt.Errorf("%s: %w", object, tier.ErrDamaged)
	}
	return err
}
