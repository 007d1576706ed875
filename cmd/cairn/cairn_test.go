package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/vfs"
)

// particle is a value of several numbers.
type particle struct {
	X, Y float64
	ID   int32
}

// sim is a program with checkpoints.
type sim struct {
	step  int
	grid  []float64
	parts []particle
	names map[string]int
}

const gridLen = 1 << 18 // 2 MiB, 32 blocks

// begin opens a run in dir and protects the program's variables.
func (s *sim) begin(t *testing.T, opts cairn.Options) (p *cairn.Run, restored bool) {
	t.Helper()
	opts.Every, opts.Keep = time.Hour, 10
	p, err := cairn.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	s.grid, s.parts, s.names = make([]float64, gridLen), make([]particle, 3), map[string]int{"a": 1}
	for i := range gridLen / 2 { // the other half stays zero
		s.grid[i] = 1 + float64(i)
	}
	cairn.Protect(p, "step", &s.step)
	cairn.Protect(p, "grid", &s.grid)
	cairn.Protect(p, "parts", &s.parts)
	cairn.Protect(p, "names", &s.names)
	restored, err = p.Restore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p, restored
}

// makeCheckpoints runs a program that takes n checkpoints, each after a small
// change of its state, and returns its directory.
func makeCheckpoints(t *testing.T, n int, opts cairn.Options) string {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = filepath.Join(t.TempDir(), "ckpt")
	}
	var s sim
	p, _ := s.begin(t, opts)
	for range n {
		s.step++
		s.grid[1000*s.step] = -1
		s.parts[1].Y += 0.5
		if err := p.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return opts.Dir
}

// result is the result of a command.
type result struct {
	t           *testing.T
	args        []string
	code        int
	out, errors string
}

func cairnRun(t *testing.T, args ...string) *result {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), args, &out, &errs)
	return &result{t, args, code, out.String(), errs.String()}
}

// exit checks the exit code, and that there is output on stderr if and only if
// there is an error.
func (r *result) exit(code int) *result {
	r.t.Helper()
	if r.code != code {
		r.t.Errorf("cairn %q: exit code %d, want %d\nstdout: %s\nstderr: %s", r.args, r.code, code, r.out, r.errors)
	}
	if (r.code > exitFound) != strings.HasPrefix(r.errors, "cairn: ") {
		r.t.Errorf("cairn %q: exit code %d with stderr %q", r.args, r.code, r.errors)
	}
	return r
}

// says checks that stdout has each of these texts.
func (r *result) says(texts ...string) *result {
	r.t.Helper()
	for _, s := range texts {
		if !strings.Contains(r.out, s) {
			r.t.Errorf("cairn %q: stdout lacks %q:\n%s", r.args, s, r.out)
		}
	}
	return r
}

// complains checks that stderr has each of these texts.
func (r *result) complains(texts ...string) *result {
	r.t.Helper()
	for _, s := range texts {
		if !strings.Contains(r.errors, s) {
			r.t.Errorf("cairn %q: stderr lacks %q:\n%s", r.args, s, r.errors)
		}
	}
	return r
}

// decode reads the JSON document on stdout. All its fields must be known.
func decode[T any](r *result) T {
	r.t.Helper()
	var v T
	d := json.NewDecoder(strings.NewReader(r.out))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		r.t.Fatalf("cairn %q: %v\n%s", r.args, err, r.out)
	}
	if d.More() {
		r.t.Errorf("cairn %q: more than one document:\n%s", r.args, r.out)
	}
	return v
}

func checkpointFile(dir string, index uint64) string { return testDir(dir).File(index) }

// flip changes a byte of a block of the variable's values, in the file that
// holds it, and returns the block's name.
func flip(t *testing.T, file, variable string, block int) string {
	t.Helper()
	s, err := ckpt.Open(vfs.OS(), file)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range s.Header.Datasets {
		d := &s.Header.Datasets[i]
		if d.Path != "MemBlocks/"+variable {
			continue
		}
		p := make([]byte, d.Block)
		if err := s.ReadBlock(i, block, p); err != nil {
			t.Fatal(err)
		}
		path := file
		if src := s.Blocks[d.First+block].Source; src >= ckpt.SourceBase {
			path = filepath.Join(filepath.Dir(file), s.Header.Bases[src-ckpt.SourceBase].File)
		}
		all, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(all, p)
		if at < 0 {
			t.Fatalf("%s: block %d of %s not found", path, block, variable)
		}
		writeAt(t, path, int64(at)+8, all[at+8]^0x10)
		return s.BlockName(i, block)
	}
	t.Fatalf("%s: no variable %s", file, variable)
	return ""
}

func writeAt(t *testing.T, path string, at int64, b ...byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUsage(t *testing.T) {
	dir := makeCheckpoints(t, 1, cairn.Options{})
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "Checkpoints"},
		{[]string{"lsit", dir}, "did you mean list?"},
		{[]string{"exprot"}, "did you mean export?"},
		{[]string{"frobnicate"}, "'cairn help' lists all"},
		{[]string{"help", "vrify"}, "did you mean verify?"},
		{[]string{"list"}, "no run directory (*.cairn) here; name one"},
		{[]string{"gc"}, "an argument is missing; usage: cairn gc "},
		{[]string{"verify", "--accept"}, "one checkpoint, not 0"},
		{[]string{"list", dir, "more"}, "too many arguments: more"},
		{[]string{"list", ""}, "an argument is empty"},
		{[]string{"list", dir, "--jsn"}, "did you mean --json?"},
		{[]string{"list", "--verbose", dir}, "unknown flag --verbose"},
		{[]string{"--jsno", "list", dir}, "did you mean --json?"},
		{[]string{"gc", "--kep", "3", dir}, "did you mean --keep?"},
		{[]string{"gc", "--keep", "many", dir}, "a whole number"},
		{[]string{"gc", dir, "--keep"}, "--keep needs a value"},
		{[]string{"gc", "--keep=0", dir}, "keep 1 or more"},
		{[]string{"gc", "--dry-run=perhaps", dir}, "true or false"},
		{[]string{"export", "--compress", "lzma", dir, "out.h5"}, "none, gzip or zstd"},
		{[]string{"diff", dir}, "usage: cairn diff [--key FILE] CHECKPOINT CHECKPOINT"},
		{[]string{"verify", "--accept", dir, dir}, "one checkpoint, not 2"},
		{[]string{"version", "1"}, "too many arguments"},
		{[]string{"version", "--json=no"}, "true or false"},
		{[]string{"--json=no", "version"}, "true or false"},
		{[]string{"completion", "bsh"}, "did you mean bash"},
		{[]string{"run", "--retires", "3", "./sim"}, "unknown flag --retires (did you mean --retries?); see 'cairn help run'"},
		{[]string{"run", "-x", "./sim"}, "unknown flag -x; see 'cairn help run'"},
		{[]string{"run", "-out", "x", "./sim"}, "unknown flag -out (did you mean --output or --outside-files?)"},
		{[]string{"run", "-n"}, "-n needs a value"},
		{[]string{"run", "-n", "x", "./sim"}, "\"x\" is not a value for -n, which takes a whole number"},
	} {
		cairnRun(t, c.args...).exit(exitUsage).complains(c.want)
	}
}

func TestFlags_AnyOrder(t *testing.T) {
	dir := makeCheckpoints(t, 1, cairn.Options{})
	for _, args := range [][]string{
		{"list", "--json", dir}, {"list", dir, "--json"}, {"--json", "list", dir}, {"list", "-json", "-q", dir},
		{"list", "--json=true", "--", dir}, {"-q", "--json", "list", dir},
	} {
		if doc := decode[listDocument](cairnRun(t, args...).exit(exitFine)); len(doc.Checkpoints) != 1 {
			t.Errorf("%q: %d sets", args, len(doc.Checkpoints))
		}
	}
}

func TestHelp(t *testing.T) {
	cairnRun(t, "help").exit(exitFine).says("\nRuns\n  run ", "\nCheckpoints\n  list ", "CHECKPOINT is one of", "Exit codes", "Examples")
	cairnRun(t, "--help").exit(exitFine).says("\nRuns\n")
	cairnRun(t, "-h").exit(exitFine).says("\nRuns\n")
	all := listedCommands(newRoot(&call{}))
	for _, cmd := range all {
		name := cmd.Name()
		want := []string{"usage: cairn " + name, "--json", "Examples", "Exit codes"}
		cairnRun(t, "help", name).exit(exitFine).says(want...)
		cairnRun(t, name, "--help").exit(exitFine).says(want...)
		if name != "run" { // there, -h after an argument belongs to the program
			cairnRun(t, name, "x", "-h").exit(exitFine).says(want...)
		}
		for line := range strings.Lines(helpText(cmd)) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > 110 {
				t.Errorf("help of %s has a line of %d characters: %s", name, n, line)
			}
		}
	}
	if doc := decode[helpDocument](cairnRun(t, "help", "--json").exit(exitFine)); len(doc.Commands) != len(all) || len(all) != 27 {
		t.Errorf("%d commands of %d", len(doc.Commands), len(all))
	}
}

func TestVersion(t *testing.T) {
	cairnRun(t, "version").exit(exitFine).says("cairn ", "file format 4")
	cairnRun(t, "--version").exit(exitFine).says("cairn ")
	if doc := decode[versionDocument](cairnRun(t, "version", "--json").exit(exitFine)); doc.Format != ckpt.Format || doc.Go == "" {
		t.Errorf("%+v", doc)
	}
}

// TestArguments_NotACheckpoint shows that every command refuses what is not a
// checkpoint, with a clear message.
func TestArguments_NotACheckpoint(t *testing.T) {
	tmp := t.TempDir()
	good := makeCheckpoints(t, 1, cairn.Options{})
	empty := filepath.Join(tmp, "empty")
	if err := os.Mkdir(empty, 0o777); err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(tmp, "cut.h5")
	cairnRun(t, "export", good, cut).exit(exitFine)
	truncate(t, cut, 50000)
	unfinished := filepath.Join(tmp, "unfinished")
	write(t, filepath.Join(unfinished, "ckpt-00000001", "rank-0000.tmp"), "half")
	above := filepath.Dir(good)
	for _, c := range []struct{ set, want string }{
		{filepath.Join(tmp, "nowhere"), "no such file or directory"},
		{filepath.Join(tmp, "nowhere@3"), "no such file or directory"},
		{good + "@7", "no checkpoint 7 here, but 1"},
		{good + "@seven", "not a checkpoint's index"},
		{empty, "no checkpoints here"},
		{empty + "@1", "no checkpoints here"},
		{above, "there are some in " + good},
		{unfinished, "no finished checkpoint here"},
		{filepath.Join(unfinished, "ckpt-00000001"), "was not finished"},
		{write(t, filepath.Join(tmp, "text.txt"), "hello\n"), "not an HDF5 file"},
		{write(t, filepath.Join(tmp, "zero.h5"), ""), "the file is empty"},
		{write(t, filepath.Join(tmp, "sig.h5"), "\x89HDF\r\n\x1a\n"), "damaged"},
		{cut, "damaged"},
	} {
		damaged := exitFailed
		if c.want == "damaged" {
			damaged = exitFound
		}
		cairnRun(t, "inspect", c.set).exit(exitFailed).complains(c.want)
		cairnRun(t, "diff", c.set, good).exit(exitFailed).complains(c.want)
		cairnRun(t, "diff", good, c.set).exit(exitFailed).complains(c.want)
		cairnRun(t, "export", c.set, filepath.Join(tmp, "out.h5")).exit(exitFailed).complains(c.want)
		if r := cairnRun(t, "verify", c.set).exit(damaged); damaged == exitFailed {
			r.complains(c.want)
		}
		cairnRun(t, "verify", "--accept", c.set).exit(exitFailed)
	}
	for _, dir := range []string{empty, filepath.Join(tmp, "nowhere"), filepath.Join(tmp, "text.txt"), filepath.Join(good, "ckpt-00000001")} {
		cairnRun(t, "list", dir).exit(exitFailed).complains(dir)
		cairnRun(t, "gc", dir).exit(exitFailed).complains(dir)
	}
	if left, err := os.ReadDir(empty); err != nil || len(left) > 0 {
		t.Errorf("an empty directory has %v now, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(tmp, "out.h5")); err == nil {
		t.Error("a failed export left a file")
	}
}

// TestArguments_ForeignHDF5 shows that an HDF5 file of another program is
// refused, with a message that says so.
func TestArguments_ForeignHDF5(t *testing.T) {
	file := filepath.Join(t.TempDir(), "foreign.h5")
	python(t, "import h5py,sys\nh5py.File(sys.argv[1],'w')['x']=1", file)
	for _, cmd := range []string{"inspect", "verify"} {
		cairnRun(t, cmd, file).exit(exitFailed).complains("another program wrote it")
	}
}

func TestArguments_NoPermission(t *testing.T) {
	if os.Geteuid() <= 0 {
		t.Skip("needs a user whom permissions bind")
	}
	dir := makeCheckpoints(t, 1, cairn.Options{})
	for _, path := range []string{checkpointFile(dir, 1), dir} {
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		for _, cmd := range []string{"list", "inspect", "verify"} {
			cairnRun(t, cmd, dir).exit(exitFailed).complains("permission denied", "run cairn as the user who owns it")
		}
		if err := os.Chmod(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// TestElsewhere_Remedies shows that an error of the file system says what to
// do, unless it already does.
func TestElsewhere_Remedies(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, "write x: no space left on device; free space there, or go"},
		{&os.PathError{Op: "open", Path: "x", Err: syscall.EROFS}, "open x: read-only file system; ask for access, or go"},
		{&os.PathError{Op: "open", Path: "x", Err: syscall.EISDIR}, "open x: is a directory"},
		{fmt.Errorf("%w; do that", syscall.ENOSPC), "no space left on device; do that"},
	} {
		if got := elsewhere(c.err, "go").Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if elsewhere(nil, "go") != nil {
		t.Error("an error of none")
	}
}

// TestCommands_Interrupted shows that commands whose context is canceled say
// so, and leave no output file.
func TestCommands_Interrupted(t *testing.T) {
	dir := makeCheckpoints(t, 2, cairn.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out := filepath.Join(t.TempDir(), "out.h5")
	for _, args := range [][]string{{"list", dir}, {"verify", dir}, {"diff", dir + "@1", dir + "@2"}, {"export", dir, out}, {"gc", dir}} {
		var stdout, stderr bytes.Buffer
		if code := run(ctx, args, &stdout, &stderr); code != exitFailed || stderr.String() != "cairn: interrupted\n" {
			t.Errorf("%q: exit code %d, %q", args, code, stderr.String())
		}
	}
	if left, _ := filepath.Glob(out + "*"); len(left) > 0 {
		t.Errorf("an interrupted export left %q", left)
	}
}

// failing is an output that cannot be written.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, os.ErrClosed }

// TestOutput_WriteFails shows that a command whose output cannot be written
// fails.
func TestOutput_WriteFails(t *testing.T) {
	dir := makeCheckpoints(t, 1, cairn.Options{})
	for _, args := range [][]string{{"list", dir}, {"list", "--json", dir}, {"inspect", dir}, {"verify", dir}, {"help"}} {
		var stderr bytes.Buffer
		if code := run(t.Context(), args, failing{}, &stderr); code != exitFailed || !strings.Contains(stderr.String(), "cannot write the output") {
			t.Errorf("%q: exit code %d, %q", args, code, stderr.String())
		}
	}
}

// TestArguments_RunDirectory shows that a run directory stands for the
// checkpoints in it.
func TestArguments_RunDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	run := "sim.cairn"
	dir := filepath.Join(run, "ckpt")
	if err := os.CopyFS(dir, os.DirFS(makeCheckpoints(t, 2, cairn.Options{}))); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(run, "run.json"), "{}")
	for _, command := range []string{"list", "inspect", "verify"} {
		want := cairnRun(t, command, dir).exit(exitFine)
		if got := cairnRun(t, command, run).exit(exitFine); got.out != want.out {
			t.Errorf("%s:\n%s\nof its checkpoints:\n%s", command, got.out, want.out)
		}
		if got := cairnRun(t, command).exit(exitFine); got.out != want.out { // the only one here
			t.Errorf("%s:\n%s\nof its checkpoints:\n%s", command, got.out, want.out)
		}
	}
	cairnRun(t, "inspect", run+"@1").exit(exitFine)
	cairnRun(t, "gc", "--keep", "1", run).exit(exitFine).says("removed checkpoint 1")
	if err := os.Mkdir("other.cairn", 0o777); err != nil {
		t.Fatal(err)
	}
	cairnRun(t, "list").exit(exitUsage).complains("several run directories here; name one of other.cairn, sim.cairn")
}
