//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// cairnBuilds runs 'cairn build' on a package of this module, and returns the
// program and what was said.
func cairnBuilds(t *testing.T, pkg string) (program, said string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.Command(build(t, "./cmd/cairn", runtime.GOARCH), "build", "-o", program, pkg)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("cairn build %s: %v\n%s", pkg, err, out)
	}
	return program, string(out)
}

// TestCompiledFlight kills ranks of a program that has messages under way at its
// points, communicators of some ranks, contexts and its run in a struct.
func TestCompiledFlight(t *testing.T) {
	made, _ := cairnBuilds(t, "./internal/e2e/testdata/token")
	want := undisturbed(t, 4, program(t, "token"))
	must(t, want, "world true", "traced 8")
	for _, v := range []struct{ transport, kills, rank string }{
		{"shm", "1,5,77,200", "2"}, {"tcp", "6,399,400", "0"},
	} {
		t.Run(v.transport, func(t *testing.T) {
			r := newRun(t, made)
			s := r.startIn([]string{"CAIRN_KILL_AT=" + v.kills, "CAIRN_KILL_RANK=" + v.rank}, "-n", "4", "--transport", v.transport)
			s.finishes()
			if n, kills := strings.Count(s.text(), "restored set"), strings.Count(v.kills, ",")+1; n != kills {
				t.Errorf("%d starts from a set after %d kills:\n%s", n, kills, s.text())
			}
			sameOutput(t, r.output(), want)
		})
	}
	t.Run("stopped", func(t *testing.T) { // and gone on with over another transport
		r := newRun(t, made, "-steps", "2000")
		s := r.start("-n", "4", "--transport", "shm")
		s.awaits("committed")
		s.stops()
		r.start("-n", "4", "--transport", "tcp", "--every-points", "100").finishes()
		sameOutput(t, r.output(), undisturbed(t, 4, program(t, "token"), "-steps", "2000"))
	})
}

// TestCompiledOwn: a program that takes its own checkpoints is built as it is.
func TestCompiledOwn(t *testing.T) {
	made, said := cairnBuilds(t, "./examples/heat")
	must(t, said, "the program takes its own checkpoints", "it is built as it is")
	r := newRun(t, made, "-n", "64", "-steps", "200")
	r.start("-n", "2", "--every-points", "50").finishes()
	must(t, r.output(), "heat ok")
}
