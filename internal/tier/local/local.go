//go:build linux

// Package local is the directory of a run on one host, which other hosts do not
// see: what is in it, and how helpers bring files of ranks from one host's
// directory to another's.
//
//	LOCAL/sim-7d0c51e9/   one run
//	  host                record: whose directory this is, and its own ID
//	  attempt             record: control.AttemptRecord, the newest that reached
//	                      this host
//	  setup.lock          locked while a helper sets the directory up
//	  hosts/NAME.lock     locked by a helper; lists its ranks
//	  ckpt/               checkpoint directory of the ranks on this host
//	  output/             their output files
//	  packs/              their packs (package pack), for tiers
//	  held-shared/        links to checkpoints that are being uploaded
//	  incoming-0003/      files of rank 3 that are being brought
//
// The ID is random and made once. A blank disk in the place of another has no
// ID, and gets a new one; so nobody takes it for the directory that it was.
//
// Between two helpers there is a TCP connection, which begins with a handshake
// (control.Client, control.Server). One asks with ListFiles and GetFile, the
// other answers with FileList and FileBytes. The bytes of a file follow in
// chunks (tier.Chunk), until FileBytes.Bytes have come.
package local

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// Name returns the name of a run's directory on all hosts. The same run
// directory has the same name everywhere.
func Name(run string) string {
	sum := sha256.Sum256([]byte(run))
	return strings.TrimSuffix(filepath.Base(run), ".cairn") + "-" + hex.EncodeToString(sum[:4])
}

// CheckpointDir and OutputDir return the parts of a run's directory on a host.
func CheckpointDir(dir string) string { return filepath.Join(dir, "ckpt") }
func OutputDir(dir string) string     { return filepath.Join(dir, "output") }

// hostRecord is the content of the file host.
type hostRecord struct {
	Format int    `json:"format"`
	Run    string `json:"run"` // the run
	ID     string `json:"id"`  // of this directory
}

const hostFormat = 1

// Dir is a run's directory on this host.
type Dir struct {
	Path string
	ID   string // random; a replaced disk has another one
	Run  string
	fs   vfs.FS

	packing sync.Mutex // while packs are made
}

func hostPath(dir string) string    { return filepath.Join(dir, "host") }
func attemptPath(dir string) string { return filepath.Join(dir, "attempt") }

// Make makes the directory of a run if there is none, and locks it, so that the
// caller can set it up; release unlocks it. Make also makes the parent of the
// directory, but nothing above: a disk may not be mounted there.
func Make(path string, a vfs.Access) (release func(), err error) {
	parent := filepath.Dir(path)
	if err := vfs.OS().Mkdir(parent); err != nil && !errors.Is(err, fs.ErrExist) {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: is its file system mounted on this host?", err)
		}
		return nil, err
	}
	for _, dir := range []string{path, filepath.Join(path, "hosts")} {
		if err := vfs.SubDir(dir); err != nil {
			return nil, err
		}
	}
	if err := vfs.Trust(vfs.OS(), path, a); err != nil {
		return nil, err
	}
	f, err := vfs.OpenLock(filepath.Join(path, "setup.lock"))
	if err != nil {
		return nil, err
	}
	for {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return func() { f.Close() }, nil
}

// OtherRunError says that a directory has the files of another run, or may
// have.
type OtherRunError struct {
	Run string // control.AnyRun: it is not known
	error
}

func (e *OtherRunError) Unwrap() error { return e.error }

func otherRunf(run, format string, args ...any) error {
	return &OtherRunError{run, fmt.Errorf(format, args...)}
}

// unused reports whether the run that has a directory has started no rank
// there, and keeps nothing there for other hosts.
func unused(path string) bool {
	if _, err := os.Lstat(attemptPath(path)); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	err := filepath.WalkDir(filepath.Join(path, "kept"), func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			err = fs.ErrExist
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	there, err := store.Holds(vfs.OS(), CheckpointDir(path))
	return err == nil && !there
}

// Claim opens the directory for a run. If it is blank, it becomes that of the
// run. If it has the files of another run, that is an error, unless replaces
// names that run: then they are discarded. The caller has called Make.
func Claim(path, run string, replaces []string) (*Dir, error) {
	fsys := vfs.OS()
	var h hostRecord
	err := store.ReadRecord(fsys, hostPath(path), &h)
	anyRun := slices.Contains(replaces, control.AnyRun)
	switch {
	case err == nil && h.Format != hostFormat:
		return nil, fmt.Errorf("%s: format %d, this cairn knows %d; use the cairn that wrote it", hostPath(path), h.Format, hostFormat)
	case err == nil && h.Run == run:
		return &Dir{Path: path, ID: h.ID, Run: run, fs: fsys}, nil
	case err == nil && !anyRun && !slices.Contains(replaces, h.Run) && !unused(path):
		return nil, otherRunf(h.Run, "%s has the files of another run (%s), which this run directory does not know: give that run's own command, or discard it with --fresh", path, h.Run)
	case errors.Is(err, store.ErrDamaged) && !anyRun:
		return nil, otherRunf(control.AnyRun, "%w: it says whose files are in %s, so nothing is started; restore it, or discard the run with --fresh", err, path)
	case errors.Is(err, fs.ErrNotExist) && !anyRun:
		if there, herr := store.Holds(fsys, CheckpointDir(path)); herr != nil || there {
			return nil, errors.Join(otherRunf(control.AnyRun, "%s has checkpoints, but the record of their run, %s, is missing; restore the record, or discard the run with --fresh", path, hostPath(path)), herr)
		}
	case err != nil && !errors.Is(err, store.ErrDamaged) && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if err := empty(path); err != nil { // so a crash leaves it with its old record, or without one and without checkpoints
		return nil, err
	}
	d := &Dir{Path: path, ID: store.NewID(), Run: run, fs: fsys}
	return d, store.WriteRecord(fsys, hostPath(path), &hostRecord{hostFormat, run, d.ID})
}

// empty removes what a run has in its directory on this host, but not the
// locks. The record of whose it is goes last.
func empty(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch e.Name() {
		case "host", "hosts", "setup.lock":
			continue
		}
		if err := os.RemoveAll(filepath.Join(path, e.Name())); err != nil {
			return err
		}
	}
	if err := os.Remove(hostPath(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return vfs.OS().SyncDir(path)
}

// Open opens the directory of a run for reading.
func Open(path string) (*Dir, error) {
	var h hostRecord
	if err := store.ReadRecord(vfs.OS(), hostPath(path), &h); err != nil {
		return nil, err
	}
	return &Dir{Path: path, ID: h.ID, Run: h.Run, fs: vfs.OS()}, nil
}

// DiscardAll removes everything but the locks. The directory has no ID then.
func (d *Dir) DiscardAll() error { return empty(d.Path) }

// Discard removes the files of all ranks but some.
func (d *Dir) Discard(ranks int, keep []int) error {
	members, err := store.Members(d.fs, CheckpointDir(d.Path))
	if err != nil {
		return err
	}
	for r := range ranks {
		if slices.Contains(keep, r) {
			continue
		}
		own := store.ForHelper(d.fs, CheckpointDir(d.Path), r, nil)
		for index := range members {
			if err := own.Remove(index); err != nil {
				return err
			}
		}
		if err := d.removeOwn(r, ranks, true); err != nil {
			return err
		}
		packs, err := filepath.Glob(filepath.Join(vfs.QuoteGlob(d.packsDir()), fmt.Sprintf("rank-%04d-*", r)))
		if err != nil {
			return err
		}
		for _, name := range packs {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return d.fs.SyncDir(CheckpointDir(d.Path))
}

// Attempt returns the newest record that reached this host; nil: none did.
func (d *Dir) Attempt() (*control.AttemptRecord, error) {
	a := new(control.AttemptRecord)
	err := store.ReadRecord(d.fs, attemptPath(d.Path), a)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		if err = a.Check(); err != nil {
			err = fmt.Errorf("%s: %w", attemptPath(d.Path), err)
		}
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

// SetAttempt stores a record, durably, unless the directory has a newer one of
// the same run. Several helpers of this host may do so at the same time.
func (d *Dir) SetAttempt(a *control.AttemptRecord) error {
	release, err := Make(d.Path, vfs.Access{AnyOwner: true})
	if err != nil {
		return err
	}
	defer release()
	if old, err := d.Attempt(); err != nil || old != nil && old.Run == a.Run && !a.Newer(old) {
		return err
	}
	return store.WriteRecord(d.fs, attemptPath(d.Path), a)
}

// Read returns a piece of a file that peers may have, and the file's size. A
// file that is not there is empty.
func (d *Dir) Read(name string, offset int64, most int) (data []byte, size int64, err error) {
	at, err := d.find(name)
	if err != nil {
		return nil, 0, err
	}
	f, err := os.Open(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	data = make([]byte, max(0, min(int64(most), st.Size()-offset)))
	n, err := f.ReadAt(data, offset)
	if err == io.EOF {
		err = nil
	}
	return data[:n], st.Size(), err
}

// Sum returns the SHA-256 of a file that peers may have, in hexadecimal, and
// its size. A file that is not there is empty.
func (d *Dir) Sum(name string) (string, int64, error) {
	at, err := d.find(name)
	if err != nil {
		return "", 0, err
	}
	return SumOf(at)
}

// SumOf returns the SHA-256 of a file, in hexadecimal, and its size. A file
// that is not there is empty.
func SumOf(path string) (string, int64, error) {
	h := sha256.New()
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return hex.EncodeToString(h.Sum(nil)), 0, nil
	}
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	n, err := io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), n, err
}
