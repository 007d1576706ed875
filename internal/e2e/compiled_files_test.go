//go:build linux

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// left returns what a program has left in a directory: names, modes and
// contents. If ranks append to a file in any order, its lines are sorted.
func left(t *testing.T, dir string, unordered ...string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		out.WriteString(path[len(dir):] + " " + st.Mode().String() + "\n")
		if !st.Mode().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		if slices.Contains(unordered, e.Name()) {
			lines := strings.Split(string(text), "\n")
			slices.Sort(lines)
			text = []byte(strings.Join(lines, "\n"))
		}
		out.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestCompiled_FilesRestored kills programs that change files, in the middle of
// their changes, and compares the files with those of a run without kills.
func TestCompiled_FilesRestored(t *testing.T) {
	t.Parallel()
	made, _ := cairnBuilds(t, "./internal/e2e/testdata/ledger")
	for name, test := range map[string]func(t *testing.T, made string){
		"ranks":   sharedByRanks,
		"streams": streamsByName,
		"alone":   killedAlone,
		"older":   olderCheckpoint,
		"damage":  damagedJournal,
		"full":    fullJournal,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, made)
		})
	}
}

// sharedByRanks has ranks that change the same files.
func sharedByRanks(t *testing.T, made string) {
	files := func(die string) string {
		work, run := t.TempDir(), filepath.Join(t.TempDir(), "run")
		cmd := exec.Command(build(t, "./cmd/cairn", runtime.GOARCH), "run", "--run", run, "-n", "3", "--every-points", "7", made, "-die", die, "-marks", t.TempDir())
		cmd.Dir = work
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", die, err, text)
		} else if n := strings.Count(string(text), "was killed by signal 9"); die != "" && n == 0 {
			t.Fatalf("%s: nothing was killed:\n%s", die, text)
		}
		return left(t, work, "log")
	}
	want := files("")
	for i, die := range []string{
		"0.8.counted,1.15.state,2.22.dir,0.30.dir",
		"1.10.own,2.17.turn,0.23.scratch",
		"2.3.turn,1.3.dir,0.14.own,1.14.own,2.39.dir",
	} {
		if i > 0 && !stressed() {
			continue
		}
		if got := files(die); got != want {
			t.Errorf("%s: the files differ: %s", die, firstDifference([]byte(got), []byte(want)))
		}
	}
}

// streamsByName has a program of 'cairn build' that reads a pipe by the name of
// stdin, and writes to stdout by several names.
func streamsByName(t *testing.T, made string) {
	var in, want strings.Builder
	for n, sum := 1, 0; n <= 40; n++ {
		sum += n
		fmt.Fprintln(&in, n)
		fmt.Fprintf(&want, "line %d\nout %d\nother %d\n", n, sum, sum)
		if n == 20 {
			fmt.Fprintln(&want, "half")
		}
	}
	fmt.Fprintln(&want, "sum 820")
	for _, kills := range []string{"3,12,22,39", "1000"} {
		if kills == "1000" && !stressed() { // it is never killed
			continue
		}
		cmd := exec.Command(build(t, "./cmd/cairn", runtime.GOARCH), "run", "--run", filepath.Join(t.TempDir(), "run"), "--every-points", "5", made, "-mode", "streams")
		cmd.Dir, cmd.Stdin = t.TempDir(), strings.NewReader(in.String())
		cmd.Env = append(os.Environ(), "CAIRN_KILL_AT="+kills)
		var said bytes.Buffer
		cmd.Stderr = &said
		got, err := cmd.Output()
		if n := strings.Count(said.String(), "was killed by signal 9"); err != nil || n != strings.Count(kills, ",")+min(1, strings.Count(kills, ",")) {
			t.Fatalf("%v, %d kills\n%s", err, n, &said)
		}
		if string(got) != want.String() {
			t.Errorf("killed at %s: the output differs: %s", kills, firstDifference(got, []byte(want.String())))
		}
	}
}

// soloRun is a program without a supervisor.
type soloRun struct {
	t                     *testing.T
	made, base, die, text string
}

func newSolo(t *testing.T, made, die string) *soloRun {
	t.Helper()
	s := &soloRun{t: t, made: made, base: t.TempDir(), die: die}
	for _, dir := range []string{"marks", "work"} {
		if err := os.Mkdir(filepath.Join(s.base, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// start runs the program once, as a user other than root if possible. It
// returns whether the program was killed.
func (s *soloRun) start(env ...string) (code int, killed bool) {
	s.t.Helper()
	cmd := exec.Command(s.made, "-mode", "solo", "-rounds", "20", "-die", s.die, "-marks", "../marks")
	cmd.Dir = filepath.Join(s.base, "work")
	cmd.Env = append(append(os.Environ(), "CAIRN_DIR=../ck", "CAIRN_EVERY_POINTS=3"), env...)
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		reach(s.t, filepath.Dir(s.made))
		open(s.t, s.base)
	}
	text, err := cmd.CombinedOutput()
	s.text = string(text)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	ws, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return cmd.ProcessState.ExitCode(), ws.Signaled()
}

// reach gives another user access to a directory.
func reach(t *testing.T, dir string) {
	t.Helper()
	for up := dir; up != os.TempDir() && up != "/"; up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// open lets another user write to a directory.
func open(t *testing.T, dir string) {
	t.Helper()
	reach(t, dir)
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, 65534, 65534))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkpointed runs the program until it has two checkpoints, at points 4 and
// 8, and kills it after the second.
func (s *soloRun) checkpointed() {
	s.t.Helper()
	for _, at := range []string{"4", "4,8", "1000"} {
		if code, killed := s.start("CAIRN_EVERY_POINTS=", "CAIRN_EVERY=1h", "CAIRN_KILL_AT="+at); !killed {
			s.t.Fatalf("status %d: %s", code, s.text)
		}
	}
}

func (s *soloRun) work() string { return left(s.t, filepath.Join(s.base, "work")) }

// wantedAlone returns what the program leaves without kills.
func wantedAlone(t *testing.T, made string) string {
	t.Helper()
	want := newSolo(t, made, "")
	if code, killed := want.start("CAIRN_EVERY_POINTS=", "CAIRN_EVERY=1h"); code != 0 || killed {
		t.Fatalf("status %d: %s", code, want.text)
	}
	return want.work()
}

// same fails the test unless the files are as expected.
func (s *soloRun) same(want string) {
	s.t.Helper()
	if got := s.work(); got != want {
		s.t.Errorf("killed at %s: the files differ: %s\n%s", s.die, firstDifference([]byte(got), []byte(want)), s.text)
	}
}

// killedAlone tests links, permissions and working directories.
func killedAlone(t *testing.T, made string) {
	s := newSolo(t, made, "1.linked,2.guarded,4.elsewhere,5.end,7.linked,8.guarded,9.elsewhere,15.end,16.guarded,17.guarded")
	kills := 0
	for {
		code, killed := s.start()
		if !killed {
			if code != 0 || kills != 10 {
				t.Fatalf("status %d after %d kills: %s", code, kills, s.text)
			}
			break
		}
		kills++
	}
	s.same(wantedAlone(t, made))
}

// olderCheckpoint damages the newest checkpoint, after a file was made shorter
// than in the older one.
func olderCheckpoint(t *testing.T, made string) {
	s := newSolo(t, made, "10.guarded")
	s.checkpointed()
	indices, _ := filepath.Glob(filepath.Join(s.base, "ck", "ckpt-0*", "rank-0000.h5"))
	if len(indices) < 2 {
		t.Fatalf("checkpoints %v", indices)
	}
	text, err := os.ReadFile(indices[len(indices)-1])
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(text)/2; i++ {
		text[i] ^= 0x55
	}
	if err := os.WriteFile(indices[len(indices)-1], text, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _ := s.start(); code != 0 || !strings.Contains(s.text, "skipping a damaged checkpoint") {
		t.Fatalf("status %d: %s", code, s.text)
	}
	s.same(wantedAlone(t, made))
}

// damagedJournal damages the journal and the files that it keeps. The program
// must end with the right result, or refuse and change nothing.
func damagedJournal(t *testing.T, made string) {
	want := wantedAlone(t, made)
	first := newSolo(t, made, "10.guarded")
	first.checkpointed()
	var files []string
	filepath.WalkDir(filepath.Join(first.base, "ck"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && strings.Contains(path, "/journal") {
			files = append(files, path[len(first.base):])
		}
		return nil
	})
	if len(files) < 4 {
		t.Fatalf("the journal is %v", files)
	}
	saved := filepath.Join(t.TempDir(), "saved")
	if text, err := exec.Command("cp", "-a", first.base, saved).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	refused := 0
	for i, name := range files {
		for j, d := range []struct {
			what   string
			change func(b []byte) []byte
		}{
			{"flipped at the beginning", func(b []byte) []byte { b[0] ^= 1; return b }},
			{"flipped in the middle", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }},
			{"flipped near the end", func(b []byte) []byte { b[len(b)-2] ^= 4; return b }},
			{"cut", func(b []byte) []byte { return b[:len(b)/2] }},
			{"without its last line", func(b []byte) []byte { return b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1] }},
			{"removed", nil},
		} {
			if !stressed() && (i+j)%3 > 0 {
				continue
			}
			s := first
			if text, err := exec.Command("sh", "-c", "rm -r "+s.base+" && cp -a "+saved+" "+s.base).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			path := s.base + name
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case d.change == nil:
				err = os.Remove(path)
			case len(text) < 2:
				continue
			default:
				err = os.WriteFile(path, d.change(text), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			before := s.work()
			code, _ := s.start()
			switch {
			case code == 0:
				s.same(want)
			case s.work() != before:
				t.Errorf("%s %s: it refuses, and has changed files: %s", name, d.what, s.text)
			case !strings.Contains(s.text, filepath.Base(name)):
				t.Errorf("%s %s: the error does not name it: %s", name, d.what, s.text)
			default:
				refused++
			}
		}
	}
	if refused < len(files)/3 {
		t.Errorf("only %d damages of %d files were found", refused, len(files))
	}
}

// fullJournal fills the disk of the checkpoints. The program continues. When it
// is killed, it must not be resumed from a checkpoint that does not match the
// files.
func fullJournal(t *testing.T, made string) {
	if os.Getuid() != 0 {
		t.Skip("mounting takes root")
	}
	for _, die := range []string{"", "15.end"} {
		s := newSolo(t, made, die)
		ck := filepath.Join(s.base, "ck")
		if err := os.Mkdir(ck, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("tmpfs", ck, "tmpfs", 0, "size=16k,mode=0700"); err != nil {
			t.Skipf("a small file system cannot be mounted here: %v", err)
		}
		t.Cleanup(func() { syscall.Unmount(ck, syscall.MNT_DETACH) })
		code, killed := s.start("CAIRN_EVERY_POINTS=", "CAIRN_EVERY=1h")
		if !strings.Contains(s.text, "cannot keep the old content") || killed != (die != "") {
			t.Fatalf("status %d: %s", code, s.text)
		}
		if die == "" {
			if code != 0 {
				t.Fatalf("status %d: %s", code, s.text)
			}
			s.same(wantedAlone(t, made))
			continue
		}
		before := s.work()
		if code, _ := s.start("CAIRN_EVERY_POINTS=", "CAIRN_EVERY=1h"); code != 1 || !strings.Contains(s.text, "the checkpoints cannot be used") || s.work() != before {
			t.Errorf("status %d: %s", code, s.text)
		}
	}
}
