//go:build linux

package pack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/journal"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// UnpackOptions say where the files of a pack are put.
type UnpackOptions struct {
	Dir         string // of the run on this host
	Checkpoints string // the checkpoint directory of its ranks
	Run         string
	Attempt     string
	Index       uint64
	Rank, Ranks int
	Own         []string // names below Dir that the pack may have
	// Home is the directory that the program will be started in; "": the one
	// that the pack says.
	Home string
	// Outside allows files outside Home: only this user can have made the
	// pack.
	Outside bool
	// End, if set, is when the run has finished, and the pack was made then.
	// What is not in it, or has been changed since, stays as it is, and Note
	// gets the reason.
	End  time.Time
	Note func(why string)
}

// EnvOutside is an environment variable. If it is set, Unpack changes files
// outside of the working directory, wherever the pack comes from.
const EnvOutside = "CAIRN_OUTSIDE_FILES"

// ErrAbsent means that files of the program are not in the pack.
var ErrAbsent = errors.New("files of the program were not copied")

// tmpSuffix marks files that Unpack is writing. They are beside those that they
// will replace.
const tmpSuffix = ".cairn-unpack"

// Unpack puts the files of a rank back as they were at the checkpoint, and
// begins its journal anew. objects are the pack and its bases; the caller has
// checked their digests. Before Unpack replaces a file, it has written and
// checked all contents. If it is interrupted, it may be repeated.
func Unpack(ctx context.Context, o UnpackOptions, objects []Object) error {
	err := unpack(ctx, o, objects)
	if err != nil && !o.End.IsZero() {
		return fmt.Errorf("restoring the last files of rank %d: %w", o.Rank, err)
	}
	if err != nil {
		return fmt.Errorf("restoring the files of rank %d at checkpoint %d: %w", o.Rank, o.Index, err)
	}
	return nil
}

type unpacker struct {
	UnpackOptions
	x     *Index
	packs []*os.File // this one, then the bases
	root  *os.Root   // of the file system
	own   *os.Root   // of the run's directory
	home  *os.Root   // of the working directory; nil: there is none yet
	todo  []place
	dirs  map[string]bool // to be made durable
}

// place is a file of the pack, and where it is put.
type place struct {
	*File
	root *os.Root
	name string // in root
	abs  string
}

func unpack(ctx context.Context, o UnpackOptions, objects []Object) (err error) {
	u := &unpacker{UnpackOptions: o, dirs: make(map[string]bool)}
	defer u.close()
	if err := u.open(objects); err != nil {
		return err
	}
	if absent := u.x.Absent(); len(absent) > 0 && u.End.IsZero() {
		return fmt.Errorf("%w: %s", ErrAbsent, strings.Join(absent, ", "))
	}
	if err := u.place(); err != nil {
		return err
	}
	for i := range u.todo {
		if p := &u.todo[i]; p.Kind == kindFile && p.Link == 0 {
			if err := u.write(ctx, p); err != nil {
				u.abandon()
				return err
			}
		}
	}
	// Outer directories come first: they have shorter names.
	slices.SortStableFunc(u.todo, func(a, b place) int { return len(a.name) - len(b.name) })
	for _, put := range []func(p *place) error{u.remove, u.makeDir, u.publish, u.link, u.setMode} {
		for i := range u.todo {
			if err := put(&u.todo[i]); err != nil {
				return err
			}
		}
	}
	return u.finish()
}

func (u *unpacker) close() {
	for _, f := range u.packs {
		f.Close()
	}
	for _, r := range []*os.Root{u.root, u.own, u.home} {
		if r != nil {
			r.Close()
		}
	}
}

// open opens the packs and the directories.
func (u *unpacker) open(objects []Object) (err error) {
	if len(objects) == 0 {
		return damaged("there is none")
	}
	f, x, _, err := openPack(objects[0].Path)
	if err != nil {
		return err
	}
	u.x, u.packs = x, []*os.File{f}
	if x.Run != u.Run || x.Attempt != u.Attempt || x.Index != u.Index || x.Rank != u.Rank || x.Ranks != u.Ranks {
		return damaged("it is of rank %d of %d, checkpoint %d, run %.40q, attempt %.40q", x.Rank, x.Ranks, x.Index, x.Run, x.Attempt)
	}
	for _, b := range x.Bases {
		i := slices.IndexFunc(objects, func(o Object) bool { return o.Name == b.Name })
		if i < 0 || objects[i].Size != b.Size {
			return damaged("%s, which it needs, is not there", b.Name)
		}
		f, err := os.Open(objects[i].Path)
		if err != nil {
			return err
		}
		u.packs = append(u.packs, f)
		if st, err := f.Stat(); err != nil || st.Size() != b.Size {
			return errors.Join(err, damaged("%s does not have %d bytes", b.Name, b.Size))
		}
	}
	u.Outside = u.Outside || os.Getenv(EnvOutside) != ""
	if u.Home == "" && u.Outside {
		u.Home = x.Home
	}
	if u.root, err = os.OpenRoot("/"); err != nil {
		return err
	}
	u.own, err = os.OpenRoot(u.Dir)
	return err
}

// place finds out where files are put, and refuses those that must not be
// changed.
func (u *unpacker) place() error {
	own, err := filepath.EvalSymlinks(u.Dir)
	if err != nil {
		return err
	}
	at := make(map[string]int) // todo, by the path on this host
	for i := range u.x.Files {
		f := &u.x.Files[i]
		p := place{File: f}
		switch name, isOwn := local(f.Path, runPrefix); {
		case isOwn:
			if !slices.Contains(u.Own, name) {
				return damaged("%.200q is no file of the rank", f.Path)
			}
			p.root, p.name, p.abs = u.own, name, filepath.Join(u.Dir, name)
		case u.isNowhere(f):
			continue
		default:
			if err := u.placeFile(&p); err != nil {
				return err
			}
			if inDir(p.abs, own) || inDir(p.abs, u.Dir) {
				return damaged("%s is a file that belongs to Cairn", p.abs)
			}
			if u.stays(&p) {
				continue
			}
		}
		// Two names may lead to one place: what is there has either name.
		switch k, twice := at[p.abs]; {
		case !twice:
			at[p.abs] = len(u.todo)
			u.todo = append(u.todo, p)
		case u.todo[k].Kind == kindGone:
			u.todo[k] = p
		case p.Kind != kindGone && (p.Kind != kindDir || u.todo[k].Kind != kindDir):
			return fmt.Errorf("%s and %s were two files, and would be one here: %s", u.todo[k].Path, p.Path, p.abs)
		}
	}
	return nil
}

// stays reports whether a file of a run that has finished stays as it is.
func (u *unpacker) stays(p *place) bool {
	if u.End.IsZero() {
		return false
	}
	if p.Kind == kindAbsent {
		u.Note(fmt.Sprintf("%s was not kept: %s", p.abs, p.Why))
		return true
	}
	st, err := p.root.Lstat(p.name)
	if err != nil || st.IsDir() || !st.ModTime().After(u.End) {
		return false
	}
	u.Note(fmt.Sprintf("%s was changed since, and stays as it is", p.abs))
	return true
}

// placeFile finds out where a file of the program is put. A file in the working
// directory may have an absolute name: the program may have been started
// elsewhere, or the pack does not say where. Unpack treats it like a file with
// a relative name, so an absolute name allows nothing more.
func (u *unpacker) placeFile(p *place) error {
	name, inHome := local(p.Path, homePrefix)
	if inHome && u.Home == "" {
		return fmt.Errorf("%s belongs to the working directory of the program, which is not known", p.Path)
	}
	abs := p.Path
	if !inHome {
		real, err := withoutLinks(p.Path)
		if err == nil {
			abs = real
			name, inHome = u.belowHome(abs)
		} else if u.Outside {
			return err
		}
	}
	switch {
	case inHome:
		if err := u.openHome(); err != nil {
			return err
		}
		p.root, p.name, p.abs = u.home, name, filepath.Join(u.home.Name(), name)
	case u.Outside:
		p.root, p.name, p.abs = u.root, strings.TrimPrefix(abs, "/"), abs
	default:
		return fmt.Errorf("%s is outside the working directory %s, and the copy may come from somebody else; if you trust it, set %s=1", p.Path, u.Home, EnvOutside)
	}
	return nil
}

// openHome opens the working directory, and makes it if there is none.
func (u *unpacker) openHome() error {
	if u.home != nil {
		return nil
	}
	step()
	if err := os.MkdirAll(u.Home, 0o777); err != nil {
		return err
	}
	home, err := filepath.EvalSymlinks(u.Home)
	if err == nil {
		u.home, err = os.OpenRoot(home)
	}
	return err
}

// belowHome returns the name that a path without symbolic links has below the
// working directory.
func (u *unpacker) belowHome(abs string) (string, bool) {
	if u.Home == "" {
		return "", false
	}
	home, err := filepath.EvalSymlinks(u.Home)
	if errors.Is(err, fs.ErrNotExist) {
		home, err = withoutLinks(u.Home)
	}
	if err != nil {
		return "", false
	}
	return local(inPack(abs, home), homePrefix)
}

// isNowhere reports whether a file did not exist at the checkpoint, and does
// not exist here. Unpack has nothing to do then, so it needs no permission.
func (u *unpacker) isNowhere(f *File) bool {
	if _, inHome := local(f.Path, homePrefix); inHome || f.Kind != kindGone {
		return false
	}
	_, err := os.Lstat(f.Path)
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// withoutLinks returns a path without symbolic links in its directories.
func withoutLinks(path string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		if dir, err = withoutLinks(filepath.Dir(path)); err != nil {
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// changed notes the directory of a name that changes, for finish.
func (u *unpacker) changed(p *place) { u.dirs[filepath.Dir(p.abs)] = true }

func (p *place) tmp() string { return p.name + tmpSuffix }

// write writes the content of a file beside its place.
func (u *unpacker) write(ctx context.Context, p *place) error {
	step()
	if err := u.makeParents(p); err != nil {
		return err
	}
	if err := p.root.Remove(p.tmp()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := p.root.OpenFile(p.tmp(), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	err = u.copy(ctx, f, p.File)
	if err == nil {
		err = f.Chmod(fs.FileMode(p.Mode))
	}
	step()
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s: %w", p.abs, err)
	}
	at := time.Unix(0, p.Time)
	return p.root.Chtimes(p.tmp(), at, at)
}

// makeParents makes the directories that a file is in. A file in the place of
// one is removed: at the checkpoint it was not there.
func (u *unpacker) makeParents(p *place) error {
	dir := filepath.Dir(p.name)
	err := p.root.MkdirAll(dir, 0o777)
	if err == nil {
		return nil
	}
	for at := dir; at != "."; at = filepath.Dir(at) {
		st, serr := p.root.Lstat(at)
		if serr == nil && !st.IsDir() && u.listed(p, at) {
			if err := p.root.Remove(at); err != nil {
				return err
			}
			return p.root.MkdirAll(dir, 0o777)
		}
	}
	return err
}

// listed reports whether the pack says that a name was a directory.
func (u *unpacker) listed(p *place, name string) bool {
	return slices.ContainsFunc(u.todo, func(o place) bool { return o.root == p.root && o.name == name && o.Kind == kindDir })
}

// copy copies the extents of a file, and checks them.
func (u *unpacker) copy(ctx context.Context, f *os.File, file *File) error {
	buf := make([]byte, chunk)
	at := int64(0)
	for i := range file.Extents {
		e := &file.Extents[i]
		if e.Pack != zeros {
			if e.Digest != "" && e.N > chunk {
				return damaged("an extent of %d bytes has a digest", e.N)
			}
			for done := int64(0); done < e.N; {
				if err := ctx.Err(); err != nil {
					return err
				}
				text := buf[:min(chunk, e.N-done)]
				if _, err := u.packs[e.Pack].ReadAt(text, e.Off+done); err != nil {
					if err == io.EOF {
						err = damaged("it is too short")
					}
					return err
				}
				if e.Digest != "" && digestOf(text) != e.Digest {
					return damaged("the bytes from %d on are not what was stored", at)
				}
				step()
				if _, err := f.WriteAt(text, at+done); err != nil {
					return err
				}
				done += int64(len(text))
			}
		}
		at += e.N
	}
	return f.Truncate(file.Size)
}

// abandon removes files that are not put in place.
func (u *unpacker) abandon() {
	for i := range u.todo {
		if p := &u.todo[i]; p.Kind == kindFile {
			p.root.Remove(p.tmp())
		}
	}
}

// remove removes what was not there at the checkpoint, or was something else.
func (u *unpacker) remove(p *place) error {
	st, err := p.root.Lstat(p.name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case p.Kind == kindDir && st.IsDir(), p.Kind == kindGone && st.IsDir(), p.Kind == kindFile && st.Mode().IsRegular():
		return nil
	}
	step()
	u.changed(p)
	if err := p.root.Remove(p.name); err != nil {
		return fmt.Errorf("%s is in the way: %w", p.abs, err)
	}
	return nil
}

func (u *unpacker) makeDir(p *place) error {
	if p.Kind != kindDir {
		return nil
	}
	step()
	u.changed(p)
	return p.root.MkdirAll(p.name, 0o777)
}

// publish puts a file or a symbolic link in its place.
func (u *unpacker) publish(p *place) error {
	if p.Kind == kindLink {
		if err := u.makeParents(p); err != nil {
			return err
		}
		p.root.Remove(p.tmp())
		step()
		if err := p.root.Symlink(p.To, p.tmp()); err != nil {
			return err
		}
	} else if p.Kind != kindFile || p.Link != 0 {
		return nil
	}
	step()
	u.changed(p)
	return p.root.Rename(p.tmp(), p.name)
}

// link makes a hard link to another file of the pack, or a copy on another file
// system.
func (u *unpacker) link(p *place) error {
	if p.Kind != kindFile || p.Link == 0 {
		return nil
	}
	first := &u.x.Files[p.Link-1]
	i := slices.IndexFunc(u.todo, func(o place) bool { return o.File == first }) // -1: it stays as it is
	if err := u.makeParents(p); err != nil {
		return err
	}
	p.root.Remove(p.tmp())
	step()
	err := errors.ErrUnsupported
	if i >= 0 && u.todo[i].root == p.root {
		err = p.root.Link(u.todo[i].name, p.tmp())
	}
	if err != nil {
		same := *first
		same.Path = p.Path
		if err := u.write(context.Background(), &place{&same, p.root, p.name, p.abs}); err != nil {
			return err
		}
	}
	step()
	u.changed(p)
	return p.root.Rename(p.tmp(), p.name)
}

func (u *unpacker) setMode(p *place) error {
	if p.Kind != kindDir {
		return nil
	}
	step()
	return p.root.Chmod(p.name, fs.FileMode(p.Mode))
}

// finish makes names durable and begins the journal.
func (u *unpacker) finish() error {
	for dir := range u.dirs {
		step()
		if err := vfs.OS().SyncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	step()
	if u.x.Journal {
		var names []string
		for i := range u.todo {
			if p := &u.todo[i]; p.root != u.own && p.Kind != kindGone {
				names = append(names, p.abs)
			}
		}
		if err := journal.Begin(u.Checkpoints, u.Home, u.Rank, u.Ranks, u.x.Epoch, u.Index, names); err != nil {
			return err
		}
	} else if err := journal.Remove(u.Checkpoints, u.Rank, u.Ranks); err != nil {
		return err
	}
	step()
	return u.adoptWritten()
}

// adoptWritten makes the record of the files that the rank writes valid on this
// host, with the names that the files have here. The record allows a start to
// change files outside of the working directory, and the next pack has the
// files that it names. So a record that somebody else may have made must not
// name any file that Unpack has not put in place.
func (u *unpacker) adoptWritten() error {
	st, err := os.Stat(u.Checkpoints)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	d := store.Open(vfs.OS(), u.Checkpoints, u.Rank)
	err = d.AdoptWrittenFiles(noDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	step()
	return d.SetWrittenFiles(control.Inode(st), u.writtenHere(d.WrittenFiles(noDir)))
}

// noDir is the inode of no directory: a record for it is valid nowhere.
const noDir = 0

// writtenHere returns what the names of written files are on this host.
func (u *unpacker) writtenHere(was []string) (out []string) {
	places := make(map[string]string)
	for i := range u.todo {
		if p := &u.todo[i]; p.root != u.own {
			places[p.Path] = p.abs
		}
	}
	for _, path := range was {
		here, ok := places[inPack(path, u.x.Home)]
		if !ok {
			here, ok = u.elsewhere(path)
		}
		if ok && !slices.Contains(out, here) {
			out = append(out, here)
		}
	}
	return out
}

// elsewhere returns the name of a written file that is not in the pack: one on
// a file system that hosts share, or one that was made after the checkpoint.
// The ranks' own files on the host that made the pack are not files of the
// program.
func (u *unpacker) elsewhere(path string) (string, bool) {
	own := slices.ContainsFunc(u.Own, func(name string) bool { return strings.HasSuffix(path, "/"+name) })
	if own || !u.Outside || !isClean(path) {
		return "", false
	}
	if rest, ok := local(inPack(path, u.x.Home), homePrefix); ok {
		return filepath.Join(u.Home, rest), true
	}
	return path, true
}
