// Package store keeps the checkpoints of a run in a directory and publishes
// them atomically.
//
//	DIR/
//	  lock, lock-0001 …              held by the processes that write, one per
//	                                 rank
//	  run-id                         the identity of the run, which every rank's
//	                                 file has, too
//	  line                           the last checkpoint that all ranks had (see
//	                                 PerHost)
//	  end                            the run has finished, or is being discarded
//	  ckpt-00000012/
//	    rank-0000.h5                 the file of rank 0; it is committed
//	    rank-0000.base-00000010.h5   hard link to rank 0's file of checkpoint
//	                                 10, which has blocks that did not change
//	                                 since
//	    rank-0000.tmp                being written, or left by a crash
//
// A file gets its final name when its content is durable; the links that it
// needs are made before. So a checkpoint's directory is complete by itself. If
// an older checkpoint is removed, by this package or by hand, its names are
// gone, but not the bytes that a newer one uses.
package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/vfs"
)

// ErrLocked means that another process writes to the directory.
var ErrLocked = errors.New("another process is using this checkpoint directory")

// ErrOld means that the directory has checkpoints of format 3 or older.
var ErrOld = errors.New("a checkpoint of format 3 or older, which this version of Cairn does not read; use the version that wrote it, or remove it")

// Dir is the checkpoint directory of a run, as one rank sees it.
type Dir struct {
	fs   vfs.FS
	path string
	rank int
	lock io.Closer

	perHost bool  // see PerHost
	limit   int64 // see SetLimit
}

// Open returns the directory at path for reading. It need not exist.
func Open(fsys vfs.FS, path string, rank int) *Dir { return &Dir{fs: fsys, path: path, rank: rank} }

// Create opens the directory for writing. It creates the directory if it does
// not exist, and takes the rank's lock; Close releases it. The environment says
// who else may use the directory; see vfs.AccessFromEnv.
func Create(fsys vfs.FS, path string, rank int) (*Dir, error) {
	return CreateFor(fsys, path, rank, vfs.AccessFromEnv())
}

// CreateFor is Create, but the caller says, with a, who else may use the
// directory. CreateFor refuses a directory that belongs to another user or that
// all users may write to, unless the caller allows it; see vfs.Trust.
func CreateFor(fsys vfs.FS, path string, rank int, a vfs.Access) (*Dir, error) {
	d := Open(fsys, path, rank)
	err := d.makeAll(path)
	if err == nil {
		err = vfs.Trust(fsys, path, a)
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint directory: %w", err)
	}
	if d.lock, err = fsys.Lock(filepath.Join(path, lockName(rank))); err != nil {
		if errors.Is(err, vfs.ErrLocked) {
			err = fmt.Errorf("%w: %s: stop it first, or give this run a directory of its own", ErrLocked, path)
		}
		return nil, err
	}
	return d, nil
}

func lockName(rank int) string {
	if rank == 0 {
		return "lock"
	}
	return fmt.Sprintf("lock-%04d", rank)
}

// ForHelper opens the directory for a helper, which writes for the process that
// holds the rank's lock. It takes no lock. The holder must not write meanwhile.
// lock, if not nil, is a copy of the holder's LockFile. The lock is free when
// both the holder and the helper have closed it: nobody else writes while a
// helper finishes the work of a holder that died.
func ForHelper(fsys vfs.FS, path string, rank int, lock io.Closer) *Dir {
	return &Dir{fs: fsys, path: path, rank: rank, lock: lock}
}

// LockFile returns the open file that has the rank's lock, to be passed to a
// helper, or nil if there is none. The Dir keeps owning it.
func (d *Dir) LockFile() *os.File {
	f, _ := d.lock.(*os.File)
	return f
}

// SetHolder names the process for which this process holds the lock. It writes
// the name into the lock's file, where Holder finds it.
func (d *Dir) SetHolder(name string) {
	if f := d.LockFile(); f != nil && f.Truncate(0) == nil {
		f.WriteAt([]byte(name), 0)
	}
}

// Holder returns what SetHolder wrote last for the lock of a rank; empty: not
// known.
func Holder(path string, rank int) string {
	name, _ := os.ReadFile(filepath.Join(path, lockName(rank)))
	return string(name[:min(len(name), 100)])
}

func (d *Dir) makeAll(path string) error {
	st, err := d.fs.Stat(path)
	if err == nil {
		if !st.IsDir() {
			return &fs.PathError{Op: "open", Path: path, Err: errors.New("is a file, not a directory")}
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := d.makeAll(parent); err != nil {
			return err
		}
	}
	if err := d.fs.Mkdir(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return d.fs.SyncDir(parent)
}

// Close releases the lock.
func (d *Dir) Close() error {
	if d.lock == nil {
		return nil
	}
	return d.lock.Close()
}

// FS returns the directory's file system.
func (d *Dir) FS() vfs.FS { return d.fs }

// Path returns the directory's path.
func (d *Dir) Path() string { return d.path }

// Rank returns the rank whose files these are.
func (d *Dir) Rank() int { return d.rank }

func (d *Dir) checkpointDir(index uint64) string {
	return filepath.Join(d.path, fmt.Sprintf("ckpt-%08d", index))
}

// File returns the path of the rank's file in a checkpoint.
func (d *Dir) File(index uint64) string {
	return filepath.Join(d.checkpointDir(index), fmt.Sprintf("rank-%04d.h5", d.rank))
}

// BaseName returns the name of a link, in another checkpoint's directory, to
// the rank's file of checkpoint base.
func (d *Dir) BaseName(base uint64) string {
	return fmt.Sprintf("rank-%04d.base-%08d.h5", d.rank, base)
}

func (d *Dir) tmp(index uint64) string {
	return filepath.Join(d.checkpointDir(index), fmt.Sprintf("rank-%04d.tmp", d.rank))
}

// ParseIndex returns the index in the name of a checkpoint's directory,
// ckpt-00000012.
func ParseIndex(name string) (uint64, bool) {
	s, ok := strings.CutPrefix(name, "ckpt-")
	if !ok || len(s) < 8 {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && fmt.Sprintf("ckpt-%08d", n) == name
}

// ParseRank returns the rank in the name of a committed file, rank-0000.h5.
func ParseRank(name string) (int, bool) {
	s, prefix := strings.CutPrefix(name, "rank-")
	s, suffix := strings.CutSuffix(s, ".h5")
	if !prefix || !suffix {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err == nil && fmt.Sprintf("rank-%04d.h5", n) == name
}

// all returns the indices of all checkpoints, committed or not, newest first.
func (d *Dir) all() ([]uint64, error) {
	entries, err := d.fs.ReadDir(d.path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	var out []uint64
	for _, e := range entries {
		if n, ok := ParseIndex(e.Name()); ok {
			out = append(out, n)
		} else if old, ok := strings.CutPrefix(e.Name(), "set-"); ok && len(old) == 8 && strings.Trim(old, "0123456789") == "" {
			return nil, fmt.Errorf("%s: %w", filepath.Join(d.path, e.Name()), ErrOld)
		}
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out, nil
}

// Committed returns the indices of the checkpoints that the rank committed,
// newest first.
func (d *Dir) Committed() ([]uint64, error) {
	all, err := d.all()
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, n := range all {
		switch _, err := d.fs.Stat(d.File(n)); {
		case err == nil:
			out = append(out, n)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return out, nil
}

// Lost returns the indices of checkpoints that were committed and whose file is
// gone, newest first. It finds only checkpoints that have links to bases and no
// .tmp file: a .tmp file shows that one was being written or removed.
func (d *Dir) Lost() ([]uint64, error) {
	all, err := d.all()
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, n := range all {
		entries, err := d.fs.ReadDir(d.checkpointDir(n))
		if errors.Is(err, fs.ErrNotExist) { // another rank removes it
			continue
		}
		if err != nil {
			return nil, err
		}
		links, whole := false, false
		for _, e := range entries {
			switch name, ok := strings.CutPrefix(e.Name(), fmt.Sprintf("rank-%04d.", d.rank)); {
			case !ok:
			case name == "h5" || name == "tmp":
				whole = true
			default:
				links = true
			}
		}
		if links && !whole {
			out = append(out, n)
		}
	}
	return out, nil
}

// Next returns an index above all existing checkpoints.
func (d *Dir) Next() (uint64, error) {
	all, err := d.all()
	if err != nil || len(all) == 0 {
		return 1, err
	}
	return all[0] + 1, nil
}

// Pending is a file that is being written. Commit or Abort must be called once.
type Pending struct {
	vfs.File
	d     *Dir
	index uint64
	links []string
}

// Begin begins the rank's file of a checkpoint.
func (d *Dir) Begin(index uint64) (*Pending, error) {
	for try := 0; ; try++ {
		if err := d.fs.Mkdir(d.checkpointDir(index)); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err := d.fs.SyncDir(d.path); err != nil { // now, before the data is written
			return nil, err
		}
		if err := d.fs.Remove(d.tmp(index)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		f, err := d.fs.Create(d.tmp(index))
		if err == nil {
			return &Pending{File: f, d: d, index: index}, nil
		}
		// Another rank may have removed the directory while it was empty.
		if !errors.Is(err, fs.ErrNotExist) || try == 100 {
			return nil, err
		}
	}
}

// Link adds the file of checkpoint base to the pending checkpoint, as a hard
// link. The parameter from is a checkpoint that has the file: base itself, or
// one with a link to it. If the file system has no hard links, Link copies it.
func (p *Pending) Link(base, from uint64) (copied bool, err error) {
	src := p.d.File(base)
	if from != base {
		src = filepath.Join(p.d.checkpointDir(from), p.d.BaseName(base))
	}
	p.links = append(p.links, p.d.BaseName(base))
	dst := filepath.Join(p.d.checkpointDir(p.index), p.d.BaseName(base))
	err = p.d.fs.Remove(dst) // a leftover of a crash, perhaps of another file
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	err = p.d.fs.Link(src, dst)
	if errors.Is(err, vfs.ErrNoLink) {
		return true, copyFile(p.d.fs, src, dst)
	}
	return false, err
}

// Receive adds the file of checkpoint base to the pending checkpoint. The
// caller puts the file, durably, at the path that Receive returns. A file that
// is there already is a leftover of a crash.
func (p *Pending) Receive(base uint64) (path string) {
	p.links = append(p.links, p.d.BaseName(base))
	return filepath.Join(p.d.checkpointDir(p.index), p.d.BaseName(base))
}

func copyFile(fsys vfs.FS, src, dst string) error {
	in, err := fsys.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	size, err := in.Size()
	if err != nil {
		return err
	}
	out, err := fsys.Create(dst)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.NewOffsetWriter(out, 0), io.NewSectionReader(in, 0, size))
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// Brought says that the file of checkpoint base is where the link would be: the
// caller has fetched a copy from another directory and put it there.
func (p *Pending) Brought(base uint64) { p.links = append(p.links, p.d.BaseName(base)) }

// Commit makes the content durable and publishes it. It replaces an older file
// of the rank in that checkpoint. When it returns nil, no crash can take the
// checkpoint away any more.
func (p *Pending) Commit() error {
	d := p.d
	err := p.Sync()
	if cerr := p.File.Close(); err == nil {
		err = cerr
	}
	if err == nil && len(p.links) > 0 {
		err = d.fs.SyncDir(d.checkpointDir(p.index)) // the links are durable before the file gets its final name
	}
	if err == nil {
		step.At("commit.written")
		err = d.fs.Rename(d.tmp(p.index), d.File(p.index))
	}
	if err != nil {
		d.discard(p.index)
		return err
	}
	if err = d.fs.SyncDir(d.checkpointDir(p.index)); err == nil {
		step.At("commit.published")
		d.tidy(p.index, func(name string) bool { return strings.Contains(name, ".base-") && !slices.Contains(p.links, name) })
	}
	return err
}

// tidy removes unneeded files of this rank from a checkpoint's directory. It
// ignores errors: the files do no harm.
func (d *Dir) tidy(index uint64, unneeded func(name string) bool) {
	d.each(index, func(name string) {
		if unneeded(name) {
			d.fs.Remove(filepath.Join(d.checkpointDir(index), name))
		}
	})
}

// each calls f for the rank's files in a checkpoint's directory. It ignores
// errors.
func (d *Dir) each(index uint64, f func(name string)) {
	entries, err := d.fs.ReadDir(d.checkpointDir(index))
	if err != nil {
		return
	}
	prefix := fmt.Sprintf("rank-%04d.", d.rank)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			f(e.Name())
		}
	}
}

// Abort removes what was written.
func (p *Pending) Abort() {
	p.File.Close()
	p.d.discard(p.index)
}

// discard removes what was written of a checkpoint. If the checkpoint was
// committed before, the committed file stays.
func (d *Dir) discard(index uint64) {
	if _, err := d.fs.Stat(d.File(index)); err == nil {
		d.fs.Remove(d.tmp(index))
		return
	}
	d.removeRest(index)
}

// Remove removes the rank's part of a checkpoint, and the directory if it is
// empty then.
func (d *Dir) Remove(index uint64) error {
	err := d.fs.Rename(d.File(index), d.tmp(index)) // now it is not committed any more
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.fs.SyncDir(d.checkpointDir(index)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	step.At("prune.withdrawn")
	err = d.removeRest(index)
	step.At("prune.removed")
	return err
}

// removeRest removes the rank's files of a checkpoint that is not committed,
// and the directory if it is empty then. Other ranks may begin, abort and
// remove files in the directory at the same time. So removeRest does not check
// whether the directory is empty: it tries to remove it. The last rank
// succeeds. If a file of another rank is left, the directory stays, without an
// error.
func (d *Dir) removeRest(index uint64) error {
	if _, err := d.fs.Stat(d.File(index)); err == nil {
		return nil
	}
	entries, err := d.fs.ReadDir(d.checkpointDir(index))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	prefix := fmt.Sprintf("rank-%04d.", d.rank)
	for _, e := range entries { // .tmp comes last: see Lost
		if !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		if err := d.fs.Remove(filepath.Join(d.checkpointDir(index), e.Name())); err != nil {
			return err
		}
	}
	err = d.fs.Remove(d.checkpointDir(index))
	if errors.Is(err, vfs.ErrNotEmpty) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
