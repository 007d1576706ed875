package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/ckpt"
	"github.com/cairnrun/cairn/hdf5"
	"github.com/cairnrun/cairn/store"
)

// target is a set's file that a command line names.
type target struct {
	file  string
	dir   string // the run's folder; empty for a file that lies elsewhere, as an exported one
	index uint64 // in dir
	rank  int
}

const noCheckpoints = "no checkpoints here; a run writes them to its Options.Dir, and one that finished removes them"

// resolve finds the set that arg names: a file, a set's folder, a run's
// folder (its newest set) or DIR@12.
func (c *call) resolve(arg string) (target, error) {
	st, err := c.fsys.Stat(arg)
	if errors.Is(err, fs.ErrNotExist) {
		return c.resolveIndex(arg)
	}
	if err != nil {
		return target{}, err
	}
	if !st.IsDir() {
		if !st.Mode().IsRegular() {
			return target{}, fmt.Errorf("%s: neither a file nor a folder, so not a checkpoint; name a set's file, a set's folder or a run's folder", arg)
		}
		return locate(arg), nil
	}
	if t, ok, err := c.setFolder(arg); ok || err != nil {
		return t, err
	}
	sets, err := c.sets(arg)
	if err != nil {
		return target{}, err
	}
	return sets[0], nil
}

// resolveIndex finds DIR@12.
func (c *call) resolveIndex(arg string) (target, error) {
	at := strings.LastIndex(arg, "@")
	if at < 0 {
		return target{}, missing(arg)
	}
	dir, text := arg[:at], arg[at+1:]
	if dir == "" {
		dir = "."
	}
	st, err := c.fsys.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return target{}, missing(dir)
	} else if err != nil {
		return target{}, err
	}
	index, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return target{}, fmt.Errorf("%s: %q is not the number of a set; write DIR@12 for set 12 of DIR", arg, text)
	}
	if !st.IsDir() {
		return target{}, fmt.Errorf("%s: a file, so it has no sets; name it without @%d", dir, index)
	}
	sets, err := c.sets(dir)
	if err != nil {
		return target{}, err
	}
	var have []string
	for _, t := range sets {
		if t.index == index {
			return t, nil
		}
		have = append(have, strconv.FormatUint(t.index, 10))
	}
	return target{}, fmt.Errorf("%s: no set %d here; there is %s", dir, index, strings.Join(have, ", "))
}

func missing(path string) error {
	return fmt.Errorf("%s: no such file or folder; name a set's file, a set's folder, a run's folder (its newest set), or DIR@12 for set 12 of DIR", path)
}

// setFolder reports whether a folder is a set's, and finds the file in it.
func (c *call) setFolder(dir string) (t target, ok bool, err error) {
	entries, err := c.fsys.ReadDir(dir)
	if err != nil {
		return target{}, false, err
	}
	for _, e := range entries { // sorted, so rank 0 comes first
		if _, ok := store.FileRank(e.Name()); ok {
			return locate(filepath.Join(dir, e.Name())), true, nil
		}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return target{}, false, err
	}
	if _, ok := store.SetIndex(filepath.Base(abs)); ok {
		return target{}, true, fmt.Errorf("%s: this set was not finished: it is being written, or a crash left it; take an older one (see 'cairn list %s')", dir, filepath.Dir(abs))
	}
	return target{}, false, nil
}

// sets returns the sets in a run's folder, newest first. That there are none
// is an error.
func (c *call) sets(dir string) ([]target, error) {
	d := store.Open(c.fsys, dir, 0)
	indices, err := d.Sets()
	if err != nil {
		return nil, err
	}
	if len(indices) == 0 {
		return nil, c.empty(dir)
	}
	var out []target
	for _, n := range indices {
		out = append(out, target{file: d.File(n), dir: dir, index: n})
	}
	return out, nil
}

// empty is the error for a folder without sets. It looks for a run's folder
// one level below, which is what may have been meant.
func (c *call) empty(dir string) error {
	entries, err := c.fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	unfinished := 0
	for _, e := range entries {
		if _, ok := store.SetIndex(e.Name()); ok {
			unfinished++
		}
		if !e.IsDir() {
			continue
		}
		sub := filepath.Join(dir, e.Name())
		if sets, err := store.Open(c.fsys, sub, 0).Sets(); err == nil && len(sets) > 0 {
			return fmt.Errorf("%s: no checkpoints here; there are some in %s", dir, sub)
		}
	}
	if unfinished > 0 {
		return fmt.Errorf("%s: no finished checkpoint here, only %s being written or left by a crash; see 'cairn help gc'", dir, count(unfinished, "set"))
	}
	return fmt.Errorf("%s: %s", dir, noCheckpoints)
}

// runFolder checks that arg is a folder that holds sets, not a set.
func (c *call) runFolder(arg string) error {
	st, err := c.fsys.Stat(arg)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: no such folder; name the folder that a run has as its Options.Dir", arg)
	}
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return fmt.Errorf("%s: a file; name the folder that a run has as its Options.Dir", arg)
	}
	t, ok, err := c.setFolder(arg)
	if ok && t.dir != "" {
		return fmt.Errorf("%s: the folder of one set; name the run's folder, %s", arg, t.dir)
	} else if ok && err == nil {
		return fmt.Errorf("%s: the folder of one set; name the run's folder", arg)
	}
	return err
}

// locate finds out where in a run's folder a file lies, if it does.
func locate(file string) target {
	for _, path := range []string{file, absolute(file)} {
		folder := filepath.Dir(path)
		rank, isRank := store.FileRank(filepath.Base(path))
		index, isSet := store.SetIndex(filepath.Base(folder))
		if isRank && isSet {
			return target{file: file, dir: filepath.Dir(folder), index: index, rank: rank}
		}
	}
	return target{file: file}
}

func absolute(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	return abs
}

// open opens a set and checks its metadata. A file outside a run's folder
// that shows no sign of being Cairn's is not called damaged.
func (c *call) open(t target) (*ckpt.Set, error) {
	s, err := ckpt.Open(c.fsys, t.file)
	if err != nil && t.dir == "" && errors.Is(err, ckpt.ErrCorrupt) {
		if why := c.foreign(t.file); why != "" {
			return nil, fmt.Errorf("%s: %w: %s; name a set's file, a set's folder, a run's folder, or a file made by 'cairn export'", t.file, errNotCheckpoint, why)
		}
	}
	if errors.Is(err, fs.ErrNotExist) && t.dir != "" {
		return nil, fmt.Errorf("%s: set %d was removed meanwhile, by a run that keeps only its newest; try again: %w", t.dir, t.index, err)
	}
	return s, err
}

// openSet resolves arg and opens the set.
func (c *call) openSet(arg string) (*ckpt.Set, error) {
	t, err := c.resolve(arg)
	if err != nil {
		return nil, err
	}
	return c.open(t)
}

// foreign tells why a file can't be Cairn's, or nothing.
func (c *call) foreign(path string) string {
	f, err := c.fsys.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return ""
	}
	if n == 0 {
		return "the file is empty"
	}
	const signature = "\x89HDF\r\n\x1a\n"
	signed := false
	for at := int64(0); at <= n-8 && !signed; at = max(2*at, 512) { // where HDF5 allows it
		var b [8]byte
		f.ReadAt(b[:], at)
		signed = string(b[:]) == signature
	}
	if !signed {
		return "not an HDF5 file"
	}
	h5, err := hdf5.Open(f, n)
	if err != nil {
		return ""
	}
	if _, err := h5.Dataset("Header"); errors.Is(err, hdf5.ErrNotFound) {
		return "an HDF5 file, but it has no /Header, so another program wrote it"
	}
	if _, err := h5.Attr("Header", "digest"); errors.Is(err, hdf5.ErrNotFound) {
		return "an HDF5 file, but its /Header has no digest, so another program wrote it"
	}
	return ""
}

// check opens a set and those files of older sets that it needs, and checks
// their metadata, which is quick. The caller closes the set.
func (c *call) check(t target) (*ckpt.Set, error) {
	s, err := c.open(t)
	if err != nil {
		return nil, err
	}
	for _, b := range s.Header.Bases {
		path := filepath.Join(filepath.Dir(t.file), filepath.Base(b.File))
		base, err := ckpt.Open(c.fsys, path)
		if err == nil {
			base.Close()
			if base.Header.Set != b.Set {
				err = fmt.Errorf("%s: it is set %d, and should be set %d", path, base.Header.Set, b.Set)
			}
		}
		if err != nil {
			s.Close()
			if _, gone := c.fsys.Stat(t.file); errors.Is(gone, fs.ErrNotExist) {
				return nil, gone
			}
			return nil, fmt.Errorf("%s: %w: a file of an older set that it needs: %w", t.file, ckpt.ErrCorrupt, err)
		}
	}
	return s, nil
}

// folderFile is a file in a set's folder.
type folderFile struct {
	path string
	info os.FileInfo
}

// files returns the files in a folder. One that vanishes meanwhile is left out.
func (c *call) files(dir string) ([]folderFile, error) {
	entries, err := c.fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []folderFile
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		st, err := c.fsys.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if st.Mode().IsRegular() {
			out = append(out, folderFile{path, st})
		}
	}
	return out, nil
}

// distinct returns the bytes of files, each counted once however many names
// it has, leaving out those that are also among kept.
func distinct(files, kept []folderFile) int64 {
	bySize := make(map[int64][]os.FileInfo)
	for _, f := range kept {
		bySize[f.info.Size()] = append(bySize[f.info.Size()], f.info)
	}
	total := int64(0)
	for _, f := range files {
		n := f.info.Size()
		if slices.ContainsFunc(bySize[n], func(g os.FileInfo) bool { return os.SameFile(f.info, g) }) {
			continue
		}
		bySize[n] = append(bySize[n], f.info)
		total += n
	}
	return total
}

// folders returns the paths of all set folders in a run's folder, committed
// or not, by index.
func (c *call) folders(dir string) (map[uint64]string, error) {
	entries, err := c.fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := make(map[uint64]string)
	for _, e := range entries {
		if n, ok := store.SetIndex(e.Name()); ok {
			out[n] = filepath.Join(dir, e.Name())
		}
	}
	return out, nil
}

// unneeded returns what lies in a committed set's folder and no set needs:
// files that a crash left half written, and links to older files that the
// set, rewritten since, does not refer to any more.
func (c *call) unneeded(t target, h *ckpt.Header) ([]folderFile, error) {
	files, err := c.files(filepath.Dir(t.file))
	if err != nil {
		return nil, err
	}
	prefix := fmt.Sprintf("rank-%04d.", t.rank)
	var out []folderFile
	for _, f := range files {
		name := filepath.Base(f.path)
		rest, ok := strings.CutPrefix(name, prefix)
		used := slices.ContainsFunc(h.Bases, func(b ckpt.Base) bool { return b.File == name })
		if ok && !used && (rest == "tmp" || strings.HasPrefix(rest, "base-")) {
			out = append(out, f)
		}
	}
	return out, nil
}
