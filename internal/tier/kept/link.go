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

// Content is something of a rank that is kept with its file. Ext is the extension
// of the object's name.
type Content struct {
	Ext    string
	Source tier.Source
}

// ContentName returns the name of an object that is a Content.
func ContentName(rank int, index uint64, c Content) string {
	return fmt.Sprintf("rank-%04d-%08d-%s.%s", rank, index, c.Source.Digest, c.Ext)
}

// Link keeps a rank's committed file of a checkpoint, and the bases that it
// needs: as hard links, or as copies where there are none. It reads each file
// once for its digest, and stores the part. All of it is durable when Link
// returns. It may be repeated, with the same further contents, which become
// objects of the part, too.
func (s *Store) Link(ctx context.Context, ckptDir string, index uint64, rank int, more ...Content) (recovery.Part, error) {
	p, err := s.link(ctx, ckptDir, index, rank, more)
	if err != nil {
		return recovery.Part{}, fmt.Errorf("keeping rank %d's file of checkpoint %d: %w", rank, index, err)
	}
	return p, nil
}

func (s *Store) link(ctx context.Context, ckptDir string, index uint64, rank int, more []Content) (p recovery.Part, err error) {
	var pins []string
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, name := range pins {
			if s.pinned[name]--; s.pinned[name] == 0 {
				delete(s.pinned, name)
			}
		}
	}()
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
	for _, c := range more {
		o, err := s.addContent(ctx, ContentName(rank, index, c), c.Source, &pins)
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
	s.mu.Lock()
	s.next++
	tmp := s.path(incomingDir, strconv.Itoa(s.next))
	s.mu.Unlock()
	defer func() {
		if err != nil {
			s.fs.Remove(tmp) // if it stays, the next Open removes it
		}
	}()
	err = s.fs.Link(path, tmp)
	if errors.Is(err, vfs.ErrNoLink) {
		err = s.copyFile(ctx, path, tmp)
	}
	if err != nil {
		return o, err
	}
	// From here on, the file cannot be replaced by another one.
	f, err := ckpt.Open(s.fs, tmp)
	if err != nil {
		return o, err
	}
	got, size := f.Digest(), f.Size
	if err := f.Close(); err != nil || got != header {
		return o, errors.Join(err, fmt.Errorf("%s was replaced while it was read", path))
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
	s.mu.Lock()
	s.pinned[o.Name]++
	s.mu.Unlock()
	*pins = append(*pins, o.Name)
	return o, s.publish(tmp, copies.ID{Object: o.Name}, size)
}

// addContent keeps an object that is no file of a rank, and pins it.
func (s *Store) addContent(ctx context.Context, name string, src tier.Source, pins *[]string) (o recovery.Object, err error) {
	o = recovery.Object{Name: name, Size: src.Size}
	s.mu.Lock()
	known := s.files[copies.ID{Object: name}] != nil
	s.pinned[name]++
	s.next++
	tmp := s.path(incomingDir, strconv.Itoa(s.next))
	s.mu.Unlock()
	*pins = append(*pins, name)
	if known {
		return o, nil
	}
	f, err := s.fs.Create(tmp)
	if err != nil {
		return o, err
	}
	var d tier.Digester
	if err = f.Allocate(src.Size); err == nil {
		err = tier.Copy(ctx, io.MultiWriter(io.NewOffsetWriter(f, 0), &d), io.NewSectionReader(src, 0, src.Size), src.Size)
	}
	if err == nil && d.Digest() != src.Digest {
		err = fmt.Errorf("%s changed while it was read", name)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = s.publish(tmp, copies.ID{Object: name}, src.Size)
	}
	if err != nil {
		s.fs.Remove(tmp) // if it stays, the next Open removes it
	}
	return o, err
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

// Place publishes a rank's file of a checkpoint, with its bases, in a checkpoint
// directory, from copies that are here. It reads and checks every byte. It
// replaces an older file of that checkpoint. Nobody else may write files of the
// rank meanwhile.
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
