package golang

import (
	"context"
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
	"github.com/cairnrun/cairn/internal/compiler/kernel"
)

// ErrOutput says that a program was built, but could not be written to its
// file.
var ErrOutput = errors.New("the program could not be written")

// MakeOptions are the options of Make and Rewrite.
type MakeOptions struct {
	gobuild.Options
	// Output is the file to write, or a directory. If it is empty, the program
	// is only in the cache.
	Output string
	// Take is as in load.Options.
	Take []string
	// Instrument says how the program is rewritten.
	Instrument instrument.Options
	// Progress, if not nil, is called with a line of text when a step
	// begins or ends.
	Progress func(text string)
	// Step, if not nil, is called with the name of each part of a step
	// before it begins.
	Step func(name string)
}

// Made is a program that Make built.
type Made struct {
	// Name is the name that go build would give the program.
	Name string `json:"name"`
	// Path is the program's file.
	Path string `json:"-"`
	// Source says what the program is made of. Only a program of the same
	// source can restore the checkpoints that this one takes.
	Source *Source `json:"source"`
	// Points are the places where checkpoints may be taken.
	Points []explain.PointInfo `json:"points"`
	// Uncovered says which of the program's work is not saved.
	Uncovered []string `json:"uncovered,omitempty"`
	// Notes are other remarks on points and on loops without a point.
	Notes []string `json:"notes,omitempty"`
	// ReadsStdin reports whether the program reads stdin.
	ReadsStdin bool `json:"reads,omitempty"`
	// Cached reports whether the program was taken from the cache.
	Cached bool `json:"-"`
}

// Make rewrites a program so that it can be restarted, and builds it. If a
// program with the same options and the same files is in the cache, Make takes
// that. If o.Output is a directory, Make writes the program into it under its
// name.
func Make(ctx context.Context, dir string, patterns []string, o MakeOptions) (*Made, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Step == nil {
		o.Step = func(string) {}
	}
	o.Step("looking for an earlier build")
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
	} else {
		m.report(o.Progress, "built before")
	}
	if o.Output == "" {
		return m, nil
	}
	to := o.Output
	if st, err := os.Stat(to); err == nil && st.IsDir() {
		to = filepath.Join(to, m.Name)
		if st, err := os.Stat(to); err == nil && st.IsDir() {
			return nil, fmt.Errorf("%w: %s is a directory; choose another name with -o", gobuild.ErrBuild, to)
		}
	}
	if err := m.Copy(to); err != nil {
		return nil, err
	}
	m.Path = to
	return m, nil
}

// report passes the points, how they came about, and the warnings to progress.
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

// Copy writes a copy of the program to the file to. A process that runs the
// file's old content keeps it.
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

// checkReplaceable returns an error if the file holds something other than a
// program. An empty file, or none, may be replaced.
func checkReplaceable(name string) error {
	st, err := os.Stat(name)
	if err != nil || st.Mode().IsRegular() && st.Size() == 0 {
		return nil // writing reports what is wrong
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%s exists and is not a file; choose another name with -o", name)
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
	return fmt.Errorf("%s exists and is not a program; remove it, or choose another name with -o", name)
}

// Rewritten is a program's rewritten source.
type Rewritten struct {
	*instrument.Result
	// Package is the import path of the main package.
	Package string

	builder *gobuild.Builder
}

// Rewrite rewrites a program as Make does, and builds nothing.
func Rewrite(ctx context.Context, dir string, patterns []string, o MakeOptions) (*Rewritten, error) {
	b, err := gobuild.New(ctx, dir, patterns, o.Options)
	if err != nil {
		return nil, err
	}
	return rewriteProgram(ctx, b, o, load.Options{Go: o.Go})
}

// rewriteProgram rewrites a program. how says how libraries are compiled.
func rewriteProgram(ctx context.Context, b *gobuild.Builder, o MakeOptions, how load.Options) (*Rewritten, error) {
	how.Env, how.Take, how.Step = b.LoadEnv(), o.Take, o.Step
	p, err := Load(ctx, b.Dir, b.Patterns, how)
	if err != nil {
		return nil, err
	}
	if p.Source.Among { // 'go build' writes one file for one package only
		b.Patterns = []string{p.Package}
	}
	kernels, err := translateKernels(p.Source)
	if err != nil {
		return nil, err
	}
	in, err := instrument.Instrument(p, o.Instrument)
	if errors.Is(err, instrument.ErrOwnCheckpoints) { // Make builds it unchanged
		return &Rewritten{&instrument.Result{Files: kernels}, p.Package, b}, err
	}
	if err != nil {
		return nil, err
	}
	maps.Copy(in.Files, kernels)
	return &Rewritten{in, p.Package, b}, nil
}

// translateKernels returns files with the translations of the program's kernels
// in Go, by name. They replace those that 'cairn kernels' wrote.
func translateKernels(p *load.Program) (map[string][]byte, error) {
	files := make(map[string][]byte)
	for _, s := range p.Sources {
		if !slices.Contains(s.Imports, load.DevicePath) || !s.Rewritable() {
			continue
		}
		source := &kernel.Source{Fset: p.Fset, Files: s.Files, Types: s.Types, Info: s.Info}
		list, err := kernel.Translate(source)
		if err != nil {
			return nil, fmt.Errorf("%w:\n%w", gobuild.ErrBuild, err)
		}
		if len(list) == 0 {
			continue
		}
		name := filepath.Join(s.Dir, kernel.FileName)
		if files[name], err = kernel.File(source, s.Name, list, false); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// TreePath returns the place of a file in a tree of rewritten files: as in the
// program's module or workspace, or below modules/PATH for another module.
func (w *Rewritten) TreePath(name string) string { return w.builder.TreePath(name) }

// Build writes the program to a file.
func (w *Rewritten) Build(to string) error {
	if w.Goroutines {
		w.builder.SaveGoroutines()
	}
	return w.builder.Build(w.Files, to)
}

// build makes a program that is not in the cache.
func build(ctx context.Context, b *gobuild.Builder, cache, key string, o MakeOptions) (*Made, error) {
	reading, compiling := "reading the program", "compiling"
	if b.First() { // once
		reading += " and compiling the standard library"
		compiling += " with the run time"
	}
	o.Progress(reading)
	begin := time.Now()
	how := load.Options{Go: o.Go, ExportEnv: b.ExportEnv()}
	if how.ExportEnv != nil {
		how.Go = b.Go()
	}
	in, err := rewriteProgram(ctx, b, o, how)
	var own []string
	if errors.Is(err, instrument.ErrOwnCheckpoints) {
		own, err = []string{err.Error() + "; it is built unchanged"}, nil
	}
	if err != nil {
		return nil, err
	}
	o.Step("digesting the source")
	m := &Made{Name: b.ProgramName(in.Package), Points: in.Points, Uncovered: in.Uncovered, Notes: append(own, in.Notes()...), ReadsStdin: in.ReadsStdin}
	if m.Source, err = in.source(); err != nil {
		return nil, err
	}
	m.report(o.Progress, "in "+seconds(begin))
	o.Progress(compiling)
	begin = time.Now()
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(cache, ".new-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	o.Step("compiling")
	if err := in.Build(filepath.Join(work, m.Name)); err != nil {
		return nil, err
	}
	o.Progress("built in " + seconds(begin))
	o.Step("storing")
	// If a file changed meanwhile, the key is not that of what was built.
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

// pointsText lists the positions of points.
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

// key returns a digest of the program's files and of the options. It is empty
// if the program cannot be cached.
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
