// Package gobuild runs go build with some files replaced and Cairn's run time
// added, and leaves the program's directories as they are.
//
// Replaced files reach the go command by its -overlay flag; modules.go does
// the same for files in the module cache. The run time is not a module of the
// program: goroot.go makes a copy of GOROOT, by symbolic links, with the run
// time and a package os that reports changes of files (oshook.go). There, the
// packages below shims replace the modules that Cairn imports elsewhere.
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
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// ErrBuild says that a rewritten program does not compile, or that it cannot be
// built with these options.
var ErrBuild = errors.New("the program could not be built")

// Options are the options of a Builder.
type Options struct {
	// Flags are flags of go build: -tags=x, -race, -ldflags=-s and so on,
	// each with its value after "=".
	Flags []string
	// Env is the environment of the go command; nil stands for that of this
	// process.
	Env []string
	// Go is the go command. Empty stands for "go", found by PATH.
	Go string
	// Cache is a directory for files that are needed again. Empty stands
	// for cairn in the user's cache directory, or in the go command's.
	Cache string
	// Messages, if not nil, receives what go build prints besides errors.
	// That is nothing without flags such as -v and -x.
	Messages io.Writer
}

// Builder runs the go command for one program.
type Builder struct {
	ctx      context.Context
	Dir      string   // absolute
	Patterns []string // of packages, as go build takes them
	opts     Options
	env      map[string]string // from go env
	pkgs     []*packageInfo    // from go list
	cache    string
	overlay  map[string]string // file → its replacement, absolute
	replaced int               // how many replacements were written
	work     string            // a temporary directory
	flags    []string          // opts.Flags, and what avoidCgo adds
}

// New returns a builder of the program that patterns name in dir.
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
				return nil, fmt.Errorf("%w: -buildmode=%s does not make a program", ErrBuild, value)
			}
		case "overlay", "o", "C", "n", "toolexec", "compiler":
			return nil, fmt.Errorf("%w: the flag -%s of go build cannot be used here", ErrBuild, name)
		}
	}
	return b, b.goEnv()
}

// goEnv reads the go command's environment.
func (b *Builder) goEnv() error {
	out, err := b.run("env", "-json")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, &b.env); err != nil {
		return fmt.Errorf("go env printed no JSON: %w; cairn needs Go 1.21 or newer", err)
	}
	for f := range strings.FieldsSeq(b.env["GOFLAGS"]) {
		if name, _, _ := strings.Cut(strings.TrimLeft(f, "-"), "="); name == "overlay" || name == "toolexec" {
			return fmt.Errorf("%w: GOFLAGS has -%s, which cannot be used here", ErrBuild, name)
		}
	}
	return nil
}

// run runs the go command and returns its output.
func (b *Builder) run(args ...string) ([]byte, error) {
	out, messages, err := load.Go(b.ctx, b.opts.Go, b.Dir, b.environ(), args...)
	if b.opts.Messages != nil && messages != "" {
		fmt.Fprintln(b.opts.Messages, messages)
	}
	return out, err
}

// Build runs go build. files replace those on disk, by absolute name; some may
// be new. Build adds the run time if files import it by its path in GOROOT. It
// writes only the output, Cairn's cache and the go command's.
//
// Files may be replaced in the program's module, in other modules of a
// workspace, in directories that go.mod replaces modules by, in a vendor
// directory, in the module cache, and in GOPATH.
func (b *Builder) Build(files map[string][]byte, output string) (err error) {
	if output == "" {
		return fmt.Errorf("%w: no output file is named", ErrBuild)
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
		text := b.errorText(err)
		if strings.Contains(text, "signal: interrupt") { // Ctrl-C, of which this process learns, too
			select {
			case <-b.ctx.Done():
				return b.ctx.Err()
			case <-time.After(time.Second):
			}
		}
		return fmt.Errorf("%w:\n%s", ErrBuild, text)
	}
	return nil
}

// errorText returns what go build printed, with the names of the original
// files.
func (b *Builder) errorText(err error) string {
	text := strings.TrimPrefix(err.Error(), "go build: ")
	for at, with := range b.overlay {
		text = strings.ReplaceAll(text, with+":", at+":")
	}
	if strings.Contains(text, load.RuntimePath) && strings.Contains(text, "no required module") || strings.Contains(text, "missing go.sum entry") {
		text += fmt.Sprintf("\nthe program's go.mod requires Cairn: run 'go get %s' to add what Cairn's run time needs", load.RuntimePath)
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

// buildArgs returns the patterns. If they name files, it adds the new files
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

// addFiles adds overlay entries for files.
func (b *Builder) addFiles(files map[string][]byte) error {
	cached := make(map[string][]byte)
	for name, text := range files {
		if !filepath.IsAbs(name) {
			return fmt.Errorf("%w: %s is not an absolute name", ErrBuild, name)
		}
		if within(b.env["GOMODCACHE"], name) {
			cached[name] = text
			continue
		}
		if err := b.replace(name, text); err != nil {
			return err
		}
	}
	if len(cached) > 0 {
		return b.replaceModules(cached)
	}
	return nil
}

// replace adds an overlay entry for a file, with a text.
func (b *Builder) replace(name string, text []byte) error {
	b.replaced++
	to := filepath.Join(b.work, fmt.Sprintf("%d-%s", b.replaced, filepath.Base(name)))
	b.overlay[name] = to
	return os.WriteFile(to, text, 0o644)
}

// checkRuntime returns an error if the run time cannot be part of the program.
func (b *Builder) checkRuntime() error {
	target := b.env["GOOS"] + "/" + b.env["GOARCH"]
	if !slices.Contains(platforms, target) {
		return fmt.Errorf("%w: Cairn's run time does not support %s; it supports %s", ErrBuild, target, strings.Join(platforms, ", "))
	}
	if v := b.env["GOVERSION"]; version.IsValid(v) && version.Compare(v, minGoVersion) < 0 {
		return fmt.Errorf("%w: Go is %s, and Cairn's run time needs %s or newer; install that, or set GOTOOLCHAIN=%s.0", ErrBuild, v, minGoVersion, minGoVersion)
	}
	return nil
}

// addRuntime makes the go command use a GOROOT with the run time in it.
func (b *Builder) addRuntime() error {
	env, err := b.runtimeEnv()
	if err != nil {
		return err
	}
	b.opts.Env, b.opts.Go = env, b.Go()
	return nil
}

// runtimeEnv returns an environment with a GOROOT that has the run time in it,
// for the go command Go.
func (b *Builder) runtimeEnv() ([]string, error) {
	if err := b.checkRuntime(); err != nil {
		return nil, err
	}
	cache, err := b.CacheDir()
	if err != nil {
		return nil, err
	}
	root, err := makeGOROOT(cache, b.env["GOROOT"], b.env["GOVERSION"])
	if err != nil {
		return nil, fmt.Errorf("%w: Cairn's run time: %w", ErrBuild, err)
	}
	return append(b.environ(), "GOROOT="+root, "GOTOOLCHAIN=local"), nil
}

// Go returns the go command that was chosen for the program.
func (b *Builder) Go() string {
	if name := filepath.Join(b.env["GOROOT"], "bin", "go"); b.opts.Go == "" && isFile(name) {
		return name
	}
	return b.opts.Go
}

// avoidCgo makes a program that needs no C library stay so: the packages that
// the run time imports would need one.
func (b *Builder) avoidCgo() error {
	list, err := b.packages()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(u *packageInfo) bool { return u.ImportPath == "runtime/cgo" }) {
		return nil
	}
	b.addTags("netgo,osusergo")
	return nil
}

// SaveGoroutines makes the run time save other goroutines than main's.
func (b *Builder) SaveGoroutines() {
	b.addLinkerFlag("-checklinkname=0") // for resume/runtime_known.go
	b.addTags("cairn_goroutines,cairn_runtime")
}

// addLinkerFlag adds a flag to those for the linker that the user has set, in
// GOFLAGS too: of several -ldflags that are for a package the last one counts.
func (b *Builder) addLinkerFlag(flag string) {
	flags := []string{"-ldflags=" + flag}
	for _, f := range splitFlags(b.env["GOFLAGS"]) {
		if isFlag(f, "ldflags") {
			flags = append(flags, f)
		}
	}
	flags = append(flags, b.flags...)
	for i, f := range flags[1:] {
		if isFlag(f, "ldflags") {
			_, value, _ := strings.Cut(f, "=")
			flags[i+1] = "-ldflags=" + strings.TrimSpace(value+" "+flag)
		}
	}
	b.flags = flags
}

// addTags adds build tags to those that the user has set.
func (b *Builder) addTags(more string) {
	tags := ""
	for _, f := range append(splitFlags(b.env["GOFLAGS"]), b.flags...) {
		if isFlag(f, "tags") {
			_, tags, _ = strings.Cut(f, "=")
		}
	}
	if tags = strings.ReplaceAll(tags, " ", ","); tags != "" {
		tags += ","
	}
	b.flags = append(b.flags, "-tags="+tags+more)
}

// isFlag reports whether a flag with its value has the given name.
func isFlag(flag, name string) bool {
	return strings.HasPrefix(strings.TrimLeft(flag, "-"), name+"=")
}

// splitFlags splits the value of GOFLAGS as the go command does: at spaces, but
// not inside a flag that begins and ends with a quote.
func splitFlags(goflags string) []string {
	var flags []string
	for {
		goflags = strings.TrimLeft(goflags, " \t\r\n")
		if goflags == "" {
			return flags
		}
		flag, rest := goflags, ""
		if quote := goflags[0]; quote == '"' || quote == '\'' {
			flag, rest, _ = strings.Cut(goflags[1:], string(quote))
		} else if i := strings.IndexAny(goflags, " \t\r\n"); i >= 0 {
			flag, rest = goflags[:i], goflags[i:]
		}
		flags, goflags = append(flags, flag), rest
	}
}

// environ returns the environment of the go command.
func (b *Builder) environ() []string {
	env := b.opts.Env
	if env == nil {
		env = os.Environ()
	}
	return append(slices.Clip(env), "PWD="+b.Dir) // the target of a symbolic link has another name
}

// CacheDir returns a directory for files that are needed again, and creates it.
// Nobody else may be able to write into it, so a temporary directory will not
// do.
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
	return "", fmt.Errorf("%w: there is no cache directory: %w; set XDG_CACHE_HOME to one", ErrBuild, errors.Join(tried...))
}

// ProgramName returns the name that go build gives the program of a package.
func (b *Builder) ProgramName(pkg string) string {
	name := path.Base(pkg)
	if strings.HasSuffix(b.Patterns[0], ".go") {
		name = strings.TrimSuffix(filepath.Base(b.Patterns[0]), ".go")
	} else if rest := strings.TrimPrefix(name, "v"); rest != name && rest > "1" && strings.Trim(rest, "0123456789") == "" && path.Dir(pkg) != "." {
		name = path.Base(path.Dir(pkg)) // example.com/sim/v2
	}
	return name + b.env["GOEXE"]
}

// LoadEnv returns an environment in which the go command sees the flags that
// decide which files belong to the program.
func (b *Builder) LoadEnv() []string {
	return append(b.environ(), b.goflags("tags", "race", "msan", "asan", "mod", "modfile"))
}

// ExportEnv returns an environment in which the go command compiles libraries
// as Build will, so that each is compiled once only. It is nil if Build
// probably does not add the run time: the program takes checkpoints itself.
func (b *Builder) ExportEnv() []string {
	list, err := b.packages()
	if err != nil || slices.ContainsFunc(list, func(u *packageInfo) bool { return !u.DepOnly && slices.Contains(u.Imports, load.CairnPath) }) {
		return nil
	}
	env, err := b.runtimeEnv()
	if err != nil {
		return nil // Build reports the error
	}
	return append(env, b.goflags("tags", "race", "msan", "asan", "mod", "modfile", "trimpath", "buildmode", "gcflags=all", "asmflags=all"))
}

// goflags returns GOFLAGS with some of the flags of go build.
func (b *Builder) goflags(names ...string) string {
	flags := []string{b.env["GOFLAGS"]}
	for _, f := range b.opts.Flags {
		name, value, _ := strings.Cut(strings.TrimLeft(f, "-"), "=")
		pattern, _, _ := strings.Cut(value, "=") // of gcflags
		if !slices.Contains(names, name) && !slices.Contains(names, name+"="+pattern) {
			continue
		}
		if strings.ContainsAny(f, " \t\n") {
			f = "'" + f + "'"
		}
		flags = append(flags, f)
	}
	return "GOFLAGS=" + strings.TrimSpace(strings.Join(flags, " "))
}
