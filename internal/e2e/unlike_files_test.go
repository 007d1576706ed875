//go:build linux

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMigrate_FilesNotShared moves ranks between hosts that do not share the
// directory of the program's files: host far has another file system there, in
// a mount namespace. Open files are moved, too, with their contents and
// positions.
func TestMigrate_FilesNotShared(t *testing.T) {
	if out, err := exec.Command("unshare", "-m", "mount", "-t", "tmpfs", "none", t.TempDir()).CombinedOutput(); err != nil {
		t.Skipf("a file system cannot be mounted: %v %s; be root", err, out)
	}
	want := undisturbed(t, 3, program(t, "wander"))
	data := t.TempDir()
	input := lines(100)
	for r := range 3 {
		if err := os.WriteFile(filepath.Join(data, fmt.Sprintf("input-%d.txt", r)), []byte(input), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	remote := script(t, "remote", fmt.Sprintf(`case $1 in
far) shift; exec unshare -m sh -c 'mount -t tmpfs none "$0" && exec "$@"' %s "$@";;
*) shift; exec "$@";;
esac`, data))
	w := wander(t, "abc", remote, nil, 10, program(t, "wander"), "-data", data)
	contents := func(root string, steps int) {
		t.Helper()
		var log string
		for _, line := range strings.SplitAfter(want, "\n") {
			var rank, step int
			if n, _ := fmt.Sscanf(line, "rank %d step %d:", &rank, &step); n == 2 && rank == 1 && step <= steps {
				log += line
			}
		}
		for name, text := range map[string]string{"rank-1.txt": log, "both-1.txt": input[:5*(steps-2)], "input-1.txt": input} {
			got, err := os.ReadFile(filepath.Join(root, data, name))
			for end := time.Now().Add(patience / 4); err == nil && len(got) < len(text) && time.Now().Before(end); time.Sleep(time.Millisecond) {
				got, err = os.ReadFile(filepath.Join(root, data, name)) // it reported the step before it wrote this
			}
			if err != nil || string(got) != text {
				t.Fatalf("after step %d, %s has %v %d bytes instead of %d: %s", steps, name, err, len(got), len(text), firstDifference(got, []byte(text)))
			}
		}
	}
	contents("/", 10)

	// Without their contents, the files are not the same.
	w.stays("data file", "--rank", "1", "--to", "far")
	w.moves("--rank", "1", "--to", "far", "--copy-files", "--chunk", "64K")
	root := fmt.Sprintf("/proc/%d/root", w.pidOf(1, "far"))
	contents(root, 10)
	if st, err := os.Stat(filepath.Join(root, data, "both-1.txt")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v, %v", st.Mode(), err)
	}
	w.goes(20)
	contents(root, 20)
	contents("/", 10)
	w.stays("data file", "--rank", "1", "--to", "b")
	w.moves("--rank", "1", "--to", "b", "--copy-files")
	contents("/", 20)
	w.goes(25)
	contents("/", 25)
	// On a shared file system, the files stay as they are.
	w.moves("--rank", "0-2", "--to", "a", "--copy-files")
	w.arrives(want)
	contents("/", 60)
}
