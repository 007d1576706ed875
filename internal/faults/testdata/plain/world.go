package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// world is a tree of files that a program changes, and the program's knowledge
// of it.
type world struct {
	r     *dice
	files []string // regular files, including hard links
	dirs  []string // "" is the working directory
	links []string // symbolic links
	made  int      // number of names that were ever made
	open  *os.File // a file that is read and written in place
	log   *os.File // a file that is appended to
	sum   uint64

	single bool // no file gets a second name
}

func newWorld(r *dice) *world {
	w := &world{r: r, dirs: []string{""}}
	var err error
	w.open, err = os.OpenFile("table", os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o644)
	check(0, "open", err)
	_, err = w.open.WriteAt(make([]byte, 9000), 0)
	check(0, "write", err)
	w.log, err = os.OpenFile("day.log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check(0, "open", err)
	w.write(0, "first", 3000)
	return w
}

// run performs the steps.
func (w *world) run(steps int) {
	for i := 0; i < steps; i++ { //cairn:point
		what := w.step(i)
		_, err := fmt.Fprintf(w.log, "%d %s %x\n", i, what, w.sum)
		check(i, "log", err)
		fmt.Printf("step %d %s %x\n", i, what, w.sum)
		time.Sleep(pause)
	}
	check(steps, "close", w.open.Close())
	check(steps, "close", w.log.Close())
}

// name returns a new name in one of the directories.
func (w *world) name(kind string) string {
	w.made++
	return filepath.Join(w.dirs[w.r.n(len(w.dirs))], fmt.Sprintf("%s-%d", kind, w.made))
}

// some returns one of the files.
func (w *world) some() string { return w.files[w.r.n(len(w.files))] }

// text returns a few lines that contain the step.
func (w *world) text(i, size int) []byte {
	return []byte(strings.Repeat(fmt.Sprintf("step %d %x\n", i, w.r.next()%4096), size/8+1))[:size]
}

// write creates a file.
func (w *world) write(i int, kind string, size int) {
	name := w.name(kind)
	check(i, "write", os.WriteFile(name, w.text(i, size), 0o644))
	w.files = append(w.files, name)
}

// fold adds what was read to the sum.
func (w *world) fold(p []byte) {
	for _, b := range p {
		w.sum = w.sum*1099511628211 + uint64(b)
	}
}

// change opens a file, changes it and closes it.
func (w *world) change(i int, name string, flag int, f func(f *os.File) error) {
	file, err := os.OpenFile(name, flag, 0o644)
	check(i, "open "+name, err)
	check(i, "change "+name, f(file))
	check(i, "close "+name, file.Close())
}

// step changes something and describes it.
func (w *world) step(i int) string {
	if len(w.files) == 0 {
		w.write(i, "file", 1+w.r.n(6000))
		return "first file"
	}
	switch w.r.n(25) {
	case 0:
		w.write(i, "file", w.r.n(9000))
		return "new file"
	case 1:
		name := w.some()
		w.change(i, name, os.O_APPEND|os.O_WRONLY, func(f *os.File) error {
			_, err := f.Write(w.text(i, 1+w.r.n(400)))
			return err
		})
		return "append " + name
	case 2:
		name := w.some()
		w.change(i, name, os.O_RDWR, func(f *os.File) error {
			st, err := f.Stat()
			if err != nil || st.Size() == 0 {
				return err
			}
			_, err = f.WriteAt(w.text(i, 1+w.r.n(200)), int64(w.r.n(int(st.Size()))))
			return err
		})
		return "overwrite " + name
	case 3:
		name := w.some()
		check(i, "truncate", os.Truncate(name, int64(w.r.n(6000))))
		return "truncate " + name
	case 4:
		name, old := w.name("tmp"), w.some()
		check(i, "write", os.WriteFile(name, w.text(i, w.r.n(3000)), 0o644))
		check(i, "rename", os.Rename(name, old))
		return "replace " + old
	case 5:
		from, to := w.r.n(len(w.files)), w.name("moved")
		check(i, "rename", os.Rename(w.files[from], to))
		was := w.files[from]
		w.files[from] = to
		return "rename " + was
	case 6:
		if w.single {
			return "nothing"
		}
		to := w.name("link")
		name := w.some()
		check(i, "link", os.Link(name, to))
		w.files = append(w.files, to)
		return "link " + name
	case 7:
		if len(w.files) < 3 {
			return "nothing"
		}
		k := w.r.n(len(w.files))
		name := w.files[k]
		check(i, "remove", os.Remove(name))
		w.files = slices.Delete(w.files, k, k+1)
		return "remove " + name
	case 8:
		name := w.some()
		mode := []os.FileMode{0o600, 0o644, 0o640, 0o755}[w.r.n(4)]
		check(i, "chmod", os.Chmod(name, mode))
		return "chmod " + name
	case 9:
		name := w.name("dir")
		check(i, "mkdir", os.Mkdir(name, 0o755))
		w.dirs = append(w.dirs, name)
		return "mkdir " + name
	case 10:
		name := w.name("sym")
		check(i, "symlink", os.Symlink(fmt.Sprintf("nowhere-%d", i), name))
		w.links = append(w.links, name)
		return "symlink " + name
	case 11:
		if len(w.links) == 0 {
			return "nothing"
		}
		k := w.r.n(len(w.links))
		name := w.links[k]
		check(i, "remove", os.Remove(name))
		w.links = slices.Delete(w.links, k, k+1)
		return "remove " + name
	case 12, 13:
		p := make([]byte, 1+w.r.n(300))
		at := int64(w.r.n(8000))
		n, err := w.open.ReadAt(p, at)
		if err == io.EOF {
			err = nil
		}
		check(i, "read", err)
		w.fold(p[:n])
		_, err = w.open.WriteAt(w.text(i, 1+w.r.n(100)), at)
		check(i, "write", err)
		return "table"
	case 14:
		check(i, "truncate", w.open.Truncate(int64(4000+w.r.n(9000))))
		return "table's size"
	case 15:
		name := w.some()
		p, err := os.ReadFile(name)
		check(i, "read", err)
		w.fold(p)
		return "read " + name
	case 16:
		name, to := w.some(), w.name("copy")
		in, err := os.Open(name)
		check(i, "open", err)
		out, err := os.Create(to)
		check(i, "create", err)
		_, err = io.Copy(out, in)
		check(i, "copy", err)
		check(i, "close", out.Close())
		check(i, "close", in.Close())
		w.files = append(w.files, to)
		return "copy " + name
	case 17:
		name := w.some()
		check(i, "rewrite", os.WriteFile(name, w.text(i, w.r.n(5000)), 0o600))
		return "rewrite " + name
	case 18:
		if len(w.dirs) < 2 {
			return "nothing"
		}
		return w.moveDir(i)
	case 19:
		if len(w.dirs) < 2 {
			return "nothing"
		}
		return w.removeDir(i)
	case 20:
		return w.through(i)
	case 21:
		return w.nameless(i)
	case 22:
		name := w.dirs[w.r.n(len(w.dirs))]
		if name == "" {
			return "nothing"
		}
		check(i, "chmod", os.Chmod(name, []os.FileMode{0o700, 0o755, 0o750}[w.r.n(3)]))
		return "chmod " + name
	case 23:
		name := w.some()
		_, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		return fmt.Sprint("exclusive ", name, " ", os.IsExist(err))
	default:
		_, err := w.open.Seek(int64(w.r.n(5000)), io.SeekStart)
		check(i, "seek", err)
		_, err = w.open.Write(w.text(i, 1+w.r.n(3000)))
		check(i, "write", err)
		return "table from there"
	}
}

// moveDir renames a directory, in the working directory.
func (w *world) moveDir(i int) string {
	k := 1 + w.r.n(len(w.dirs)-1)
	was := w.dirs[k]
	w.made++
	to := fmt.Sprintf("dir-%d", w.made)
	check(i, "rename", os.Rename(was, to))
	for _, list := range [][]string{w.files, w.dirs, w.links} {
		for j, name := range list {
			if rest, ok := strings.CutPrefix(name, was+"/"); ok {
				list[j] = to + "/" + rest
			}
		}
	}
	w.dirs[k] = to
	return "rename " + was
}

// removeDir removes a directory with its content.
func (w *world) removeDir(i int) string {
	dir := w.dirs[1+w.r.n(len(w.dirs)-1)]
	check(i, "remove all", os.RemoveAll(dir))
	in := func(name string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }
	w.files, w.dirs, w.links = slices.DeleteFunc(w.files, in), slices.DeleteFunc(w.dirs, in), slices.DeleteFunc(w.links, in)
	return "remove all of " + dir
}

// through changes a file through a symbolic link.
func (w *world) through(i int) string {
	name := w.some()
	w.made++
	link := filepath.Join(filepath.Dir(name), fmt.Sprintf("sym-%d", w.made))
	check(i, "symlink", os.Symlink(filepath.Base(name), link))
	w.links = append(w.links, link)
	w.change(i, link, os.O_RDWR, func(f *os.File) error {
		_, err := f.WriteAt(w.text(i, 1+w.r.n(300)), int64(w.r.n(200)))
		return err
	})
	return "through " + link
}

// nameless writes to files that are removed while they are open: a temporary
// one, and sometimes an existing one.
func (w *world) nameless(i int) string {
	f, err := os.CreateTemp(".", "world-*")
	check(i, "temporary", err)
	check(i, "remove", os.Remove(f.Name()))
	what := "temporary file"
	if len(w.files) > 3 {
		check(i, "close", f.Close())
		k := w.r.n(len(w.files))
		what = "open, remove " + w.files[k]
		f, err = os.OpenFile(w.files[k], os.O_RDWR, 0)
		check(i, "open", err)
		check(i, "remove", os.Remove(w.files[k]))
		w.files = slices.Delete(w.files, k, k+1)
	}
	_, err = f.WriteAt(w.text(i, 1+w.r.n(400)), int64(w.r.n(100)))
	check(i, "write", err)
	p := make([]byte, 600)
	n, err := f.ReadAt(p, 0)
	if err == io.EOF {
		err = nil
	}
	check(i, "read", err)
	w.fold(p[:n])
	check(i, "close", f.Close())
	return what
}
