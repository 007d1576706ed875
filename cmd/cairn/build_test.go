//go:build linux

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/supervise"
	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

const summing = `package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Println("begin", os.Args[1:])
	sum := 0
	for i := 0; i < 6; i++ {
		sum += i * i
		fmt.Println(i, sum)
	}
}
`

const summed = "begin [a -b]\n0 0\n1 1\n2 5\n3 14\n4 30\n5 55\n"

// inModule makes a module with a program in ./cmd/sums, and changes into it.
func inModule(t *testing.T) {
	t.Helper()
	text, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", strings.TrimSpace(string(text)))
	t.Setenv("XDG_CACHE_HOME", buildCache)
	t.Setenv("GOFLAGS", os.Getenv("GOFLAGS")+" -ldflags=-w")
	t.Setenv("GOPROXY", "off")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module example.com/prog\n\ngo 1.26\n")
	if err := os.MkdirAll(filepath.Join(dir, "cmd", "sums"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "cmd", "sums", "main.go"), summing)
	t.Chdir(dir)
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ended checks that the command succeeded, whatever it printed.
func (r *result) ended() *result {
	r.t.Helper()
	if r.code != exitFine {
		r.t.Errorf("cairn %q: exit code %d\nstderr: %s", r.args, r.code, r.errors)
	}
	return r
}

// TestBuild builds a program, which runs as before. The points are reported,
// and a second build finds the program in the cache.
func TestBuild(t *testing.T) {
	inModule(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // nothing was built before
	cairnRun(t, "build", "./cmd/sums").ended().complains("cairn: ./cmd/sums: 1 point (cmd/sums/main.go:11)", "cairn: ./cmd/sums: reading the program and compiling the standard library\n", "cairn: ./cmd/sums: compiling with the run time\n", "cairn: ./cmd/sums: built in ", "cairn: ./cmd/sums: written to sums\n")
	cairnRun(t, "build", "-q", "./cmd/sums").exit(exitFine)
	out, err := exec.Command("./sums", "a", "-b").Output()
	if err != nil || string(out) != summed {
		t.Errorf("%v, and\n%s", err, out)
	}
	doc := decode[buildDocument](cairnRun(t, "build", "--json", "-o", "x/", "./cmd/sums").ended())
	if doc.Program != filepath.Join("x", "sums") || len(doc.Points) != 1 || !doc.Cached || !exists("x/sums") {
		t.Errorf("%+v", doc)
	}
	cairnRun(t, "build", "-o", "nowhere", "./cmd/none").exit(exitUsage).complains("no program found: ", "cmd/none", "name a directory")
	denied := "/sys" // cannot be written, not even by root, if it is mounted
	switch {
	case os.Geteuid() == 0 && !exists("/sys/kernel"):
		t.Skip("root can write everywhere, as /sys is not mounted")
	case os.Geteuid() != 0:
		denied = "denied"
		if err := os.Mkdir(denied, 0o500); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"build", "-o", denied + "/x/"}, {"build", "-o", denied + "/x"}, {"run", "-o", denied + "/x"}} {
		cairnRun(t, append(args, "./cmd/sums")...).exit(exitFailed).complains("; ask for access, or choose another file with -o FILE")
	}
	cairnRun(t, "run", "--run", denied+"/x", "./cmd/sums").exit(exitFailed).complains("; ask for access, or choose another run directory with --run DIRECTORY")
	cairnRun(t, "build", "--buildmode", "plugin", "./cmd/sums").exit(exitFailed).complains("does not make a program")
	cairnRun(t, "build", "--fast", "./cmd/sums").exit(exitUsage).complains("unknown flag --fast")
	write(t, "cmd/sums/main.go", "package main\n\nfunc main() {}\n")
	cairnRun(t, "build", "./cmd/sums").exit(exitFailed).complains("cannot be made restartable")
	if read(t, "sums") == "" {
		t.Error("a failed build removed the program")
	}
}

// TestInstrument writes the rewritten source into another directory, and leaves
// the original as it is.
func TestInstrument(t *testing.T) {
	inModule(t)
	cairnRun(t, "instrument", "-o", "new", "./cmd/sums").exit(exitFine).says(filepath.Join("new", "cmd", "sums", "main.go"))
	if text := read(t, "new/cmd/sums/main.go"); !strings.Contains(text, "cairn_point_main_1(") {
		t.Errorf("%s", text)
	}
	if read(t, "cmd/sums/main.go") != summing {
		t.Error("the source was changed")
	}
	cairnRun(t, "instrument", "-o", "new", "./cmd/sums").exit(exitUsage).complains("new is not empty")
	cairnRun(t, "instrument", "./cmd/sums").exit(exitUsage).complains("-o DIR")
	doc := decode[instrumentDocument](cairnRun(t, "instrument", "--json", "-o", "other", "./cmd/sums").exit(exitFine))
	if len(doc.Files) == 0 || len(doc.Points) != 1 {
		t.Errorf("%+v", doc)
	}
}

// TestRun_Source builds and runs source. The program is killed at every point,
// and must print what an undisturbed one would.
func TestRun_Source(t *testing.T) {
	inModule(t)
	t.Setenv("CAIRN_KILL_AT", "each")
	cairnRun(t, "run", "-o", "out", "./cmd/sums", "a", "-b").ended().
		complains("cairn: ./cmd/sums: 1 point", "killed by signal 9", "restored checkpoint", "finished")
	if got := read(t, "out"); got != summed {
		t.Errorf("it printed\n%s", got)
	}
	t.Setenv("CAIRN_KILL_AT", "")
	if !exists("sums.cairn/bin/sums") {
		t.Error("the program is not in the run directory")
	}
	// A name that can only be an import path; and files.
	cairnRun(t, "run", "-o", "out", "example.com/prog/cmd/sums", "--", "a", "-b").ended()
	if got := read(t, "out"); got != summed {
		t.Errorf("it printed\n%s", got)
	}
	cairnRun(t, "run", "-q", "--run", "lone.cairn", "-o", "out", "cmd/sums/main.go", "a", "-b").exit(exitFine)
	if got := read(t, "out"); got != summed {
		t.Errorf("it printed\n%s", got)
	}
	cairnRun(t, "run", "./cmd").exit(exitUsage).complains("is a directory without Go files")
	cairnRun(t, "run", "./nothing").exit(exitUsage).complains("give the path of a program")
	cairnRun(t, "run", "--tags", "x", "/bin/true").exit(exitUsage).complains("is a program")
}

// TestRun_ChangedSourceRefused shows that a program whose source has changed
// does not resume from checkpoints of the old one.
func TestRun_ChangedSourceRefused(t *testing.T) {
	inModule(t)
	t.Setenv("CAIRN_KILL_AT", "3")
	cairnRun(t, "run", "--retries", "0", "./cmd/sums", "a", "-b").exit(137).complains("the last checkpoint is 1")
	t.Setenv("CAIRN_KILL_AT", "")
	was := read(t, "cmd/sums/main.go")
	write(t, "cmd/sums/main.go", strings.Replace(was, "i < 6", "i < 7", 1))
	cairnRun(t, "run", "./cmd/sums", "a", "-b").exit(exitFailed).complains("source has changed since: example.com/prog/cmd/sums/main.go", "--fresh", "does not help", "main")
	cairnRun(t, "run", "--changed-source", "./cmd/sums", "a", "-b").exit(exitFailed).complains("what the checkpoint may hold", "main")
	write(t, "cmd/sums/main.go", "// Comments mean nothing.\n"+was)
	cairnRun(t, "run", "-o", "out", "./cmd/sums", "a", "-b").ended().complains("restored checkpoint")
	if got := read(t, "out"); got != summed {
		t.Errorf("it printed\n%s", got)
	}
	st, err := client.Read(t.Context(), "sums.cairn")
	if err != nil || st.State != rundir.Finished {
		t.Errorf("%+v %v", st, err)
	}
	write(t, "cmd/sums/main.go", strings.Replace(was, "i < 6", "i < 2", 1))
	cairnRun(t, "run", "-o", "out", "./cmd/sums", "a", "-b").ended()
	if got := read(t, "out"); got != "begin [a -b]\n0 0\n1 1\n" {
		t.Errorf("it printed\n%s", got)
	}
}

// TestRun_ChangedSourceAllowed shows that a program resumes with other source
// if the user consents and the change is outside of what the checkpoint holds.
func TestRun_ChangedSourceAllowed(t *testing.T) {
	inModule(t)
	const was = `package main

import "fmt"

func line(i, sum int) string { return fmt.Sprint(i, " ", sum) }

func main() {
	sum := 0
	for i := 0; i < 6; i++ {
		sum += i
		fmt.Println(line(i, sum))
	}
}
`
	write(t, "cmd/sums/main.go", was)
	t.Setenv("CAIRN_KILL_AT", "4")
	cairnRun(t, "run", "--retries", "0", "./cmd/sums").exit(137).complains("the last checkpoint is 1")
	t.Setenv("CAIRN_KILL_AT", "")
	write(t, "cmd/sums/main.go", strings.Replace(was, "\" \"", "\" = \"", 1))
	cairnRun(t, "run", "./cmd/sums").exit(exitFailed).complains("source has changed since: example.com/prog/cmd/sums/main.go", "--changed-source (nothing that the checkpoint holds has changed)")
	cairnRun(t, "run", "--changed-source", "-o", "out", "./cmd/sums").ended().complains("resuming with --changed-source: ", "main.go", "restored checkpoint")
	if got := read(t, "out"); got != "0 0\n1 1\n2 3\n3 = 6\n4 = 10\n5 = 15\n" {
		t.Errorf("it printed\n%s", got)
	}
	cairnRun(t, "run", "--changed-source", "/bin/true").exit(exitUsage).complains("needs source")
}

// TestRun_ChangedArgumentsAllowed shows that a program resumes with other
// arguments if the user consents, and that its flags get the new values.
func TestRun_ChangedArgumentsAllowed(t *testing.T) {
	inModule(t)
	write(t, "cmd/sums/main.go", `package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	n := flag.Int("n", 4, "numbers")
	by := flag.Int("by", 1, "added")
	flag.Parse()
	sum := 0
	for i := 0; i < *n; i++ {
		sum += *by
		fmt.Println(i, sum, flag.Args(), len(os.Args))
	}
}
`)
	t.Setenv("CAIRN_KILL_AT", "3")
	cairnRun(t, "run", "--retries", "0", "./cmd/sums", "-by", "2", "x").exit(137).complains("the last checkpoint is 1")
	t.Setenv("CAIRN_KILL_AT", "")
	cairnRun(t, "run", "./cmd/sums", "-n", "5", "y").exit(exitFailed).complains("it was started as", "--changed-args")
	cairnRun(t, "run", "--changed-args", "-o", "out", "./cmd/sums", "-n", "5", "y").ended().complains("resuming with --changed-args: ", "-by 2 x", "restored checkpoint")
	if got := read(t, "out"); got != "0 2 [x] 4\n1 4 [x] 4\n2 5 [y] 4\n3 6 [y] 4\n4 7 [y] 4\n" {
		t.Errorf("it printed\n%s", got)
	}
}

// TestRun_UninstrumentedProgram shows that a program which was built before is
// reported as the first time, and that -q also reports, once, what is not
// saved. A program of go build runs, with a message that nothing of it is
// saved.
func TestRun_UninstrumentedProgram(t *testing.T) {
	inModule(t)
	write(t, "cmd/sums/main.go", `package main

import "os"

func main() {
	for {
		if _, err := os.Stat("gate"); err == nil {
			return
		}
	}
}
`)
	if out, err := exec.Command("go", "build", "-o", "plain", "./cmd/sums").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var said lines
	said.some.L = &said.mu
	ended := make(chan int)
	go func() { ended <- run(t.Context(), []string{"run", "./plain"}, &said, &said) }()
	said.await("cairn: plain does not use Cairn: nothing of it is saved, and after a failure it starts from the beginning; name its source")
	cairnRun(t, "checkpoint").exit(exitFailed).complains("the program does not use Cairn, so it has no checkpoints; name its source")
	write(t, "gate", "")
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d, and %s", code, said.b.String())
	}
}

// TestBuild_WarnsOfWorkWithoutPoints builds a recursive search: the build warns
// that work in it has no point.
func TestBuild_WarnsOfWorkWithoutPoints(t *testing.T) {
	inModule(t)
	const text = `package main

import "os"

var (
	count int
	seen  = map[[2]int]bool{}
)

func walk(x, y, left int) {
	if left == 0 {
		count++
		return
	}
	for _, d := range [][2]int{{1, 0}, {0, 1}, {-1, 0}, {0, -1}} {
		if n := [2]int{x + d[0], y + d[1]}; !seen[n] {
			seen[n] = true
			walk(n[0], n[1], left-1)
			delete(seen, n)
		}
	}
}

func main() {
	for k := 1; k <= 1+9*len(os.Args); k++ {
		walk(0, 0, k)
		println(k, count)
	}
}
`
	if err := os.WriteFile("cmd/sums/main.go", []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	lines := func(args ...string) (told []string) {
		for line := range strings.Lines(cairnRun(t, append(append([]string{"build"}, args...), "./cmd/sums")...).ended().errors) {
			line, _, _ = strings.Cut(line, ", in ")
			line, _, _ = strings.Cut(line, ", built before")
			if line = strings.TrimSpace(line); strings.Contains(line, "built in") || strings.Contains(line, "reading the program") || strings.Contains(line, ": still ") ||
				strings.Contains(line, "compiling") { // only the first time
				continue
			}
			told = append(told, line)
		}
		return told
	}
	warned := func(list []string) int {
		return len(slices.DeleteFunc(slices.Clone(list), func(s string) bool { return !strings.Contains(s, "between its iterations ONLY") }))
	}
	first := lines()
	if warned(first) != 1 || !strings.Contains(first[0], " point") {
		t.Errorf("first %q", first)
	}
	if again := lines(); !slices.Equal(again, first) {
		t.Errorf("first %q, then %q", first, again)
	}
	if quiet := lines("-q"); len(quiet) != 1 || warned(quiet) != 1 || !strings.Contains(quiet[0], "WARNING: ") {
		t.Errorf("with -q: %q", quiet)
	}
}

// TestRun_StopSaidOnce shows that only the supervisor says that a compiled
// program has stopped and is saved.
func TestRun_StopSaidOnce(t *testing.T) {
	inModule(t)
	write(t, "cmd/sums/main.go", `package main

import (
	"fmt"
	"time"
)

func main() {
	sum := 0
	for i := 0; i < 1<<40; i++ {
		sum += i * i
		time.Sleep(time.Millisecond)
	}
	fmt.Println(sum)
}
`)
	var out, errs lines
	errs.some.L, out.some.L = &errs.mu, &out.mu
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- run(ctx, []string{"run", "--run", "s.cairn", "./cmd/sums"}, &out, &errs) }()
	errs.await("started")
	cairnRun(t, "checkpoint", "s.cairn").ended() // it has reached a point
	cancel()
	if c := <-code; c != supervise.StoppedStatus {
		t.Fatalf("exit code %d\n%s", c, errs.b.String())
	}
	if text := errs.b.String(); strings.Contains(text, "stopped on request") || !strings.Contains(text, "stopped with checkpoint 2; the same command resumes") {
		t.Errorf("the program says it too:\n%s", text)
	}
}
