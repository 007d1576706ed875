package golang

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/compiler/golang/gobuild"
	"github.com/cairnrun/cairn/internal/compiler/golang/programtest"
)

const sums = `package main

import "fmt"

func main() {
	var seen []int
	sum := 0
	for i := 0; i < 20; i++ {
		sum += i * i
		seen = append(seen, sum)
	}
	fmt.Println(sum, len(seen), seen[10])
}
`

// killed runs a program that kills itself at every point, until it ends. It
// returns the output of the last process, and how many were killed.
func killed(t *testing.T, program string) (string, int) {
	t.Helper()
	dir := t.TempDir()
	for kills := 0; kills < 100; kills++ {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), "CAIRN_DIR="+dir, "CAIRN_KILL_AT=each")
		text, err := cmd.CombinedOutput()
		if err == nil {
			return strings.TrimSpace(string(text)), kills
		}
		var e *exec.ExitError
		if !errors.As(err, &e) || e.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	t.Fatal("it does not end")
	return "", 0
}

// TestBuild_Killed kills a program that was rewritten by hand at each point:
// its result is that of an undisturbed run.
func TestBuild_Killed(t *testing.T) {
	dir := programtest.Tree(t, "go.mod", "module x\n\ngo 1.26\n", "main.go", sums)
	out := filepath.Join(t.TempDir(), "program")
	b, err := gobuild.New(context.Background(), dir, nil, gobuild.Options{Env: programtest.Offline()})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Build(map[string][]byte{filepath.Join(dir, "main.go"): []byte(rewrittenSums)}, out); err != nil {
		t.Fatal(err)
	}
	const want = "2470 20 385"
	if got := programtest.Says(t, out); got != want {
		t.Errorf("left alone, it says %q", got)
	}
	if got, kills := killed(t, out); got != want || kills != 20 {
		t.Errorf("killed %d times, it says %q", kills, got)
	}
}

// rewrittenSums is sums, rewritten by hand.
const rewrittenSums = `package main

import (
	"fmt"

	cairn_ "cairnrt/resume"
)

type cairn_frame_main struct {
	At   int
	Seen []int
	Sum  int
	I    int
}

func main() {
	cairn_.Begin()
	defer cairn_.End()
	cairn_d := cairn_.Enter()
	if cairn_.Resuming(cairn_d) {
		switch cairn_s := cairn_.Frame[cairn_frame_main](cairn_d); cairn_s.At {
		case 1:
			seen, sum := cairn_s.Seen, cairn_s.Sum
			for i, cairn_again := cairn_s.I, true; cairn_again || i < 20; i++ {
				if cairn_again {
					cairn_again = false
					cairn_.Resumed()
				} else if cairn_.Due() {
					cairn_.Point(cairn_d, &cairn_frame_main{1, seen, sum, i})
				}
				sum += i * i
				seen = append(seen, sum)
			}
			fmt.Println(sum, len(seen), seen[10])
			cairn_.Returning()
			return
		}
		cairn_.BadFrame(cairn_d)
	}
	var seen []int
	sum := 0
	for i := 0; i < 20; i++ {
		if cairn_.Due() {
			cairn_.Point(cairn_d, &cairn_frame_main{1, seen, sum, i})
		}
		sum += i * i
		seen = append(seen, sum)
	}
	fmt.Println(sum, len(seen), seen[10])
	cairn_.Returning()
}
`

// TestMake_Cache shows that a program is built once, and anew when its source,
// an embedded file or a flag has changed.
func TestMake_Cache(t *testing.T) {
	dir := programtest.Tree(t, "go.mod", "module example.com/sums/v2\n\ngo 1.26\n", "main.go", sums)
	o := MakeOptions{Options: gobuild.Options{Env: programtest.Offline(), Cache: t.TempDir()}}
	var warnings []string
	o.Progress = func(text string) { warnings = append(warnings, text) }
	make := func() *Made {
		t.Helper()
		warnings = nil
		m, err := Make(context.Background(), dir, nil, o)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := make()
	if first.Name != "sums" || first.Cached || len(first.Points) != 1 || first.Points[0].Line != 8 {
		t.Errorf("%+v", first)
	}
	if len(warnings) != 4 || !strings.HasPrefix(warnings[0], "reading") || !strings.HasPrefix(warnings[1], "1 point (main.go:8)") ||
		!strings.HasPrefix(warnings[2], "compiling") || !strings.HasPrefix(warnings[3], "built in ") {
		t.Errorf("%q was told", warnings)
	}
	if got, kills := killed(t, first.Path); got != "2470 20 385" || kills == 0 {
		t.Errorf("killed %d times, it says %q", kills, got)
	}
	again := make()
	if !again.Cached || again.Path != first.Path || again.Source.Digest != first.Source.Digest || len(again.Points) != 1 || !slices.Equal(warnings, []string{"1 point (main.go:8), built before"}) {
		t.Errorf("%+v: %q", again, warnings)
	}
	// Other options make another program, even if the rewritten files are
	// the same.
	programtest.Write(t, filepath.Join(dir, "more.go"), "package main\n\nimport _ \"embed\"\n\n//go:embed text.txt\nvar text string\n\nfunc init() { println(text) }\n")
	programtest.Write(t, filepath.Join(dir, "text.txt"), "one")
	if m := make(); m.Cached || !strings.HasPrefix(programtest.Says(t, m.Path), "one") {
		t.Error("a new file was not seen")
	}
	programtest.Write(t, filepath.Join(dir, "text.txt"), "two")
	if m := make(); m.Cached || !strings.HasPrefix(programtest.Says(t, m.Path), "two") {
		t.Error("a change in an embedded file was not seen")
	}
	o.Flags = []string{"-tags=other"}
	if make().Cached {
		t.Error("a flag was not seen")
	}
	o.Flags = nil
	o.Output = t.TempDir()
	if m := make(); !m.Cached || m.Path != filepath.Join(o.Output, "sums") || !strings.HasPrefix(programtest.Says(t, m.Path), "two") {
		t.Errorf("%+v", m)
	}
	w, err := Rewrite(context.Background(), dir, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.TreePath(filepath.Join(dir, "main.go")); got != "main.go" || w.Files[filepath.Join(dir, "main.go")] == nil {
		t.Errorf("main.go is at %s", got)
	}
	// 'go build -o FILE' takes one package.
	if err := os.Mkdir(filepath.Join(dir, "part"), 0o777); err != nil {
		t.Fatal(err)
	}
	programtest.Write(t, filepath.Join(dir, "part", "part.go"), "package part\n")
	if w, err = Rewrite(context.Background(), dir, []string{"./..."}, o); err != nil {
		t.Fatal(err)
	}
	if got := w.builder.Patterns; !slices.Equal(got, []string{"example.com/sums/v2"}) {
		t.Errorf("./... with one program is built as %q", got)
	}
}

// TestRewrite_DigestElsewhere shows that the digest of the source does not
// depend on its directory.
func TestRewrite_DigestElsewhere(t *testing.T) {
	const far = "package far\n\nfunc Sum(n int) (s int) {\n\tfor i := range n {\n\t\ts += i\n\t}\n\treturn s\n}\n"
	digest := func(dir string, patterns ...string) string {
		t.Helper()
		w, err := Rewrite(context.Background(), dir, patterns, MakeOptions{Options: gobuild.Options{Env: programtest.Offline(), Cache: t.TempDir()}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := w.source()
		if err != nil {
			t.Fatal(err)
		}
		return s.Digest
	}
	made := func(main string) string {
		return programtest.Tree(t, "go.mod", "module example.com/sums\n\ngo 1.26\n", "main.go", main, "far/far.go", far)
	}
	with := strings.Replace(sums, "import \"fmt\"", "import (\n\t\"fmt\"\n\n\t\"example.com/sums/far\"\n)\n\nvar first = far.Sum(3)", 1)
	a, b := made(with), made(with)
	if a, b := digest(a), digest(b); a != b {
		t.Errorf("in two directories: %s and %s", a, b)
	}
	if a, b := digest(a, "main.go"), digest(b, "main.go"); a != b {
		t.Errorf("files in two directories: %s and %s", a, b)
	}
	if c := made(strings.Replace(with, "20", "21", 1)); digest(a) == digest(c) {
		t.Error("another program has the same digest")
	}
	// Comments and formatting mean nothing.
	programtest.Write(t, filepath.Join(b, "main.go"), "// Command sums.\n\n"+strings.ReplaceAll(with, "{\n", "{ // here\n\n"))
	if a, b := digest(a), digest(b); a != b {
		t.Errorf("with comments: %s and %s", a, b)
	}
	// A function that is not rewritten belongs to the program, too.
	programtest.Write(t, filepath.Join(b, "far", "far.go"), strings.Replace(far, "s += i", "s -= i", 1))
	if digest(a) == digest(b) {
		t.Error("a change in another package was not seen")
	}
}

// TestRewrite_AnyProcessors shows that the result does not depend on how many
// processors the compiler runs on.
func TestRewrite_AnyProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	dir := programtest.Tree(t, "go.mod", "module example.com/ways\n\ngo 1.26\n", "main.go", ways)
	var first string
	for _, n := range []int{1, 2, 8} {
		runtime.GOMAXPROCS(n)
		w, err := Rewrite(context.Background(), dir, nil, MakeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := w.source()
		if err != nil {
			t.Fatal(err)
		}
		var page strings.Builder
		if err := w.Explanation.Text(&page, true, false); err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintln(w.Points, w.Frames, w.Uncovered, w.Warnings, s, page.String())
		for _, name := range slices.Sorted(maps.Keys(w.Files)) {
			got += fmt.Sprintf("%s\n%s\n", name, w.Files[name])
		}
		if first = cmp.Or(first, got); got != first {
			t.Errorf("with %d processors:\n%s\nwith one:\n%s", n, got, first)
		}
	}
	if !strings.Contains(first, "several modes") {
		t.Errorf("the program has no modes\n%s", first)
	}
}

// TestRewrite_DigestVendored shows that a program has the same digest with its
// modules in a vendor directory and elsewhere.
func TestRewrite_DigestVendored(t *testing.T) {
	const dep = "package dep\n\nvar N = 1\n\nfunc Add(n int) { N += n }\n"
	main := strings.Replace(sums, "import \"fmt\"", "import (\n\t\"fmt\"\n\n\t\"example.com/dep\"\n)\n\nfunc init() { dep.Add(3) }", 1)
	mod := "module example.com/sums\n\ngo 1.26\n\nrequire example.com/dep v1.0.0\n"
	beside := programtest.Tree(t, "go.mod", mod+"\nreplace example.com/dep => ./dep\n", "main.go", main,
		"dep/go.mod", "module example.com/dep\n\ngo 1.26\n", "dep/dep.go", dep)
	vendored := programtest.Tree(t, "go.mod", mod, "main.go", main,
		"vendor/modules.txt", "# example.com/dep v1.0.0\n## explicit; go 1.26\nexample.com/dep\n", "vendor/example.com/dep/dep.go", dep)
	var digests []string
	for _, dir := range []string{beside, vendored} {
		w, err := Rewrite(context.Background(), dir, nil, MakeOptions{Options: gobuild.Options{Env: programtest.Offline(), Cache: t.TempDir()}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := w.source()
		if err != nil {
			t.Fatal(err)
		}
		if s.Files["example.com/dep/dep.go"] == "" {
			t.Errorf("the module's file is missing: %v", s.Files)
		}
		digests = append(digests, s.Digest)
	}
	if digests[0] != digests[1] {
		t.Errorf("%s and %s", digests[0], digests[1])
	}
}

// TestStore_BuiltTwice shows that the second of two builds at once leaves the
// first one's program alone, which the first may be copying.
func TestStore_BuiltTwice(t *testing.T) {
	cache := t.TempDir()
	store := func() os.FileInfo {
		t.Helper()
		work, err := os.MkdirTemp(cache, ".new-")
		if err != nil {
			t.Fatal(err)
		}
		programtest.Write(t, filepath.Join(work, "program"), "x")
		m := &Made{Name: "program"}
		if err := m.store(cache, "key", work); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(m.Path)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	first := store()
	if second := store(); !os.SameFile(first, second) {
		t.Error("the second build replaces the program of the first")
	}
	// An incomplete one is replaced.
	if err := os.Remove(filepath.Join(cache, "key", "made.json")); err != nil {
		t.Fatal(err)
	}
	if third := store(); os.SameFile(first, third) {
		t.Error("an incomplete program stays")
	}
}

// TestPrune_LeastRecentlyUsed shows that the programs that were used last stay
// in the cache.
func TestPrune_LeastRecentlyUsed(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 {
		sub := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		programtest.Write(t, filepath.Join(sub, "program"), strings.Repeat("x", 100))
		used := time.Now().Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(sub, used, used); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, ".new-1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := prune(dir, 250, filepath.Join(dir, "0", "program")); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if got := strings.Join(left, " "); got != ".new-1 0 3 4" {
		t.Errorf("%s are left", got)
	}
}
