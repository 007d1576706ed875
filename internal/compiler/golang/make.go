package golang

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/compiler/golang/explain"
	"github.com/cairnrun/cairn/internal/compiler/golang/gobuild"
	"github.com/cairnrun/cairn/internal/compiler/golang/instrument"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// MakeOptions of Make.
type MakeOptions struct {
	gobuild.Options
	// Take is as in Options.
	Take []string
	// Instrument says how the program is rewritten.
	Instrument instrument.Options
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
	Points []explain.PointInfo `json:"points"`
	// Uncovered says which of its work is not saved.
	Uncovered []string `json:"uncovered,omitempty"`
	// Notes are the other sentences about its points and about loops without.
	Notes []string `json:"notes,omitempty"`
	// ReadsStdin says that it reads stdin.
	ReadsStdin bool `json:"reads,omitempty"`
	// Cached says that it was made before, and nothing has changed.
	Cached bool `json:"-"`
}

// Make makes a program restartable and builds it. A program that was made before
// with the same options, and none of whose files has changed, is taken from the
// cache. If o.Output is a folder, the program is put into it under its name.
func Make(ctx context.Context, dir string, patterns []string, o MakeOptions) (*Made, error) {
	b, err := gobuild.New(ctx, dir, patterns, o.Options)
	if err != nil {
		return nil, err
	}
	key, err := o.key(b)
	if err != nil {
		return nil, err
	}
	cache, err := b.CacheDir()
	if err != nil {
		return nil, err
	}
	cache = filepath.Join(cache, "build")
	m := findCached(cache, key)
	if m == nil {
		if m, err = build(ctx, b, cache, key, o); err != nil {
			return nil, err
		}
	} else if o.Progress != nil {
		m.report(o.Progress, "built before")
	}
	if o.Output == "" {
		return m, nil
	}
	to := o.Output
	if st, err := os.Stat(to); err == nil && st.IsDir() {
		to = filepath.Join(to, m.Name)
		if st, err := os.Stat(to); err == nil && st.IsDir() {
			return nil, fmt.Errorf("%w: %s is a folder; give the program another name with -o", gobuild.ErrBuild, to)
		}
	}
	if err := m.Copy(to); err != nil {
		return nil, err
	}
	m.Path = to
	return m, nil
}

// report says where the points are, how that came about, and what is to be known of
// them.
func (m *Made) report(progress func(text string), how string) {
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

// Copy puts a copy of the program at to. Who runs one that was there keeps it.
func (m *Made) Copy(to string) error {
	if to == os.DevNull {
		return nil
	}
	if real, err := filepath.EvalSymlinks(to); err == nil {
		to = real
	}
	if err := checkReplaceable(to); err != nil {
		return err
	}
	if err := gobuild.CopyFile(to, m.Path); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrOutput, to, err)
	}
	return nil
}

// checkReplaceable tells whether a program may take the place of what is there: of
// nothing, of an empty file, of a program.
func checkReplaceable(name string) error {
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
	*instrument.Result
	// Package is the import path of the main package.
	Package string

	builder *gobuild.Builder
}

// Rewrite makes a program restartable, as Make does, and builds nothing.
func Rewrite(ctx context.Context, dir string, patterns []string, o MakeOptions) (*Rewritten, error) {
	b, err := gobuild.New(ctx, dir, patterns, o.Options)
	if err != nil {
		return nil, err
	}
	return rewriteProgram(ctx, b, o)
}

func rewriteProgram(ctx context.Context, b *gobuild.Builder, o MakeOptions) (*Rewritten, error) {
	p, err := Load(ctx, b.Dir, b.Patterns, load.Options{Env: b.LoadEnv(), Go: o.Go, Take: o.Take})
	if err != nil {
		return nil, err
	}
	in, err := instrument.Instrument(p, o.Instrument)
	if errors.Is(err, instrument.ErrOwnCheckpoints) { // Make builds it as it is
		return &Rewritten{new(instrument.Result), p.Package, b}, err
	}
	if err != nil {
		return nil, err
	}
	return &Rewritten{in, p.Package, b}, nil
}

// TreePath is where a file stands in a tree of rewritten files: as in the program's
// module or workspace, or below modules/PATH for another module.
func (w *Rewritten) TreePath(name string) string { return w.builder.TreePath(name) }

// build makes a program that is not in the cache.
func build(ctx context.Context, b *gobuild.Builder, cache, key string, o MakeOptions) (*Made, error) {
	tell := func(format string, args ...any) {
		if o.Progress != nil {
			o.Progress(fmt.Sprintf(format, args...))
		}
	}
	tell("reading the program")
	begin := time.Now()
	in, err := rewriteProgram(ctx, b, o)
	var own []string
	if errors.Is(err, instrument.ErrOwnCheckpoints) {
		own, err = []string{err.Error() + "; it is built as it is"}, nil
	}
	if err != nil {
		return nil, err
	}
	m := &Made{Name: b.ProgramName(in.Package), Points: in.Points, Uncovered: in.Uncovered, Notes: append(own, in.Notes()...), ReadsStdin: in.ReadsStdin, Source: in.digest()}
	if o.Progress != nil {
		m.report(o.Progress, "in "+seconds(begin))
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
	if err := b.Build(in.Files, filepath.Join(work, m.Name)); err != nil {
		return nil, err
	}
	tell("built in %s", seconds(begin))
	// Files that were changed meanwhile are under the key of what they were.
	again, err := gobuild.New(ctx, b.Dir, b.Patterns, o.Options)
	if err != nil {
		return nil, err
	}
	now, err := o.key(again)
	if err != nil {
		return nil, err
	}
	if key != now {
		key = ""
	}
	if err := m.store(cache, key, work); err != nil {
		return nil, err
	}
	return m, prune(cache, cacheLimit, m.Path)
}

// pointsText says where points are.
func pointsText(points []explain.PointInfo) string {
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
		places[filepath.ToSlash(w.TreePath(name))] = name
	}
	h := sha256.New()
	for _, place := range slices.Sorted(maps.Keys(places)) {
		text := rewrite.RenameInLineComments(w.Files[places[place]], func(file string) string { return filepath.ToSlash(w.TreePath(file)) })
		fmt.Fprintf(h, "%s %d\n%s", place, len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// key is a digest of all that the program is made of. It is empty where that is
// not known, or not worth it: with a profile.
func (o *MakeOptions) key(b *gobuild.Builder) (string, error) {
	if o.Instrument.Explain.Samples != nil {
		return "", nil
	}
	how, err := json.Marshal(o.Instrument)
	if err != nil {
		return "", err
	}
	return b.Key(fmt.Sprintf("%q %s", o.Take, how))
}

// ErrOutput says that a program was built, and can't be written to where it is
// wanted.
var ErrOutput = errors.New("the program could not be written")
