//go:build linux

package e2e

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// left returns what a program has left in a directory: names, modes and contents.
// The lines of a file that ranks append to as they come are sorted.
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

// TestCompiledShared kills ranks that change the same files, in the middle of
// their changes, and compares the files with those of a run without kills.
func TestCompiledShared(t *testing.T) {
	made, _ := cairnBuilds(t, "./internal/e2e/testdata/ledger")
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
	for _, die := range []string{
		"1.10.own,2.17.turn,0.23.scratch",
		"0.8.counted,1.15.state,2.22.dir,0.30.dir",
		"2.3.turn,1.3.dir,0.14.own,1.14.own,2.39.dir",
	} {
		if got := files(die); got != want {
			t.Errorf("%s: the files differ: %s", die, firstDifference([]byte(got), []byte(want)))
		}
	}
}
