package gobuild

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/version"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// ErrBuild says that a rewritten program does not compile, or that it can't be
// compiled with these options.
var ErrBuild = errors.New("the program could not be built")

// BuildOptions of Build and Make.
type Options struct {
	// Output is the file to make. Make: empty puts it into the cache only.
	Output string
	// Flags are those of go build: -tags=x, -race, -ldflags=-s and so on, each
	// with its value after "=".
	Flags []string
	// Env is the environment of the go command. Nil: that of this process.
	Env []string
	// Go is the go command. Empty: "go", by PATH.
	Go string
	// Cache is a folder for files that are needed again. Empty: cairn in the
	// user's cache folder, or in the go command's.
	Cache string
	// Messages, if not nil, is given what go build writes besides errors, which
	// is nothing without flags such as -v and -x.
	Messages io.Writer
}

// Build runs go build for the program that patterns name in dir, with files in
// place of those on disk: content by absolute name, among them files that do not
// exist. The run time is added if files import it by its laid-over path. Nothing
// is written but the output, Cairn's cache and the go command's.
//
// What is replaced may lie in the module of the program, in other modules of a
// workspace, in folders that go.mod replaces modules by, in a vendor folder, in
// the module cache, and in GOPATH.
func Build(ctx context.Context, dir string, patterns []string, files map[string][]byte, o Options) error {
	b, err := New(ctx, dir, patterns, o)
	if err != nil {
		return err
	}
	return b.Build(files, o.Output)
}

// builder is one build.
type Builder struct {
	ctx      context.Context
	Dir      string   // absolute
	Patterns []string // of packages, as go build takes them
	opts     Options
	env      map[string]string // what go env says
	pkgs     []*packageInfo    // what go list says, once it is asked
	cache    string
	overlay  map[string]string // absolute names
	work     string            // a temporary folder
	flags    []string          // in place of o.Flags
}

func New(ctx context.Context, dir string, patterns []string, o Options) (*Builder, error) {
	b := &Builder{ctx: ctx, opts: o, Patterns: patterns, flags: slices.Clone(o.Flags), overlay: make(map[string]string)}
	if len(patterns) == 0 {
		b.Patterns = []string{"."}
	}
	var err error
	if b.Dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	for _, f := range o.Flags {
		switch name, value, _ := strings.Cut(strings.TrimLeft(f, "-"), "="); name {
		case "buildmode":
			if !slices.Contains([]string{"default", "exe", "pie"}, value) {
				return nil, fmt.Errorf("%w: -buildmode=%s makes no program", ErrBuild, value)
			}
		case "overlay", "o", "C", "n", "toolexec", "compiler":
			return nil, fmt.Errorf("%w: the flag -%s of go build can't be used here", ErrBuild, name)
		}
	}
	return b, b.goEnv()
}

// goEnv finds out about the go command.
func (b *Builder) goEnv() error {
	out, err := b.run("env", "-json")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, &b.env); err != nil {
		return fmt.Errorf("go env gave no JSON: %w; cairn needs a go command of version 1.21 or newer", err)
	}
	for f := range strings.FieldsSeq(b.env["GOFLAGS"]) {
		if name, _, _ := strings.Cut(strings.TrimLeft(f, "-"), "="); name == "overlay" || name == "toolexec" {
			return fmt.Errorf("%w: GOFLAGS has -%s, which can't be used here", ErrBuild, name)
		}
	}
	return nil
}

// run runs the go command and returns what it prints.
func (b *Builder) run(args ...string) ([]byte, error) {
	name := b.opts.Go
	if name == "" {
		name = "go"
	}
	cmd := exec.CommandContext(b.ctx, name, args...)
	cmd.Dir, cmd.Env = b.Dir, b.environ()
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Run()
	text := strings.TrimSpace(complaint.String())
	switch {
	case err == nil:
		if b.opts.Messages != nil && text != "" {
			fmt.Fprintln(b.opts.Messages, text)
		}
		return out.Bytes(), nil
	case b.ctx.Err() != nil:
		return nil, b.ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("the go command is needed to build Go programs: %w; install Go, or put it into PATH", err)
	case text != "":
		return nil, fmt.Errorf("go %s: %s%s", args[0], text, load.ModuleHint(b.Dir, args[1:]))
	}
	return nil, fmt.Errorf("go %s: %w", args[0], err)
}

// build runs go build with files in place of those on disk.
func (b *Builder) Build(files map[string][]byte, output string) (err error) {
	if output == "" {
		return fmt.Errorf("%w: no name for the output was given", ErrBuild)
	}
	output, err = filepath.Abs(output)
	if err != nil {
		return err
	}
	if b.work, err = os.MkdirTemp("", "cairn-build-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.work)
	if err := b.addFiles(files); err != nil {
		return err
	}
	switch {
	case importing(files, runtimeRoot):
		if err := b.checkRuntime(); err != nil {
			return err
		}
		if err := b.avoidCgo(); err != nil {
			return err
		}
		if err := b.addRuntime(); err != nil {
			return err
		}
	case importing(files, load.RuntimePath) && b.checkRuntime() == nil:
		if err := b.addRuntime(); err != nil { // for its package os
			return err
		}
	}
	args := append([]string{"build"}, b.flags...)
	if len(b.overlay) > 0 {
		text, err := json.Marshal(map[string]any{"Replace": b.overlay})
		if err != nil {
			return err
		}
		name := filepath.Join(b.work, "overlay.json")
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
		args = append(args, "-overlay="+name)
	}
	args = append(append(args, "-o="+output, "--"), b.buildArgs(files)...)
	if _, err := b.run(args...); err != nil {
		if b.ctx.Err() != nil || errors.Is(err, exec.ErrNotFound) {
			return err
		}
		return fmt.Errorf("%w:\n%s", ErrBuild, b.errorText(err))
	}
	return nil
}

// errorText is what go build said of a failure, with names as the user knows them.
func (b *Builder) errorText(err error) string {
	text := strings.TrimPrefix(err.Error(), "go build: ")
	for at, with := range b.overlay {
		text = strings.ReplaceAll(text, with+":", at+":")
	}
	if strings.Contains(text, load.RuntimePath) && strings.Contains(text, "no required module") || strings.Contains(text, "missing go.sum entry") {
		text += fmt.Sprintf("\nthe program's go.mod names Cairn: 'go get %s' adds what its run time needs", load.RuntimePath)
	}
	return text
}

// importing reports whether files import a package, or one below it.
func importing(files map[string][]byte, path string) bool {
	for _, text := range files {
		if bytes.Contains(text, []byte(`"`+path+`/`)) || bytes.Contains(text, []byte(`"`+path+`"`)) {
			return true
		}
	}
	return false
}

// buildArgs are the patterns; where they name files, with those that were added
// beside them.
func (b *Builder) buildArgs(files map[string][]byte) []string {
	if !strings.HasSuffix(b.Patterns[0], ".go") {
		return b.Patterns
	}
	all := slices.Clone(b.Patterns)
	named := make(map[string]bool)
	for _, p := range b.Patterns {
		named[b.abs(p)] = true
	}
	dir := filepath.Dir(b.abs(b.Patterns[0]))
	for name := range files {
		if filepath.Dir(name) == dir && strings.HasSuffix(name, ".go") && !named[name] {
			all = append(all, filepath.Join(filepath.Dir(b.Patterns[0]), filepath.Base(name)))
		}
	}
	slices.Sort(all[len(b.Patterns):])
	return all
}

func (b *Builder) abs(name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(b.Dir, name)
}

// addFiles makes overlay entries of files.
func (b *Builder) addFiles(files map[string][]byte) error {
	cached := make(map[string][]byte)
	n := 0
	for name, text := range files {
		if !filepath.IsAbs(name) {
			return fmt.Errorf("%w: %s is no absolute name", ErrBuild, name)
		}
		if within(b.env["GOMODCACHE"], name) {
			cached[name] = text
			continue
		}
		n++
		to := filepath.Join(b.work, fmt.Sprintf("%d-%s", n, filepath.Base(name)))
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return err
		}
		b.overlay[name] = to
	}
	if len(cached) > 0 {
		return b.replaceModules(cached)
	}
	return nil
}

// checkRuntime says why the run time can't be put beside the standard library.
func (b *Builder) checkRuntime() error {
	target := b.env["GOOS"] + "/" + b.env["GOARCH"]
	if !slices.Contains(platforms, target) {
		return fmt.Errorf("%w: Cairn's run time can't be put into programs for %s; it can for %s", ErrBuild, target, strings.Join(platforms, ", "))
	}
	if v := b.env["GOVERSION"]; version.IsValid(v) && version.Compare(v, minGoVersion) < 0 {
		return fmt.Errorf("%w: it is built with %s, and Cairn's run time needs %s or newer; install that, or set GOTOOLCHAIN=%s.0", ErrBuild, v, minGoVersion, minGoVersion)
	}
	return nil
}

// addRuntime puts the run time beside the standard library.
func (b *Builder) addRuntime() error {
	if err := b.checkRuntime(); err != nil {
		return err
	}
	cache, err := b.CacheDir()
	if err != nil {
		return err
	}
	root, err := makeGOROOT(cache, b.env["GOROOT"], b.env["GOVERSION"])
	if err != nil {
		return fmt.Errorf("%w: Cairn's run time: %w", ErrBuild, err)
	}
	// The go command that was chosen for the program, and no other.
	if name := filepath.Join(b.env["GOROOT"], "bin", "go"); b.opts.Go == "" && isFile(name) {
		b.opts.Go = name
	}
	b.opts.Env = append(b.environ(), "GOROOT="+root, "GOTOOLCHAIN=local")
	return nil
}

// avoidCgo keeps a program that needs no C library from needing one because of
// the packages that the run time uses.
func (b *Builder) avoidCgo() error {
	list, err := b.packages()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(u *packageInfo) bool { return u.ImportPath == "runtime/cgo" }) {
		return nil
	}
	tags := ""
	for _, f := range append(strings.Fields(b.env["GOFLAGS"]), b.flags...) {
		if list, ok := strings.CutPrefix(strings.TrimLeft(f, "-"), "tags="); ok {
			tags = list
		}
	}
	if tags = strings.ReplaceAll(tags, " ", ","); tags != "" {
		tags += ","
	}
	b.flags = append(b.flags, "-tags="+tags+"netgo,osusergo")
	return nil
}

func isFile(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.Mode().IsRegular()
}

// environ is the environment of the go command.
func (b *Builder) environ() []string {
	env := b.opts.Env
	if env == nil {
		env = os.Environ()
	}
	return append(slices.Clip(env), "PWD="+b.Dir) // what a link leads to has another name
}

// cacheDir returns a folder for what is needed again, which is there. Nobody else
// may be able to write into it, so none in a temporary folder will do.
func (b *Builder) CacheDir() (string, error) {
	if b.cache != "" {
		return b.cache, nil
	}
	var tried []error
	user, err := os.UserCacheDir()
	if err != nil {
		tried = append(tried, err)
	}
	for _, c := range []struct{ dir, below string }{{b.opts.Cache, ""}, {user, "cairn"}, {b.env["GOCACHE"], "cairn"}} {
		if c.dir == "" || b.opts.Cache != "" && c.dir != b.opts.Cache {
			continue
		}
		dir := filepath.Join(c.dir, c.below)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			tried = append(tried, err)
			continue
		}
		b.cache = dir
		return dir, nil
	}
	return "", fmt.Errorf("%w: there is no folder to keep files in: %w; set XDG_CACHE_HOME to one", ErrBuild, errors.Join(tried...))
}
