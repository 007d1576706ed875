//go:build linux

package oracle

import (
	"fmt"
	"go/build"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// program is a program to compare: one of GOROOT/test, or of internal/difftest.
type program struct {
	name   string // fixedbugs/bug345.go
	action string // run or rundir, for programs of GOROOT/test
	dir    string // directory where it is built
	pkg    string // package to build there
	args   []string
	flags  []string // flags for the go command
	in     string   // directory of files in its working directory; "": none
	stdin  string   // name of a file among them
	marked bool     // points are where its source requests them, not everywhere
}

// testDir returns GOROOT/test. The test fails if the Go installation lacks it.
func testDir(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatalf("go env GOROOT: %v", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "test")
	if _, err := os.Stat(filepath.Join(dir, "helloworld.go")); err != nil {
		t.Fatalf("the Go installation has no test programs: %v\nThe distribution of https://go.dev/dl has them in GOROOT/test; some packages of Linux distributions leave them out (Debian: install golang-VERSION-src). Install Go from there, or unpack the directory test of the same version's source", err)
	}
	return dir
}

// findPrograms returns the programs below a directory that can be run, ordered
// by name, and the reasons why others cannot be run here.
func findPrograms(t *testing.T, dir string) (list []*program, untried map[string]string) {
	t.Helper()
	untried = make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && strings.HasSuffix(path, ".dir") || !strings.HasSuffix(path, ".go") {
			if e.IsDir() && path != dir && strings.HasSuffix(path, ".dir") {
				return filepath.SkipDir
			}
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		p, why := readProgram(filepath.ToSlash(name), string(text))
		if why != "" {
			untried[p.name] = why
		} else if p != nil {
			list = append(list, p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 900 {
		t.Fatalf("%s has only %d programs to run", dir, len(list))
	}
	return list, untried
}

// readProgram reads a program's first lines, as the Go project's own test
// runner (cmd/internal/testdir) does. It returns nil for files that are not
// run.
func readProgram(name, text string) (p *program, untried string) {
	// The recipe is the first comment. Constraints stand around it.
	head, _, _ := strings.Cut(text, "\npackage ")
	recipe := ""
	for line := range strings.Lines(head) {
		line = strings.TrimSpace(line)
		if line == "" || constraint.IsGoBuild(line) || constraint.IsPlusBuild(line) {
			continue
		}
		if rest, ok := strings.CutPrefix(line, "//"); ok {
			recipe = strings.TrimSpace(rest)
		}
		break
	}
	words := strings.Fields(recipe)
	if len(words) == 0 || words[0] != "run" && words[0] != "rundir" && words[0] != "buildrun" {
		return nil, ""
	}
	p = &program{name: name, action: words[0]}
	if p.action == "buildrun" {
		p.action = "run"
	}
	for line := range strings.Lines(head) {
		if expr, err := constraint.Parse(strings.TrimSpace(line)); err == nil && !expr.Eval(holds) {
			return p, "it is not for this system: " + strings.TrimSpace(line)
		}
	}
	rest := words[1:]
	for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
		p.flags = append(p.flags, rest[0])
		rest = rest[1:]
	}
	p.args = rest
	for _, f := range p.flags {
		switch {
		case strings.HasPrefix(f, "-race"), strings.HasPrefix(f, "-goexperiment"), strings.HasPrefix(f, "-t"), f == "-gomodversion", f == "-ldflags":
			return p, "it needs the flag " + f
		case f == "-gcflags" || strings.ContainsAny(f, `'"`):
			return p, "its flags are quoted or have a value apart: " + strings.Join(p.flags, " ")
		}
	}
	if p.action == "rundir" && len(p.flags) > 0 {
		return p, "it needs flags of the compiler or linker: " + strings.Join(p.flags, " ")
	}
	return p, ""
}

// holds evaluates a build constraint for this system.
func holds(tag string) bool {
	switch tag {
	case runtime.GOOS, runtime.GOARCH, "gc", "unix":
		return true
	case "cgo":
		return false
	case "gcflags_noopt", "test_run":
		return false
	}
	return slices.Contains(build.Default.ReleaseTags, tag) || slices.Contains(build.Default.ToolTags, tag)
}

// locate finds out where a program of GOROOT/test is built. A program of
// several packages is copied to work as a module.
func (p *program) locate(root, work string) error {
	if p.action == "run" {
		p.dir, p.pkg = filepath.Join(root, filepath.Dir(p.name)), filepath.Base(p.name)
		return nil
	}
	p.dir, p.pkg = filepath.Join(work, "module"), "."
	from := filepath.Join(root, strings.TrimSuffix(p.name, ".go")+".dir")
	names, err := filepath.Glob(filepath.Join(from, "*.go"))
	if err != nil || len(names) == 0 {
		return fmt.Errorf("%s has no Go files: %v", from, err)
	}
	// Each package gets a directory named after its first file, by which others
	// import it. main is in the root.
	home := make(map[string]string)
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg := f.Name.Name
		if home[pkg] == "" {
			home[pkg] = strings.TrimSuffix(filepath.Base(name), ".go")
			if pkg == "main" {
				home[pkg] = "."
			}
		}
		// From the last to the first, so that offsets stay valid.
		for _, im := range slices.Backward(f.Imports) {
			if rest, ok := strings.CutPrefix(im.Path.Value, `"./`); ok {
				lo, hi := int(im.Path.Pos())-1, int(im.Path.End())-1
				text = slices.Concat(text[:lo], []byte(`"test/`+rest), text[hi:])
			}
		}
		// A file may be named like a test.
		to := filepath.Join(p.dir, home[pkg], strings.TrimSuffix(strings.TrimSuffix(filepath.Base(name), ".go"), "_test")+".go")
		if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o666); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(p.dir, "go.mod"), []byte("module test\n\ngo "+strings.TrimPrefix(languageVersion(), "go")+"\n"), 0o666)
}

// languageVersion returns the language version of the go command that runs the
// tests: go1.26.
func languageVersion() string {
	tags := build.Default.ReleaseTags
	return tags[len(tags)-1]
}
