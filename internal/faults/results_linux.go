package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// program is a program with its arguments.
type program struct {
	source  string // name in testdata
	mode    string
	made    bool   // built by cairn build
	suffix  string // suffix of a special build
	ranks   int
	seed    int
	steps   int
	pause   string
	devices string // devices that it uses; "": none
	status  int    // its expected exit status
}

func (p program) String() string {
	if p.source == "" {
		return "in-process"
	}
	s := fmt.Sprintf("%s %s %d", p.source, p.mode, p.seed)
	if p.ranks > 1 {
		s += fmt.Sprintf(" (%d ranks)", p.ranks)
	}
	return s
}

func (p program) binary() string {
	if p.made {
		return p.source + ".made"
	}
	return p.source + p.suffix
}

func (p program) args(pause string) []string {
	return []string{p.mode, strconv.Itoa(p.seed), strconv.Itoa(p.steps), pause}
}

// input returns what a program reads.
func (p program) input() string {
	var b strings.Builder
	for i := range p.steps {
		fmt.Fprintf(&b, "input line %d of %d\n", i, p.seed)
	}
	return b.String()
}

// results is what a run of a program leaves behind.
type results struct {
	stdout string
	status int
	files  map[string]string
}

// differs describes how results differ from those of an undisturbed run, or
// returns "".
func (got *results) differs(want *results, stdout bool) string {
	if got.status != want.status {
		return fmt.Sprintf("exit status %d, undisturbed %d", got.status, want.status)
	}
	if stdout && got.stdout != want.stdout {
		return "stdout " + firstDifference(got.stdout, want.stdout)
	}
	names := make(map[string]bool)
	for name := range want.files {
		names[name] = true
	}
	for name := range got.files {
		names[name] = true
	}
	for _, name := range slices.Sorted(keysOf(names)) {
		g, there := got.files[name]
		w, wanted := want.files[name]
		switch {
		case !there:
			return fmt.Sprintf("file %s is missing", name)
		case !wanted:
			return fmt.Sprintf("there is a file %s that an undisturbed run does not leave", name)
		case g != w:
			return fmt.Sprintf("file %s %s", name, firstDifference(g, w))
		}
	}
	return ""
}

func keysOf[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// firstDifference describes the first line in which two texts differ.
func firstDifference(got, want string) string {
	g, w := strings.SplitAfter(got, "\n"), strings.SplitAfter(want, "\n")
	for i := range max(len(g), len(w)) {
		a, b := "the end", "the end"
		if i < len(g) && g[i] != "" {
			a = fmt.Sprintf("%.120q", g[i])
		}
		if i < len(w) && w[i] != "" {
			b = fmt.Sprintf("%.120q", w[i])
		}
		if a != b {
			return fmt.Sprintf("differs in line %d: %s, undisturbed %s", i+1, a, b)
		}
	}
	return "is the same"
}

// readTree returns the content of a directory: contents and permissions of
// files, which names are the same file, directories, symbolic links.
func readTree(dir string) (map[string]string, error) {
	files := make(map[string]string)
	first := make(map[uint64]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		st, err := os.Lstat(path)
		if err != nil {
			return err
		}
		switch {
		case e.IsDir():
			files[rel+"/"] = st.Mode().String()
		case st.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			files[rel] = "link to " + to
			return err
		default:
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			head := st.Mode().String()
			// A link from outside, such as that of a kept file that was set
			// aside, does not count.
			if sys := st.Sys().(*syscall.Stat_t); first[sys.Ino] != "" {
				head += " one with " + first[sys.Ino]
			} else if sys.Nlink > 1 {
				first[sys.Ino] = rel
			}
			files[rel] = head + "\n" + string(text)
		}
		return nil
	})
	return files, err
}

// want returns the results of an undisturbed run.
func (l *lab) want(ctx context.Context, p program) (*results, error) {
	key := fmt.Sprint(p.source, p.args(""), p.ranks)
	l.mu.Lock()
	once := l.wants[key]
	if once == nil {
		once = sync.OnceValues(func() (*results, error) {
			w, err := l.undisturbed(ctx, p)
			if err != nil {
				err = fmt.Errorf("undisturbed run of %s: %w", p, err)
			}
			return w, err
		})
		l.wants[key] = once
	}
	l.mu.Unlock()
	return once()
}

// undisturbed runs a program built by go build: by itself or, if it has several
// ranks or saves itself, under cairn run without checkpoints.
func (l *lab) undisturbed(ctx context.Context, p program) (*results, error) {
	dir, err := os.MkdirTemp(l.scratch, "want-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		return nil, err
	}
	binary, err := l.program(ctx, p.source)
	if err != nil {
		return nil, err
	}
	argv := append([]string{binary}, p.args("0s")...)
	if p.source != "plain" {
		cairn, err := l.program(ctx, "cairn")
		if err != nil {
			return nil, err
		}
		argv = append([]string{cairn, "run", "-n", strconv.Itoa(p.ranks), "--every", "1h", "--run", filepath.Join(dir, "run"), "-o", filepath.Join(dir, "out")}, argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = work, &out, &errs
	cmd.Env = append(os.Environ(), "CAIRN_DEVICES=host")
	cmd.Stdin = strings.NewReader(p.input())
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	w := &results{status: cmd.ProcessState.ExitCode(), stdout: out.String()}
	if w.status != p.status {
		return nil, fmt.Errorf("exit status %d: %s", w.status, errs.String())
	}
	if p.source != "plain" {
		text, err := os.ReadFile(filepath.Join(dir, "out"))
		if err != nil {
			return nil, err
		}
		w.stdout = string(text)
	}
	w.files, err = readTree(work)
	if err == nil && strings.Count(w.stdout, "\n") < 3 && len(w.files) < 3 {
		err = fmt.Errorf("the results tell nothing: %q, %d files", w.stdout, len(w.files))
	}
	return w, err
}
