//go:build linux

package supervise

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// FS returns a file system that shows the checkpoints of all hosts in one
// directory, RUN/ckpt: of each rank the file that counts. Other paths are those
// of base. Nothing below RUN/ckpt can be changed.
func (v *HostView) FS(base vfs.FS) vfs.FS {
	return &viewFS{FS: base, v: v, root: filepath.Join(v.run, "ckpt"), lists: make(map[string][]control.FileInfo)}
}

type viewFS struct {
	vfs.FS
	v    *HostView
	root string

	mu    sync.Mutex
	lists map[string][]control.FileInfo // files by rank and checkpoint
}

// errElsewhere says that a file is on another host.
var errElsewhere = errors.New("it is on the hosts of the run, and cannot be changed from here; give the command on its host, with the directory there")

// inside returns the path below the root.
func (f *viewFS) inside(name string) (rel string, ok bool) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return "", false
	}
	rel, err = filepath.Rel(f.root, abs)
	return filepath.ToSlash(rel), err == nil && filepath.IsLocal(rel)
}

// parse returns whose file a path is: RUN/ckpt/ckpt-00000012/rank-0003.h5.
func (v *HostView) parse(name string) (rank int, index uint64, ok bool) {
	abs, err := filepath.Abs(name)
	if err != nil || filepath.Dir(filepath.Dir(abs)) != filepath.Join(v.run, "ckpt") {
		return 0, 0, false
	}
	index, isCheckpoint := store.ParseIndex(filepath.Base(filepath.Dir(abs)))
	_, err = fmt.Sscanf(filepath.Base(abs), "rank-%d.", &rank)
	return rank, index, isCheckpoint && err == nil
}

// indices returns the checkpoints that a host has, and the ranks of each.
func (f *viewFS) indices() map[uint64][]int {
	out := make(map[uint64][]int)
	for _, h := range f.v.Hosts {
		if h.Files == nil {
			continue
		}
		for _, p := range h.Files.Parts {
			if !slices.Contains(out[p.Index], p.Rank) {
				out[p.Index] = append(out[p.Index], p.Rank)
			}
		}
	}
	return out
}

// list returns the files of a rank in a checkpoint.
func (f *viewFS) list(rank int, index uint64) ([]control.FileInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := fmt.Sprint(rank, " ", index)
	if list, ok := f.lists[key]; ok {
		return list, nil
	}
	h := f.v.holder(rank, index)
	if h == nil {
		return nil, fs.ErrNotExist
	}
	answer, err := ask[*control.FileList](h, &control.ListFiles{Rank: rank, Ranks: f.v.rec.Ranks, Index: index})
	switch {
	case err != nil:
		return nil, fmt.Errorf("host %s: %w", h.Name, err)
	case answer.Error != "":
		return nil, fmt.Errorf("%w: host %s: %s", fs.ErrNotExist, h.Name, answer.Error)
	}
	f.lists[key] = answer.Files
	return answer.Files, nil
}

// find returns a file below the root, and the host that has it.
func (f *viewFS) find(name, rel string) (*ViewedHost, control.FileInfo, error) {
	fails := func(err error) (*ViewedHost, control.FileInfo, error) {
		return nil, control.FileInfo{}, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	if rel == "run-id" { // all hosts have the same
		for _, h := range f.v.Hosts {
			if h.Files == nil {
				continue
			}
			if size, err := h.size("ckpt/" + rel); err == nil && size > 0 {
				return h, control.FileInfo{Path: "ckpt/" + rel, Size: size, Mode: 0o600}, nil
			}
		}
		return fails(fs.ErrNotExist)
	}
	rank, index, ok := f.v.parse(name)
	if !ok {
		return fails(fs.ErrNotExist)
	}
	list, err := f.list(rank, index)
	if err != nil {
		return fails(err)
	}
	for _, info := range list {
		if path.Base(info.Path) == path.Base(rel) {
			return f.v.holder(rank, index), info, nil
		}
	}
	return fails(fs.ErrNotExist)
}

func (f *viewFS) Stat(name string) (fs.FileInfo, error) {
	rel, ok := f.inside(name)
	if !ok {
		return f.FS.Stat(name)
	}
	index, isCheckpoint := store.ParseIndex(rel)
	if rel == "." || isCheckpoint && f.indices()[index] != nil {
		return viewInfo{control.FileInfo{Path: filepath.Base(name)}, true, ""}, nil
	}
	h, info, err := f.find(name, rel)
	if err != nil {
		return nil, err
	}
	if size, err := h.size(info.Path); err == nil && size == 0 && info.Size > 0 { // the run has removed it since it was listed
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return f.info(h, info), nil
}

func (f *viewFS) ReadDir(name string) (out []fs.DirEntry, err error) {
	rel, ok := f.inside(name)
	if !ok {
		return f.FS.ReadDir(name)
	}
	all := f.indices()
	if rel == "." {
		for _, index := range slices.Sorted(maps.Keys(all)) {
			out = append(out, fs.FileInfoToDirEntry(viewInfo{control.FileInfo{Path: fmt.Sprintf("ckpt-%08d", index)}, true, ""}))
		}
		return out, nil
	}
	index, isCheckpoint := store.ParseIndex(rel)
	if !isCheckpoint || all[index] == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	slices.Sort(all[index])
	for _, rank := range all[index] {
		list, err := f.list(rank, index)
		if errors.Is(err, fs.ErrNotExist) {
			if h := f.v.holder(rank, index); h != nil && h.lacks(rank, index) { // the run is removing the checkpoint
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, info := range list {
			out = append(out, fs.FileInfoToDirEntry(f.info(f.v.holder(rank, index), info)))
		}
	}
	return out, nil
}

// info describes a file of a host. A base is the file of another checkpoint.
func (f *viewFS) info(h *ViewedHost, info control.FileInfo) viewInfo {
	same := ""
	base := path.Base(info.Path)
	var rank int
	var index uint64
	if n, _ := fmt.Sscanf(base, "rank-%d.base-%d.h5", &rank, &index); n < 2 {
		index, _ = store.ParseIndex(path.Base(path.Dir(info.Path)))
		if n, _ := fmt.Sscanf(base, "rank-%d.h5", &rank); n < 1 || index == 0 {
			return viewInfo{info, false, same}
		}
	}
	if h != nil && h.Files != nil {
		same = fmt.Sprint(h.Files.ID, " ", rank, " ", index)
	}
	return viewInfo{info, false, same}
}

func (f *viewFS) Open(name string) (vfs.File, error) {
	rel, ok := f.inside(name)
	if !ok {
		return f.FS.Open(name)
	}
	h, info, err := f.find(name, rel)
	if err != nil {
		return nil, err
	}
	return h.file(info.Path, info.Size), nil
}

// refused returns the error for a change below the root.
func (f *viewFS) refused(op, name string) error {
	if _, ok := f.inside(name); ok {
		return &fs.PathError{Op: op, Path: name, Err: errElsewhere}
	}
	return nil
}

func (f *viewFS) Create(name string) (vfs.File, error) {
	if err := f.refused("create", name); err != nil {
		return nil, err
	}
	return f.FS.Create(name)
}

func (f *viewFS) Mkdir(name string) error {
	if err := f.refused("mkdir", name); err != nil {
		return err
	}
	return f.FS.Mkdir(name)
}

func (f *viewFS) Rename(from, to string) error {
	if err := errors.Join(f.refused("rename", from), f.refused("rename", to)); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f *viewFS) Link(from, to string) error {
	if err := errors.Join(f.refused("link", from), f.refused("link", to)); err != nil {
		return err
	}
	return f.FS.Link(from, to)
}

func (f *viewFS) Remove(name string) error {
	if err := f.refused("remove", name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *viewFS) SyncDir(name string) error {
	if err := f.refused("sync", name); err != nil {
		return err
	}
	return f.FS.SyncDir(name)
}

func (f *viewFS) Lock(name string) (io.Closer, error) {
	if err := f.refused("lock", name); err != nil {
		return nil, err
	}
	return f.FS.Lock(name)
}

// viewInfo describes a file or a directory below the root.
type viewInfo struct {
	info control.FileInfo
	dir  bool
	same string // two names of one file have the same, other files another
}

func (i viewInfo) Name() string       { return path.Base(i.info.Path) }
func (i viewInfo) Size() int64        { return i.info.Size }
func (i viewInfo) ModTime() time.Time { return i.info.Time }
func (i viewInfo) IsDir() bool        { return i.dir }
func (i viewInfo) Sys() any           { return i.same }

func (i viewInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o700
	}
	return fs.FileMode(i.info.Mode)
}

// viewFile is a file of another host or on a tier, open for reading. It keeps
// the last pieces: metadata is read in many small steps.
type viewFile struct {
	info  control.FileInfo
	fetch func(at int64) ([]byte, error) // the piece that begins there

	mu     sync.Mutex
	blocks map[int64][]byte // by number
	recent []int64
}

// viewBlocks is how many pieces of a file are kept.
const viewBlocks = 8

func (f *viewFile) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		if off+int64(n) >= f.info.Size {
			return n, io.EOF
		}
		at := (off + int64(n)) / control.MaxFileData
		data, err := f.block(at)
		if err != nil {
			return n, err
		}
		k := copy(p[n:], data[min(int64(len(data)), off+int64(n)-at*control.MaxFileData):])
		if k == 0 {
			return n, io.ErrUnexpectedEOF
		}
		n += k
	}
	return n, nil
}

// block returns a piece of the file.
func (f *viewFile) block(at int64) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if data, ok := f.blocks[at]; ok {
		return data, nil
	}
	data, err := f.fetch(at * control.MaxFileData)
	if err != nil {
		return nil, err
	}
	if f.recent = append(f.recent, at); len(f.recent) > viewBlocks {
		delete(f.blocks, f.recent[0])
		f.recent = f.recent[1:]
	}
	f.blocks[at] = data
	return data, nil
}

// file opens a file of the host.
func (h *ViewedHost) file(path string, size int64) *viewFile {
	return &viewFile{info: control.FileInfo{Path: path, Size: size}, blocks: make(map[int64][]byte), fetch: func(at int64) ([]byte, error) {
		answer, err := h.read(&control.ReadFile{Path: path, Offset: at})
		if err != nil {
			return nil, err
		}
		if answer.Size == 0 && size > 0 { // the run has removed it meanwhile
			return nil, fmt.Errorf("host %s: %w", h.Name, &fs.PathError{Op: "read", Path: path, Err: fs.ErrNotExist})
		}
		return answer.Data, nil
	}}
}

// read asks for a piece of a file.
func (h *ViewedHost) read(m *control.ReadFile) (*control.FileData, error) {
	answer, err := ask[*control.FileData](h, m)
	switch {
	case err != nil:
		return nil, fmt.Errorf("host %s: %w", h.Name, err)
	case answer.Error != "":
		return nil, fmt.Errorf("host %s: %s", h.Name, strings.TrimSpace(answer.Error))
	}
	return answer, nil
}

// size returns the size of a file; 0: it is not there.
func (h *ViewedHost) size(name string) (int64, error) {
	answer, err := h.read(&control.ReadFile{Path: name})
	if err != nil {
		return 0, err
	}
	return answer.Size, nil
}

func (f *viewFile) Size() (int64, error) { return f.info.Size, nil }
func (f *viewFile) Close() error         { return nil }

func (f *viewFile) WriteAt([]byte, int64) (int, error) { return 0, errElsewhere }
func (f *viewFile) WriteV([][]byte, int64) error       { return errElsewhere }
func (f *viewFile) Allocate(int64) error               { return errElsewhere }
func (f *viewFile) Truncate(int64) error               { return errElsewhere }
func (f *viewFile) Sync() error                        { return errElsewhere }
