package ckpt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cairnrun/cairn/internal/mem"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// Export writes the checkpoint into one file without bases at path, which must
// not exist.
func (s *File) Export(ctx context.Context, fsys vfs.FS, path string, c Compression, progress func(done int64)) error {
	if _, err := fsys.Stat(path); err == nil {
		return fmt.Errorf("%s exists; name another file, or remove it first", path)
	}
	h := s.Header
	h.Compression = c
	return s.rewrite(ctx, exportTarget{fsys, path}, h, false, progress)
}

// Accept writes the checkpoint in dir again, with the values that its file has
// now and digests for them. It is for files that were changed on purpose. dir
// must have the checkpoint that s was opened from.
func (s *File) Accept(ctx context.Context, dir *store.Dir, progress func(done int64)) error {
	return s.rewrite(ctx, acceptTarget{newDirTarget(dir, 1, 0, nil, 0)}, s.Header, true, progress)
}

// Adopt writes the checkpoint into dir, without bases, as one of another run.
func (s *File) Adopt(ctx context.Context, dir *store.Dir, run string) error {
	h := s.Header
	h.Run = run
	return s.rewrite(ctx, acceptTarget{newDirTarget(dir, 1, 0, nil, 0)}, h, false, nil)
}

// exportTarget publishes one file at a path.
type exportTarget struct {
	fsys vfs.FS
	path string
}

// tmp is the name of the file until it is complete. A leftover of a crash is
// replaced.
func (t exportTarget) tmp() string { return t.path + ".cairn-tmp" }

func (t exportTarget) begin(uint64) (pendingFile, error) {
	if err := t.fsys.Remove(t.tmp()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := t.fsys.Create(t.tmp())
	if err != nil {
		return nil, err
	}
	return &exportFile{f, t}, nil
}

func (exportTarget) baseName(uint64) string { return "" }
func (exportTarget) published(uint64)       {}
func (exportTarget) setLine(uint64)         {}
func (exportTarget) setDamaged(uint64)      {}
func (exportTarget) prune()                 {}

type exportFile struct {
	vfs.File
	t exportTarget
}

func (f *exportFile) Link(uint64, uint64) (bool, error) {
	return false, errors.New("an exported file has no bases")
}

func (f *exportFile) Commit() error {
	err := f.Sync()
	err = errors.Join(err, f.Close())
	if err == nil {
		err = f.t.fsys.Rename(f.t.tmp(), f.t.path)
	}
	if err != nil {
		f.t.fsys.Remove(f.t.tmp())
		return err
	}
	return f.t.fsys.SyncDir(filepath.Dir(f.t.path))
}

func (f *exportFile) Abort() {
	f.Close()
	f.t.fsys.Remove(f.t.tmp())
}

// rewrite passes every block of the checkpoint to a writer, with another
// header.
func (s *File) rewrite(ctx context.Context, t target, h Header, accept bool, progress func(int64)) error {
	staging := mem.NewStaging(2 * writers)
	defer staging.Close()
	if err := staging.Grow(2 * writers); err != nil {
		return err
	}
	h.Bases = nil
	w := newFileWriter(t, staging)
	defer w.Close()
	w.Begin(Job{Header: h, WriteFirst: true})
	tail := Tail{Marks: make([]Mark, len(s.Blocks)), Inline: make(map[int32][]byte), Note: h.Note}
	if err := s.feed(ctx, w, &tail, accept, progress); err != nil {
		<-w.Abort(err)
		return err
	}
	return (<-w.Commit(tail)).Err
}

func (s *File) feed(ctx context.Context, w *fileWriter, tail *Tail, accept bool, progress func(int64)) error {
	seg := Segment{Index: -1}
	done := int64(0)
	put := func() {
		if seg.Index >= 0 {
			w.Put(seg)
		}
		seg = Segment{Index: -1}
	}
	defer put()
	for i := range s.Header.Datasets {
		d := &s.Header.Datasets[i]
		for k := range d.NumBlocks() {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := d.BlockLen(k)
			if done += int64(n); progress != nil {
				progress(done)
			}
			var p []byte
			at := 0
			if d.Chunk == nil {
				p = make([]byte, d.Block)
				tail.Inline[int32(i)] = p
			} else {
				at = int(pages(int64(seg.Used)))
				if seg.Index < 0 || at+int(d.Block) > mem.SegmentSize {
					put()
					select {
					case seg.Index = <-w.staging.Free():
					case <-ctx.Done():
						return ctx.Err()
					}
					at = 0
				}
				clear(w.staging.Segment(seg.Index)[seg.Used:at])
				p = w.staging.Segment(seg.Index)[at : at+int(d.Block)]
				clear(p[n:])
			}
			err := s.ReadBlock(i, k, p[:n])
			if err == nil && !accept {
				err = s.check(i, k, p[:n])
			}
			if err != nil {
				return err
			}
			switch {
			case d.Chunk == nil:
				tail.Marks[d.First+k] = MarkStaged
			case mem.IsZero(p):
				tail.Marks[d.First+k] = MarkZero
			default:
				tail.Marks[d.First+k] = MarkStaged
				seg.Used = at + int(d.Block)
				seg.Blocks = append(seg.Blocks, StagedBlock{int32(i), int32(k), int32(at), int32(n)})
			}
		}
	}
	return nil
}
