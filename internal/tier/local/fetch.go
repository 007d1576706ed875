//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/journal"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/vfs"
)

// Client gets files from another helper's Server. It serves one goroutine.
type Client struct {
	conn net.Conn
	c    *control.Conn
	stop func() bool // ends the effect of the context
}

// Dial connects to a server, at the first of its addresses that answers. The
// client works until ctx ends.
func Dial(ctx context.Context, addresses []string, secret []byte) (*Client, error) {
	conn, c, err := control.Dial(ctx, addresses, secret, nil)
	if err != nil {
		return nil, err
	}
	return &Client{conn, c, context.AfterFunc(ctx, func() { conn.Close() })}, nil
}

// Close ends the connection.
func (c *Client) Close() {
	c.stop()
	c.conn.Close()
}

// List returns the files of a rank: those of a checkpoint, or with index 0 its
// journal and output.
func (c *Client) List(rank, ranks int, index uint64) ([]control.FileInfo, error) {
	answer, err := ask[*control.FileList](c, &control.ListFiles{Rank: rank, Ranks: ranks, Index: index})
	if err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	return answer.Files, nil
}

// Get writes the bytes of a file to w, from an offset on.
func (c *Client) Get(path string, offset int64, w io.Writer) (int64, error) {
	answer, err := ask[*control.FileBytes](c, &control.GetFile{Path: path, Offset: offset})
	if err != nil {
		return 0, err
	}
	if answer.Error != "" {
		return 0, errors.New(answer.Error)
	}
	return answer.Bytes, receive(c.conn, w, answer.Bytes)
}

func ask[T control.Message](c *Client, m control.Message) (answer T, err error) {
	c.conn.SetDeadline(time.Now().Add(idleTime))
	if err := c.c.Send(m); err != nil {
		return answer, err
	}
	got, err := c.c.Recv()
	if err != nil {
		return answer, err
	}
	answer, ok := got.(T)
	if !ok {
		return answer, fmt.Errorf("%w: %s answers %s", control.ErrMalformed, got.Kind(), m.Kind())
	}
	return answer, nil
}

// ErrDamaged says that a file is not what it should be.
var ErrDamaged = errors.New("the file is damaged")

// getInto gets a file into a new one, durably.
func (c *Client) getInto(info control.FileInfo, name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := c.Get(info.Path, 0, f)
	if err == nil && n < info.Size {
		err = fmt.Errorf("%s: it was cut while it was copied", info.Path)
	}
	if err == nil {
		err = f.Chmod(fs.FileMode(info.Mode))
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Chtimes(name, time.Time{}, info.Time)
	}
	return err
}

// FetchPart gets a rank's file of a checkpoint, with its bases, checks every
// block of it, and publishes it. It replaces an older file of that checkpoint.
// An error that wraps ErrDamaged means that the other host's file is damaged or
// missing.
func (d *Dir) FetchPart(ctx context.Context, c *Client, rank, ranks int, index uint64, attempt string) error {
	files, err := c.List(rank, ranks, index)
	if err != nil {
		return err
	}
	own := store.ForHelper(d.fs, CheckpointDir(d.Path), rank, nil)
	name := filepath.Base(own.File(index))
	main := -1
	for i, f := range files {
		if filepath.Base(f.Path) == name {
			main = i
		}
	}
	if main < 0 {
		return fmt.Errorf("%w: there is no %s any more", ErrDamaged, name)
	}
	if err := d.MakeCheckpoints(); err != nil {
		return err
	}
	if err := own.Remove(index); err != nil { // of another attempt, or damaged
		return err
	}
	p, err := own.Begin(index)
	if err != nil {
		return err
	}
	dir := filepath.Dir(own.File(index))
	for i, f := range files {
		if i == main {
			continue
		}
		var r int
		var base uint64
		_, err := fmt.Sscanf(filepath.Base(f.Path), "rank-%d.base-%d.h5", &r, &base)
		if err == nil && own.BaseName(base) != filepath.Base(f.Path) {
			err = fmt.Errorf("it offers %q: %w", f.Path, tier.ErrAltered)
		}
		if err == nil {
			err = c.getInto(f, filepath.Join(dir, own.BaseName(base)))
		}
		if err != nil {
			p.Abort()
			return err
		}
		p.Brought(base)
	}
	_, err = c.Get(files[main].Path, 0, &appendTo{p, 0})
	if err == nil {
		err = p.Sync()
	}
	if err == nil {
		err = d.verify(ctx, strings.TrimSuffix(own.File(index), ".h5")+".tmp", rank, index, attempt)
	}
	if err != nil {
		p.Abort()
		return err
	}
	return p.Commit()
}

// appendTo writes to a file, one piece after the other.
type appendTo struct {
	f  io.WriterAt
	at int64
}

func (a *appendTo) Write(p []byte) (int, error) {
	n, err := a.f.WriteAt(p, a.at)
	a.at += int64(n)
	return n, err
}

// VerifyPart checks every block of a rank's file of a checkpoint on this host.
func (d *Dir) VerifyPart(ctx context.Context, rank int, index uint64, attempt string) error {
	return d.verify(ctx, store.Open(d.fs, CheckpointDir(d.Path), rank).File(index), rank, index, attempt)
}

// Damage checks every block of a rank's file of a checkpoint on this host, and
// returns what is damaged.
func (d *Dir) Damage(ctx context.Context, rank int, index uint64) ([]ckpt.Damage, error) {
	s, err := ckpt.Open(d.fs, store.Open(d.fs, CheckpointDir(d.Path), rank).File(index))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Verify(ctx, nil)
}

func (d *Dir) verify(ctx context.Context, path string, rank int, index uint64, attempt string) error {
	s, err := ckpt.Open(d.fs, path)
	if err == nil {
		defer s.Close()
		err = s.Header.CheckPlace(index, rank)
	}
	if err == nil {
		err = s.Header.CheckRun(d.Run)
	}
	if err == nil && s.Header.Attempt != attempt {
		err = fmt.Errorf("%w: it was saved by another start of the run", ckpt.ErrCorrupt)
	}
	if err == nil {
		var bad []ckpt.Damage
		if bad, err = s.Verify(ctx, nil); err == nil && len(bad) > 0 {
			err = bad[0].Err
		}
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// MakeCheckpoints makes the checkpoint directory, with the run's identity.
func (d *Dir) MakeCheckpoints() error {
	release, err := Make(d.Path, vfs.Access{AnyOwner: true})
	if err != nil {
		return err
	}
	defer release()
	dir := CheckpointDir(d.Path)
	if err := vfs.SubDir(dir); err != nil {
		return err
	}
	own := store.Open(d.fs, dir, 0)
	if id, err := own.ID(); err == nil && id == d.Run {
		return nil
	}
	return own.SetID(d.Run)
}

// FetchOwn gets a rank's journal and output from its home, without standard
// output unless stdout is set. It replaces those that are here. Until the next
// AttemptRecord names this host as the rank's home, the files at the old home
// count, so a crash does no harm.
func (d *Dir) FetchOwn(c *Client, rank, ranks int, stdout bool) error {
	files, err := c.List(rank, ranks, 0)
	if err != nil {
		return err
	}
	if !stdout {
		files = slices.DeleteFunc(files, func(f control.FileInfo) bool { return f.Path == stdoutName(rank) })
	}
	if err := d.MakeCheckpoints(); err != nil {
		return err
	}
	in := filepath.Join(d.Path, fmt.Sprintf("incoming-%04d", rank))
	if err := os.RemoveAll(in); err != nil {
		return err
	}
	defer os.RemoveAll(in)
	for _, f := range files {
		if at, err := d.find(f.Path); err != nil || !strings.HasPrefix(at, d.Path+string(filepath.Separator)) {
			return fmt.Errorf("it offers %q: %w", f.Path, errors.Join(err, tier.ErrAltered))
		}
		name := filepath.Join(in, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		if err := c.getInto(f, name); err != nil {
			return err
		}
	}
	if err := d.removeOwn(rank, ranks, stdout); err != nil {
		return err
	}
	dirs := map[string]bool{}
	for _, f := range files {
		to := filepath.Join(d.Path, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		step.At("tier.fetch")
		if err := os.Rename(filepath.Join(in, filepath.FromSlash(f.Path)), to); err != nil {
			return err
		}
		dirs[filepath.Dir(to)], dirs[filepath.Dir(filepath.Dir(to))] = true, true
	}
	if err := d.adoptOwn(rank, ranks); err != nil {
		return err
	}
	for dir := range dirs {
		if err := d.fs.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// removeOwn removes what is here of a rank's journal and output.
func (d *Dir) removeOwn(rank, ranks int, stdout bool) error {
	if err := journal.Remove(CheckpointDir(d.Path), rank, ranks); err != nil {
		return err
	}
	for _, name := range ownNames(rank) {
		if name == stdoutName(rank) && !stdout {
			continue
		}
		if err := os.Remove(filepath.Join(d.Path, filepath.FromSlash(name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// adoptOwn records that a journal and a record of written files, which were
// brought here, belong to this directory.
func (d *Dir) adoptOwn(rank, ranks int) error {
	dir := CheckpointDir(d.Path)
	if err := journal.Adopt(dir, rank, ranks); err != nil {
		return err
	}
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	err = store.Open(d.fs, dir, rank).AdoptWrittenFiles(control.Inode(st))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
