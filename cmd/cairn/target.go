package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/hdf5"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// target is a rank's file of a checkpoint that a command line names.
type target struct {
	file  string
	dir   string // checkpoint directory; empty for a file elsewhere, such as an exported one
	index uint64 // in dir
	rank  int
}

const noCheckpoints = "no checkpoints here; a run writes them to RUN/ckpt under cairn run, else to Options.Dir or CAIRN_DIR, and removes them when it has finished"

// group is a checkpoint that a command line names: the files of its ranks.
type group struct {
	index uint64
	dir   string   // checkpoint directory, or empty
	parts []target // by rank
	file  bool     // the command line names one file
}

// groups finds the checkpoints that arg names: a file, a checkpoint, DIR@12, or
// all checkpoints of a directory, newest first; then it returns all as true.
func (c *call) groups(arg string) (checkpoints []group, all bool, err error) {
	if !c.completing && supervise.IsPlace(arg) {
		return c.groupsAt(arg)
	}
	st, err := c.fsys.Stat(arg)
	if errors.Is(err, fs.ErrNotExist) {
		g, err := c.indexed(arg)
		return []group{g}, false, err
	}
	if err != nil {
		return nil, false, err
	}
	if !st.IsDir() {
		if !st.Mode().IsRegular() {
			return nil, false, fmt.Errorf("%s: neither a file nor a directory; name a checkpoint, a file of it, or a directory of checkpoints", arg)
		}
		t := locate(arg)
		return []group{{t.index, t.dir, []target{t}, true}}, false, nil
	}
	if g, ok, err := c.checkpointDir(arg); ok || err != nil {
		return []group{g}, false, err
	}
	dir, err := c.checkpointsIn(arg)
	if err != nil {
		return nil, false, err
	}
	checkpoints, err = c.checkpoints(dir)
	if err != nil {
		if g, ok := c.onTiers(0); ok {
			return []group{g}, true, nil
		}
	}
	return checkpoints, true, err
}

// checkpointsIn returns where dir has its checkpoints: in itself, or below if
// it is a run directory, or that of a run on this host. If the run's hosts
// share no files, it asks them.
func (c *call) checkpointsIn(dir string) (string, error) {
	if c.run = dir; c.completing {
		c.run = ""
	}
	if err := c.askHosts(dir); err != nil {
		return "", err
	}
	sub := filepath.Join(dir, "ckpt")
	if st, err := c.fsys.Stat(sub); err == nil && st.IsDir() {
		for _, name := range []string{"run.json", "host"} {
			if _, err := c.fsys.Stat(filepath.Join(dir, name)); err == nil {
				return sub, nil
			}
		}
	}
	// With --dir or Options.Dir, its record says where.
	if named := rundir.CheckpointDir(dir); named != "" {
		if st, err := c.fsys.Stat(named); err == nil && st.IsDir() {
			return named, nil
		}
	}
	return dir, nil
}

// theCheckpoint finds the checkpoint that arg names; in a directory it is the
// newest of those that the most ranks have.
func (c *call) theCheckpoint(arg string) (group, error) {
	checkpoints, _, err := c.groups(arg)
	if err != nil {
		return group{}, err
	}
	best := checkpoints[0]
	for _, g := range checkpoints[1:] {
		if len(g.parts) > len(best.parts) {
			best = g
		}
	}
	return best, nil
}

// resolve finds a rank's file of the checkpoint that arg names; in a directory
// it is the newest checkpoint that the rank has.
func (c *call) resolve(arg string, rank int) (target, error) {
	checkpoints, _, err := c.groups(arg)
	if err != nil {
		return target{}, err
	}
	if checkpoints[0].file {
		return checkpoints[0].parts[0], nil
	}
	var have []int
	for _, g := range checkpoints {
		for _, t := range g.parts {
			if t.rank == rank {
				return t, nil
			}
			if !slices.Contains(have, t.rank) {
				have = append(have, t.rank)
			}
		}
	}
	if g, ok := c.onTiers(checkpoints[0].wanted(arg)); ok {
		for _, t := range g.parts {
			if t.rank == rank {
				return t, nil
			}
		}
	}
	slices.Sort(have)
	return target{}, fmt.Errorf("%s: no file of rank %d here, but of %s; choose one with --rank", arg, rank, rankNames(have))
}

// wanted returns the index of the checkpoint that arg names; 0: it names a
// directory.
func (g *group) wanted(arg string) uint64 {
	if strings.HasSuffix(arg, fmt.Sprintf("@%d", g.index)) {
		return g.index
	}
	return 0
}

// rankNames returns ranks as users read them: rank 3, ranks 3 and 4.
func rankNames(ranks []int) string { return control.Listed(ranks, "rank") }

// indexed finds DIR@12.
func (c *call) indexed(arg string) (group, error) {
	at := strings.LastIndex(arg, "@")
	if at < 0 {
		return group{}, missing(arg)
	}
	dir, text := arg[:at], arg[at+1:]
	dir = cmp.Or(dir, ".")
	st, err := c.fsys.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return group{}, missing(dir)
	} else if err != nil {
		return group{}, err
	}
	index, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return group{}, fmt.Errorf("%s: %q is not a checkpoint's index; write DIR@12 for checkpoint 12 of DIR", arg, text)
	}
	if !st.IsDir() {
		return group{}, fmt.Errorf("%s: this is a file, not a directory of checkpoints; name it without @%d", dir, index)
	}
	if dir, err = c.checkpointsIn(dir); err != nil {
		return group{}, err
	}
	checkpoints, err := c.checkpoints(dir)
	var have []string
	for _, g := range checkpoints {
		if g.index == index {
			return g, nil
		}
		have = append(have, strconv.FormatUint(g.index, 10))
	}
	if g, ok := c.onTiers(index); ok {
		return g, nil
	}
	if err != nil {
		return group{}, withoutAs(err)
	}
	return group{}, fmt.Errorf("%s: no checkpoint %d here, but %s", dir, index, strings.Join(have, ", "))
}

func missing(path string) error {
	return fmt.Errorf("%s: no such file or directory; name a checkpoint, a file of it, a directory of checkpoints (for its newest one), or DIR@12 for checkpoint 12 of DIR", path)
}

// checkpointDir reports whether dir is one checkpoint, and finds its files.
func (c *call) checkpointDir(dir string) (g group, ok bool, err error) {
	entries, err := c.fsys.ReadDir(dir)
	if err != nil {
		return group{}, false, err
	}
	for _, e := range entries {
		if _, ok := store.ParseRank(e.Name()); ok {
			t := locate(filepath.Join(dir, e.Name()))
			g.index, g.dir, g.parts = t.index, t.dir, append(g.parts, t)
		}
	}
	if g.parts != nil {
		slices.SortFunc(g.parts, func(a, b target) int { return a.rank - b.rank })
		return g, true, nil
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return group{}, false, err
	}
	if _, ok := store.ParseIndex(filepath.Base(abs)); ok {
		return group{}, true, fmt.Errorf("%s: this checkpoint was not finished: it is being written, or a crash has left it; use an older one (see 'cairn list %s')", dir, filepath.Dir(abs))
	}
	return group{}, false, nil
}

// checkpoints returns the checkpoints in a directory, newest first. None is an
// error.
func (c *call) checkpoints(dir string) ([]group, error) {
	members, err := c.members(dir)
	if err != nil {
		return nil, err
	}
	var out []group
	for _, m := range members {
		g := group{index: m.index, dir: dir}
		for _, r := range m.ranks {
			g.parts = append(g.parts, target{file: store.Open(c.fsys, dir, r).File(m.index), dir: dir, index: m.index, rank: r})
		}
		out = append(out, g)
	}
	return out, nil
}

// empty returns the error for a directory without checkpoints. It names a
// directory below it that has some, if there is one.
func (c *call) empty(dir string) error {
	if c.run != "" {
		if f := supervise.Finished(c.ctx, c.run); f != nil {
			return &finishedError{c.run, f}
		}
	}
	entries, err := c.fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	unfinished := 0
	for _, e := range entries {
		if _, ok := store.ParseIndex(e.Name()); ok {
			unfinished++
		}
		if !e.IsDir() {
			continue
		}
		sub := filepath.Join(dir, e.Name())
		if checkpoints, err := store.Members(c.fsys, sub); err == nil && slices.ContainsFunc(slices.Collect(maps.Values(checkpoints)), func(ranks []int) bool { return len(ranks) > 0 }) {
			return fmt.Errorf("%s: no checkpoints here; there are some in %s", dir, sub)
		}
	}
	if unfinished > 0 {
		return fmt.Errorf("%s: no finished checkpoint here, only %s, being written or left by a crash; see 'cairn help gc'", dir, control.Count(unfinished, "unfinished one"))
	}
	return fmt.Errorf("%s: %s", dir, noCheckpoints)
}

// runDir checks that arg is a directory of checkpoints, not a checkpoint.
func (c *call) runDir(arg string) error {
	st, err := c.fsys.Stat(arg)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: no such directory; name a run directory, or a checkpoint directory (Options.Dir)", arg)
	}
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return fmt.Errorf("%s: this is a file; name a run directory, or a checkpoint directory (Options.Dir)", arg)
	}
	g, ok, err := c.checkpointDir(arg)
	if ok && g.dir != "" {
		return fmt.Errorf("%s: this is one checkpoint; name the directory that holds it, %s", arg, g.dir)
	} else if ok && err == nil {
		return fmt.Errorf("%s: this is one checkpoint; name the directory that holds it", arg)
	}
	return err
}

// locate finds out to which checkpoint directory and rank a file belongs, if
// any.
func locate(file string) target {
	for _, path := range []string{file, absolute(file)} {
		parent := filepath.Dir(path)
		rank, isRank := store.ParseRank(filepath.Base(path))
		index, isSet := store.ParseIndex(filepath.Base(parent))
		if isRank && isSet {
			return target{file: file, dir: filepath.Dir(parent), index: index, rank: rank}
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

// open opens a checkpoint's file and checks its metadata. A file outside a
// checkpoint directory that is not Cairn's is not called damaged.
func (c *call) open(t target) (*ckpt.File, error) {
	s, err := ckpt.Open(c.fsys, t.file)
	if err != nil && t.dir == "" && errors.Is(err, ckpt.ErrCorrupt) {
		if why := c.whyForeign(t.file); why != "" {
			return nil, fmt.Errorf("%s: %w: %s; name a checkpoint, a file of it, a directory of checkpoints, or a file of 'cairn export'", t.file, errNotCheckpoint, why)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, t.removed(err)
	}
	if err == nil && t.dir != "" {
		if err := c.belongs(locate(t.file), &s.Header); err != nil {
			s.Close()
			return nil, fmt.Errorf("%s: %w", t.file, err)
		}
	}
	return s, err
}

// removed says that a file of a directory of checkpoints is not there any more.
func (t target) removed(err error) error {
	if t.dir == "" {
		return err
	}
	return fmt.Errorf("%s: the run has removed checkpoint %d meanwhile; try again: %w", t.dir, t.index, err)
}

// belongs compares what a file says it is with where it is.
func (c *call) belongs(t target, h *ckpt.Header) error {
	if err := h.CheckPlace(t.index, t.rank); err != nil {
		return err
	}
	run, err := store.Open(c.fsys, t.dir, t.rank).ID()
	if err != nil || run == "" { // then files are compared with each other: see verify
		return nil
	}
	return h.CheckRun(run)
}

// openCheckpoint opens a rank's file of the checkpoint that arg names.
func (c *call) openCheckpoint(arg string, rank int) (*ckpt.File, error) {
	t, err := c.resolve(arg, rank)
	if err != nil {
		return nil, err
	}
	s, err := c.open(t)
	if err == nil && rank > 0 && s.Header.Rank != rank {
		s.Close()
		return nil, fmt.Errorf("%s: this is rank %d's file; name the checkpoint, or omit --rank", t.file, s.Header.Rank)
	}
	return s, err
}

// whyForeign returns why a file cannot be Cairn's, or nothing.
func (c *call) whyForeign(path string) string {
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

// check opens a checkpoint and the files of older ones that it needs, and
// checks their metadata, which is quick. The caller closes the checkpoint.
func (c *call) check(t target) (*ckpt.File, error) {
	s, err := c.open(t)
	if err != nil {
		return nil, err
	}
	for _, b := range s.Header.Bases {
		path := filepath.Join(filepath.Dir(t.file), filepath.Base(b.File))
		base, err := ckpt.Open(c.fsys, path)
		if err == nil {
			base.Close()
			err = s.CheckBase(&b, base)
		}
		if err != nil {
			s.Close()
			if _, gone := c.fsys.Stat(t.file); errors.Is(gone, fs.ErrNotExist) {
				return nil, t.removed(gone)
			}
			return nil, fmt.Errorf("%s: %w: a file of an older checkpoint that it needs: %w", t.file, ckpt.ErrCorrupt, err)
		}
	}
	return s, nil
}

// dirFile is a file in a checkpoint's directory.
type dirFile struct {
	path string
	info os.FileInfo
}

// files returns the files in a directory, without those that vanish meanwhile.
func (c *call) files(dir string) ([]dirFile, error) {
	entries, err := c.fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []dirFile
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
			out = append(out, dirFile{path, st})
		}
	}
	return out, nil
}

// distinct returns the bytes of files, without those that are also among kept.
// A file with several names is counted once.
func distinct(files, kept []dirFile) int64 {
	bySize := make(map[int64][]os.FileInfo)
	for _, f := range kept {
		bySize[f.info.Size()] = append(bySize[f.info.Size()], f.info)
	}
	total := int64(0)
	for _, f := range files {
		n := f.info.Size()
		if slices.ContainsFunc(bySize[n], func(g os.FileInfo) bool { return sameFile(f.info, g) }) {
			continue
		}
		bySize[n] = append(bySize[n], f.info)
		total += n
	}
	return total
}

// sameFile reports whether two names are of one file. Files of other hosts and
// on tiers say by a text which they are.
func sameFile(a, b os.FileInfo) bool {
	id, elsewhere := a.Sys().(string)
	return os.SameFile(a, b) || elsewhere && id != "" && b.Sys() == id
}

// checkpointDirs returns the paths of all checkpoints in dir, committed or not,
// by index.
func (c *call) checkpointDirs(dir string) (map[uint64]string, error) {
	entries, err := c.fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := make(map[uint64]string)
	for _, e := range entries {
		if n, ok := store.ParseIndex(e.Name()); ok {
			out[n] = filepath.Join(dir, e.Name())
		}
	}
	return out, nil
}

// unneeded returns the files of a committed checkpoint that no checkpoint
// needs: those that a crash left half written, and links to older files that
// the checkpoint, rewritten since, does not refer to any more.
func (c *call) unneeded(t target, h *ckpt.Header) ([]dirFile, error) {
	files, err := c.files(filepath.Dir(t.file))
	if err != nil {
		return nil, err
	}
	prefix := fmt.Sprintf("rank-%04d.", t.rank)
	var out []dirFile
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
