package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// damageFile damages a file of a run that was killed. The run must avoid the
// damage or refuse, and complete when the damage is undone.
func damageFile(t *faultCase) error {
	c := t.choose()
	if t.r.IntN(4) == 0 {
		t.prog = t.ranksProgram()
	}
	c.alone = t.prog.ranks == 1 && t.r.IntN(4) == 0
	// Keep an older version of all files, as replacements for newer ones.
	if err := t.halted(c, 2); err != nil {
		return err
	}
	if t.over(c) {
		return t.complete(c, nil)
	}
	old, err := readFiles(t.file(c.run))
	if err != nil {
		return err
	}
	if err := t.halted(c, 1+t.r.IntN(3)); err != nil {
		return err
	}
	if t.over(c) {
		return t.complete(c, nil)
	}
	now, err := readFiles(t.file(c.run))
	if err != nil {
		return err
	}
	undo, names, err := t.damage(c, now, old)
	if err != nil {
		return err
	}
	return t.refusable(c, names, undo)
}

// halted starts the command, lets it save a number of checkpoints, and kills
// all processes.
func (t *faultCase) halted(c *scenario, checkpoints int) error {
	s, err := t.start(c)
	if err != nil {
		return err
	}
	if c.alone {
		t.aloneSaves(c, s, checkpoints)
	} else if _, err := s.sees(committed, checkpoints); err != nil {
		return err
	}
	if err := t.strikeAll(); err != nil {
		return err
	}
	return s.end()
}

// aloneSaves waits until a program without a supervisor has saved some
// checkpoints.
func (t *faultCase) aloneSaves(c *scenario, s *start, checkpoints int) {
	newest := func() string {
		list, _ := filepath.Glob(filepath.Join(t.file(c.run), "ckpt-0*", "*.h5"))
		if len(list) == 0 {
			return ""
		}
		return slices.Max(list)
	}
	last := newest()
	for checkpoints > 0 && s.pause(2e6) {
		if now := newest(); now != last {
			last = now
			checkpoints--
		}
	}
}

// over reports whether the run has already reached its end.
func (t *faultCase) over(c *scenario) bool {
	if !c.alone {
		return t.finished(c)
	}
	list, _ := filepath.Glob(filepath.Join(t.file(c.run), "ckpt-0*"))
	return len(list) == 0
}

// refusable runs the command while a fault is present. It may complete, or
// refuse and name what is wrong. Then undo removes the fault, and the command
// must complete.
func (t *faultCase) refusable(c *scenario, names []string, undo func() error) error {
	s, err := t.start(c)
	if err != nil {
		return err
	}
	if err := s.end(); err != nil {
		return err
	}
	code := s.exit()
	if code == t.prog.status {
		return t.compare(c, code)
	}
	said := s.text()
	clear := slices.ContainsFunc(names, func(name string) bool { return strings.Contains(said, name) })
	if err := undo(); err != nil {
		return err
	}
	if err := t.complete(c, nil); err != nil {
		return fmt.Errorf("%w (before that it was refused: %s)", err, tail(said))
	}
	if code <= 0 || !clear {
		return judged(lost, "refused with status %d, but the message names none of %q: %s", code, names, tail(said))
	}
	return judged(refused, "%s", tail(said))
}

// readFiles returns the contents of all regular files under a directory.
func readFiles(dir string) (map[string][]byte, error) {
	out := make(map[string][]byte)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		out[path] = text
		return err
	})
	return out, err
}

// damage changes one of the run's files. It returns a function that undoes
// that, and words of which a refusal must contain one.
func (t *faultCase) damage(c *scenario, now, old map[string][]byte) (undo func() error, names []string, err error) {
	var files []string
	for name, text := range now {
		if filepath.Base(filepath.Dir(name)) != "bin" && len(text) > 0 {
			files = append(files, name)
		}
	}
	slices.Sort(files)
	if len(files) == 0 {
		return nil, nil, errors.New("the run has no files")
	}
	name := files[t.r.IntN(len(files))]
	if t.r.IntN(3) == 0 { // files that exist only once are more interesting
		list := slices.DeleteFunc(slices.Clone(files), func(f string) bool { return strings.HasSuffix(f, ".h5") })
		if len(list) > 0 {
			name = list[t.r.IntN(len(list))]
		}
	}
	short, err := filepath.Rel(t.file(c.run), name)
	if err != nil {
		return nil, nil, err
	}
	spoiled := map[string][]byte{} // the damaged files with their new contents
	text := slices.Clone(now[name])
	what := ""
	switch t.r.IntN(7) {
	case 0, 1:
		at, bit := t.r.IntN(len(text)), t.r.IntN(8)
		text[at] ^= 1 << bit
		what = fmt.Sprintf("bit %d of byte %d of %d flipped in %s", bit, at, len(text), short)
	case 2:
		size := t.r.IntN(len(text))
		text = text[:size]
		what = fmt.Sprintf("%s cut to %d of %d bytes", short, size, len(now[name]))
	case 3:
		text = nil
		what = short + " deleted"
	case 4: // replace it by another file of its kind
		var like []string
		for _, f := range files {
			if f != name && filepath.Ext(f) == filepath.Ext(name) && !bytes.Equal(now[f], now[name]) {
				like = append(like, f)
			}
		}
		if len(like) == 0 {
			return t.damage(c, now, old)
		}
		other := like[t.r.IntN(len(like))]
		spoiled[other], text = now[name], now[other]
		rel, _ := filepath.Rel(t.file(c.run), other)
		what = fmt.Sprintf("%s and %s swapped", short, rel)
	case 5:
		older, ok := old[name]
		if !ok || bytes.Equal(older, now[name]) {
			return t.damage(c, now, old)
		}
		text = older
		what = short + " replaced by an older version"
	case 6:
		text = append(text, "more"...)
		what = short + " made longer"
	}
	t.note("%s", what)
	spoiled[name] = text
	var undos []func() error
	for name, text := range spoiled {
		u, err := t.spoilFile(name, text)
		if err != nil {
			return nil, nil, err
		}
		undos = append(undos, u)
	}
	undo = func() (err error) {
		for _, u := range undos {
			err = errors.Join(err, u())
		}
		return err
	}
	for name := range spoiled {
		names = append(names, filepath.Base(name), filepath.Base(filepath.Dir(name)))
	}
	names = append(names, "run.json", "checkpoint", "set ")
	return undo, names, nil
}

// spoilFile replaces the content of a file, or deletes the file if text is nil.
// The result undoes that.
//
// Files of checkpoints that are linked to each other are one file; all of them
// are damaged. Any other file is set aside and replaced, because Cairn's copies
// of the program's files are links to them, and must not be damaged.
func (t *faultCase) spoilFile(name string, text []byte) (undo func() error, err error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if sys := st.Sys().(*syscall.Stat_t); sys.Nlink > 1 && filepath.Ext(name) == ".h5" && text != nil {
		old, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		return func() error {
			if _, err := os.Stat(name); err != nil {
				return nil // Cairn has removed it
			}
			return os.WriteFile(name, old, 0)
		}, os.WriteFile(name, text, 0)
	}
	t.aside++
	aside := t.file(fmt.Sprint("aside-", t.aside))
	if err = os.Rename(name, aside); err == nil && text != nil {
		err = os.WriteFile(name, text, st.Mode().Perm())
	}
	return func() error {
		if err := os.Rename(aside, name); !errors.Is(err, fs.ErrNotExist) { // Cairn may have removed the directory
			return err
		}
		return nil
	}, err
}

// moveDir renames the directory of a run, or the directory of the whole case.
func moveDir(t *faultCase) error {
	c := t.choose()
	if t.r.IntN(4) == 0 {
		t.prog = t.ranksProgram()
	}
	c.alone = t.prog.ranks == 1 && t.r.IntN(5) == 0
	for range 1 + t.r.IntN(2) {
		if err := t.halted(c, 1+t.r.IntN(3)); err != nil {
			return err
		}
		if t.over(c) {
			break
		}
		if err := t.moves(c); err != nil {
			return err
		}
		if t.r.IntN(2) == 0 {
			continue
		}
		// It may be killed before it saves a checkpoint in the new place.
		s, err := t.start(c)
		if err != nil {
			return err
		}
		s.pause(time.Duration(t.r.IntN(400)) * time.Millisecond)
		if err := errors.Join(t.strikeAll(), s.end()); err != nil {
			return err
		}
	}
	return t.complete(c, nil)
}

// moves moves or copies a directory.
func (t *faultCase) moves(c *scenario) error {
	switch what := t.r.IntN(5); what {
	case 0, 4:
		is, to := t.dir, t.dir+"-moved"
		t.dir = to
		if what == 0 {
			t.note("everything moved")
			return os.Rename(is, to)
		}
		t.note("everything copied, the original removed")
		return copyTree(is, to)
	case 1:
		was, is := c.run, c.run+"-moved"
		t.note("the run's directory moved")
		c.run = is
		return os.Rename(t.file(was), t.file(is))
	case 2:
		was, is := c.run, c.run+"-copied"
		t.note("the run's directory copied, the original removed")
		c.run = is
		return copyTree(t.file(was), t.file(is))
	case 3:
		is, err := filepath.EvalSymlinks(t.file(c.run))
		if err != nil {
			return err
		}
		t.note("the run's directory moved, and a link to it in its place")
		to := is + "-elsewhere"
		if err := errors.Join(os.Rename(is, to), os.RemoveAll(t.file(c.run))); err != nil {
			return err
		}
		// A relative link stays valid when everything is moved.
		return os.Symlink(filepath.Base(to), t.file(c.run))
	}
	return nil
}

// copyTree copies a directory, keeps the links between its files, and removes
// the original.
func copyTree(from, to string) error {
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	return os.RemoveAll(from)
}
