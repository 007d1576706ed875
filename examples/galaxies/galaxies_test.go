//go:build linux

package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestProgram_DoesNotImportCairn checks that the program does not import Cairn.
func TestProgram_DoesNotImportCairn(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "main.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, im := range f.Imports {
		if strings.Contains(im.Path.Value, ".") {
			t.Errorf("it imports %s", im.Path.Value)
		}
	}
}

// TestCores_FollowParabola checks the path of the cores: their shortest
// distance, and that they stay opposite each other.
func TestCores_FollowParabola(t *testing.T) {
	s := encounter(0)
	nearest := math.Inf(1)
	for range 20000 {
		s.move(end / 20000)
		a, b := s.cores[0].at, s.cores[1].at
		nearest = min(nearest, math.Hypot(a.x-b.x, a.y-b.y))
		if math.Hypot(a.x+b.x, a.y+b.y) > 1e-9 {
			t.Fatalf("the cores are at %v and %v", a, b)
		}
	}
	if math.Abs(nearest-0.8) > 0.05 { // the pull is a little softer than that of points
		t.Errorf("the cores come as near as %g, not 0.8", nearest)
	}
}

// TestRun_KilledThreeTimes runs the program under cairn run, kills it three
// times with SIGKILL, and compares its output and files with those of the plain
// program.
func TestRun_KilledThreeTimes(t *testing.T) {
	dir := t.TempDir()
	cairn, plain := filepath.Join(dir, "cairn"), filepath.Join(dir, "galaxies")
	command(t, nil, "go", "build", "-o", cairn, "../../cmd/cairn")
	command(t, nil, "go", "build", "-o", plain, ".")
	args := []string{"-stars", "600", "-steps", "900", "-every", "150", "-path"}

	want, _ := command(t, nil, plain, append(args, filepath.Join(dir, "plain.txt"))...)
	killed := append([]string{"run", "--run", filepath.Join(dir, "run"), "--every-points", "40", ".", "-path", filepath.Join(dir, "killed.txt")}, args[:6]...)
	got, says := command(t, []string{"CAIRN_KILL_AT=130,131,777"}, cairn, killed...)
	if n := strings.Count(says, "SIGKILL"); n != 3 {
		t.Errorf("it was killed %d times, not 3:\n%s", n, says)
	}
	if got != want {
		t.Errorf("the output is %d bytes, and not that of the plain program:\n%s", len(got), got)
	}
	a, err := os.ReadFile(filepath.Join(dir, "plain.txt"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "killed.txt"))
	if err != nil || !bytes.Equal(a, b) {
		t.Errorf("the file is not that of the plain program: %v; %d bytes, %d of the plain one", err, len(b), len(a))
	}
}

// command runs a command and returns its stdout and stderr.
func command(t *testing.T, env []string, name string, args ...string) (string, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, says strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &says
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, says.String())
	}
	return out.String(), says.String()
}
