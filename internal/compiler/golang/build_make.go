package golang

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// MakeOptions of Make.
type MakeOptions struct {
	BuildOptions
	// Take is as in Options.
	Take []string
	// Instrument says how the program is rewritten.
	Instrument InstrumentOptions
	// Progress, if not nil, is told what begins and what was done, a line at a
	// time.
	Progress func(text string)
}

// Made is a program that Make made.
type Made struct {
	// Name is the program's, as go build would name it.
	Name string `json:"name"`
	// Path is where it is.
	Path string `json:"-"`
	// Source is a digest of what the program was rewritten to: sets that it takes
	// belong to it only.
	Source string `json:"source"`
	// Points are where checkpoints may be taken.
	Points []PointInfo `json:"points"`
	// Uncovered says which of its work is not saved.
	Uncovered []string `json:"uncovered,omitempty"`
	// Notes are the other sentences about its points and about loops without.
	Notes []string `json:"notes,omitempty"`
	// Reads says that it reads stdin.
	Reads bool `json:"reads,omitempty"`
	// Before says that it was made before, and nothing has changed.
	Before bool `json:"-"`
}

// madeBytes is how much the cache may hold of programs.
const madeBytes = 1 << 30

// Make makes a program restartable and builds it. A program that was made before
// with the same options, and none of whose files has changed, is taken from the
// cache. If o.Output is a folder, the program is put into it under its name.
func Make(ctx context.Context, dir string, patterns []string, o MakeOptions) (*Made, error) {
	b, err := newBuilder(ctx, dir, patterns, o.BuildOptions)
	if err != nil {
		return nil, err
	}
	key, err := b.key(o)
	if err != nil {
		return nil, err
	}
	cache, err := b.cacheDir()
	if err != nil {
		return nil, err
	}
	cache = filepath.Join(cache, "build")
	m := findMade(cache, key)
	if m == nil {
		if m, err = b.make(cache, key, o); err != nil {
			return nil, err
		}
	} else if o.Progress != nil {
		m.tell(o.Progress, "built before")
	}
	if o.Output == "" {
		return m, nil
	}
	to := o.Output
	if st, err := os.Stat(to); err == nil && st.IsDir() {
		to = filepath.Join(to, m.Name)
		if st, err := os.Stat(to); err == nil && st.IsDir() {
			return nil, fmt.Errorf("%w: %s is a folder; give the program another name with -o", ErrBuild, to)
		}
	}
	if err := m.Copy(to); err != nil {
		return nil, err
	}
	m.Path = to
	return m, nil
}

// tell says where the points are, how that came about, and what is to be known of
// them.
func (m *Made) tell(progress func(text string), how string) {
	if len(m.Points) > 0 {
		progress(pointsText(m.Points) + ", " + how)
	}
	for _, w := range m.Uncovered {
		progress("WARNING: " + w)
	}
	for _, n := range m.Notes {
		progress(n)
	}
}

// notes are what is told of points besides what is not saved.
func (in *Instrumented) notes() []string {
	if len(in.Points) == 0 {
		return nil
	}
	list := slices.Clone(in.Warnings)
	refused := slices.DeleteFunc(slices.Clone(in.Refused), func(r *rewrite.Refusal) bool { return slices.Contains(in.told, r.Error()) })
	for i, r := range refused {
		if i == 3 {
			return append(list, fmt.Sprintf("no point: %s more; 'cairn explain' says why", many(len(refused)-i, "loop")))
		}
		list = append(list, "no point: "+r.Error())
	}
	return list
}

// Copy puts a copy of the program at to. Who runs one that was there keeps it.
func (m *Made) Copy(to string) error {
	if to == os.DevNull {
		return nil
	}
	if real, err := filepath.EvalSymlinks(to); err == nil {
		to = real
	}
	if err := replaceable(to); err != nil {
		return err
	}
	if err := copyFile(to, m.Path); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrOutput, to, err)
	}
	return nil
}

// replaceable tells whether a program may take the place of what is there: of
// nothing, of an empty file, of a program.
func replaceable(name string) error {
	st, err := os.Stat(name)
	if err != nil || st.Mode().IsRegular() && st.Size() == 0 {
		return nil // what is wrong shows when it is written
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%s is there, and no file: it is not replaced; give another name with -o", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, 4)
	io.ReadFull(f, head)
	for _, magic := range []string{"\x7fELF", "MZ", "\xcf\xfa\xed\xfe", "\xce\xfa\xed\xfe", "\xca\xfe\xba\xbe", "\x00asm", "\x01\xf7"} {
		if strings.HasPrefix(string(head), magic) {
			return nil
		}
	}
	return fmt.Errorf("%s is there, and is not a program: it is not overwritten; remove it, or give another name with -o", name)
}

// Rewritten is a program's rewritten source.
type Rewritten struct {
	*Instrumented
	// Package is the import path of the main package.
	Package string

	b *builder
}

// Rewrite makes a program restartable, as Make does, and builds nothing.
func Rewrite(ctx context.Context, dir string, patterns []string, o MakeOptions) (*Rewritten, error) {
	b, err := newBuilder(ctx, dir, patterns, o.BuildOptions)
	if err != nil {
		return nil, err
	}
	return b.rewrite(o)
}

func (b *builder) rewrite(o MakeOptions) (*Rewritten, error) {
	p, err := Load(b.ctx, b.dir, b.patterns, Options{Env: b.listEnv(), Go: o.Go, Take: o.Take})
	if err != nil {
		return nil, err
	}
	in, err := Instrument(p, o.Instrument)
	if errors.Is(err, ErrOwn) { // Make builds it as it is
		return &Rewritten{new(Instrumented), p.Package, b}, err
	}
	if err != nil {
		return nil, err
	}
	return &Rewritten{in, p.Package, b}, nil
}

// Place is where a file stands in a tree of rewritten files: as in the program's
// module or workspace, or below modules/PATH for another module.
func (w *Rewritten) Place(name string) string {
	root := ""
	if file := w.b.env["GOWORK"]; file != "" && file != "off" {
		root = filepath.Dir(file)
	} else if file := w.b.env["GOMOD"]; file != "" && file != os.DevNull {
		root = filepath.Dir(file)
	}
	if within(root, name) {
		return rel(root, name)
	}
	if list, err := w.b.units(); err == nil {
		for _, u := range list {
			if m := u.Module; m != nil && within(m.Dir, name) {
				return filepath.Join("modules", filepath.FromSlash(m.Path), rel(m.Dir, name))
			}
		}
	}
	if within(w.b.dir, name) {
		return rel(w.b.dir, name)
	}
	return filepath.Base(name)
}

// rel is a name below a folder that is within it.
func rel(dir, name string) string {
	name, _ = filepath.Rel(dir, name)
	return name
}

// make makes a program that is not in the cache.
func (b *builder) make(cache, key string, o MakeOptions) (*Made, error) {
	tell := func(format string, args ...any) {
		if o.Progress != nil {
			o.Progress(fmt.Sprintf(format, args...))
		}
	}
	tell("reading the program")
	begin := time.Now()
	in, err := b.rewrite(o)
	var own []string
	if errors.Is(err, ErrOwn) {
		own, err = []string{err.Error() + "; it is built as it is"}, nil
	}
	if err != nil {
		return nil, err
	}
	m := &Made{Name: b.name(in.Package), Points: in.Points, Uncovered: in.Uncovered, Notes: append(own, in.notes()...), Reads: in.Reads, Source: in.digest()}
	if o.Progress != nil {
		m.tell(o.Progress, "in "+seconds(begin))
	}
	tell("compiling (the first time with the standard library)")
	begin = time.Now()
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(cache, ".new-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	b.o.Output = filepath.Join(work, m.Name)
	if err := b.build(in.Files); err != nil {
		return nil, err
	}
	tell("built in %s", seconds(begin))
	// Files that were changed meanwhile are under the key of what they were.
	again, err := newBuilder(b.ctx, b.dir, b.patterns, o.BuildOptions)
	if err != nil {
		return nil, err
	}
	now, err := again.key(o)
	if err != nil {
		return nil, err
	}
	if key != now {
		key = ""
	}
	if err := m.keep(cache, key, work); err != nil {
		return nil, err
	}
	return m, prune(cache, madeBytes, m.Path)
}

// pointsText says where points are.
func pointsText(points []PointInfo) string {
	const most = 3
	var at []string
	for _, p := range points[:min(len(points), most)] {
		at = append(at, fmt.Sprintf("%s:%d", p.File, p.Line))
	}
	if len(points) > most {
		at = append(at, "…")
	}
	word := "points"
	if len(points) == 1 {
		word = "point"
	}
	return fmt.Sprintf("%d %s (%s)", len(points), word, strings.Join(at, ", "))
}

func seconds(since time.Time) string { return fmt.Sprintf("%.1f s", time.Since(since).Seconds()) }

// digest is that of the rewritten files, wherever their tree stands: neither
// their names nor the lines that they tell hold the path of a directory.
func (w *Rewritten) digest() string {
	places := make(map[string]string, len(w.Files))
	for name := range w.Files {
		places[filepath.ToSlash(w.Place(name))] = name
	}
	h := sha256.New()
	for _, place := range slices.Sorted(maps.Keys(places)) {
		text := rewrite.Told(w.Files[places[place]], func(file string) string { return filepath.ToSlash(w.Place(file)) })
		fmt.Fprintf(h, "%s %d\n%s", place, len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// name is what go build would name the program of a package.
func (b *builder) name(pkg string) string {
	name := path.Base(pkg)
	if strings.HasSuffix(b.patterns[0], ".go") {
		name = strings.TrimSuffix(filepath.Base(b.patterns[0]), ".go")
	} else if rest := strings.TrimPrefix(name, "v"); rest != name && rest > "1" && strings.Trim(rest, "0123456789") == "" && path.Dir(pkg) != "." {
		name = path.Base(path.Dir(pkg)) // example.com/sim/v2
	}
	return name + b.env["GOEXE"]
}

// listEnv is the environment in which the go command sees the flags that decide
// which files belong to the program.
func (b *builder) listEnv() []string {
	flags := []string{b.env["GOFLAGS"]}
	for _, f := range b.o.Flags {
		switch name, _, _ := strings.Cut(strings.TrimLeft(f, "-"), "="); name {
		case "tags", "race", "msan", "asan", "mod", "modfile":
			if strings.ContainsAny(f, " \t\n") {
				f = "'" + f + "'"
			}
			flags = append(flags, f)
		}
	}
	return append(b.environ(), "GOFLAGS="+strings.TrimSpace(strings.Join(flags, " ")))
}

// key is a digest of all that the program is made of. It is empty where that is
// not known: packages with cgo use files of the system, and profiles are not
// worth it.
func (b *builder) key(o MakeOptions) (string, error) {
	if slices.ContainsFunc(b.flags, func(f string) bool { return slices.Contains([]string{"v", "x", "a", "work"}, strings.TrimLeft(f, "-")) }) {
		return "", nil
	}
	if o.Instrument.Explain.Samples != nil {
		return "", nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", nil
	}
	list, err := b.units()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	hashFile(h, self)
	how, err := json.Marshal(o.Instrument)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(h, "%q %q %q %q %s\n", b.dir, b.patterns, b.flags, o.Take, how)
	for _, name := range slices.Sorted(maps.Keys(b.env)) {
		if name != "GOGCCFLAGS" { // has the name of a temporary folder
			fmt.Fprintf(h, "%s=%q\n", name, b.env[name])
		}
	}
	if name := b.env["GOWORK"]; name != "" && name != "off" {
		hashFile(h, name)
	}
	for _, f := range b.flags {
		if name, ok := strings.CutPrefix(strings.TrimLeft(f, "-"), "modfile="); ok {
			hashFile(h, b.abs(name))
		} else if name, ok := strings.CutPrefix(strings.TrimLeft(f, "-"), "pgo="); ok && name != "auto" && name != "off" {
			hashFile(h, b.abs(name))
		}
	}
	modules := make(map[string]bool)
	for _, u := range list {
		fmt.Fprintf(h, "package %q %q\n", u.ImportPath, u.Dir)
		if u.Standard || u.Error != nil {
			continue
		}
		if len(u.CgoFiles)+len(u.SwigFiles)+len(u.SwigCXXFiles) > 0 {
			return "", nil
		}
		if m := u.Module; m != nil && m.GoMod != "" && !modules[m.GoMod] {
			modules[m.GoMod] = true
			hashFile(h, m.GoMod)
		}
		for _, name := range slices.Concat(u.GoFiles, u.CFiles, u.CXXFiles, u.MFiles, u.HFiles, u.FFiles, u.SFiles, u.SysoFiles, u.EmbedFiles) {
			fmt.Fprintf(h, "file %q\n", name)
			if !within(b.env["GOMODCACHE"], u.Dir) { // what is there never changes
				hashFile(h, filepath.Join(u.Dir, name))
			}
		}
		if !u.DepOnly {
			hashFile(h, filepath.Join(u.Dir, "default.pgo"))
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// hashFile takes a file in, whether or not there is one.
func hashFile(h hash.Hash, name string) {
	f, err := os.Open(name)
	if err != nil {
		fmt.Fprintf(h, "none %q\n", name)
		return
	}
	defer f.Close()
	n, err := io.Copy(h, f)
	fmt.Fprintf(h, "\n%d %v %q\n", n, err, name)
}

// findMade finds a program in the cache; nil if it is not there.
func findMade(cache, key string) *Made {
	if key == "" {
		return nil
	}
	dir := filepath.Join(cache, key)
	text, err := os.ReadFile(filepath.Join(dir, "made.json"))
	m := new(Made)
	if err != nil || json.Unmarshal(text, m) != nil || m.Name != filepath.Base(m.Name) {
		return nil
	}
	m.Path, m.Before = filepath.Join(dir, m.Name), true
	if !isFile(m.Path) {
		return nil
	}
	now := time.Now()
	os.Chtimes(dir, now, now) // it was used
	return m
}

// keep puts what was built in work into the cache, for others to find if there is
// a key.
func (m *Made) keep(cache, key, work string) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	// The program is written before what makes it count.
	f, err := os.Open(filepath.Join(work, m.Name))
	if err != nil {
		return err
	}
	err = f.Sync()
	f.Close()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "made.json"), text, 0o644); err != nil {
		return err
	}
	dir := filepath.Join(cache, cmp.Or(key, strings.Replace(filepath.Base(work), ".new-", "once-", 1)))
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	if err := os.Rename(work, dir); err != nil { // another has made it too, or half of it is there
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		if err := os.Rename(work, dir); err != nil {
			return err
		}
	}
	m.Path = filepath.Join(dir, m.Name)
	return nil
}

// prune removes the programs that were not used for longest until no more than
// limit bytes remain; the one at keep stays.
func prune(cache string, limit int64, keep string) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	type old struct {
		dir  string
		used time.Time
		size int64
	}
	var all []old
	for _, e := range entries {
		o := old{dir: filepath.Join(cache, e.Name())}
		st, err := e.Info()
		if err != nil {
			continue // another removed it
		}
		o.used = st.ModTime()
		if strings.HasPrefix(e.Name(), ".new-") && time.Since(o.used) < time.Hour {
			continue // being made
		}
		filepath.WalkDir(o.dir, func(_ string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				if st, err := e.Info(); err == nil {
					o.size += st.Size()
				}
			}
			return nil
		})
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b old) int { return b.used.Compare(a.used) })
	for _, o := range all {
		if limit -= o.size; limit < 0 && !within(o.dir, keep) {
			if err := os.RemoveAll(o.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// copyFile makes a program's file a copy of another.
func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.CreateTemp(filepath.Dir(to), ".new-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Chmod(0o755), out.Close())
	if err == nil {
		err = os.Rename(out.Name(), to)
	}
	if err != nil {
		os.Remove(out.Name())
	}
	return err
}
