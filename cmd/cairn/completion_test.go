package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn"
)

// complete returns what Tab offers at the end of a command line, and the
// directive for the shell.
func complete(t *testing.T, words ...string) (offered []string, directive string) {
	t.Helper()
	r := cairnRun(t, append([]string{"__complete"}, words...)...)
	if r.code != exitFine {
		t.Fatalf("%q: exit code %d, %s", words, r.code, r.errors)
	}
	lines := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
	for _, line := range lines[:len(lines)-1] {
		name, text, _ := strings.Cut(line, "\t")
		if strings.Contains(text, "`") {
			t.Errorf("%q: %s has backquotes", words, line)
		}
		offered = append(offered, name)
	}
	return offered, lines[len(lines)-1]
}

// TestCompletion_Words checks what each part of a command line is completed
// with.
func TestCompletion_Words(t *testing.T) {
	t.Chdir(t.TempDir())
	makeCheckpoints(t, 3, cairn.Options{Dir: "sim.cairn"})
	makeCheckpoints(t, 1, cairn.Options{Dir: "ckpt"})
	if err := os.Mkdir("old[1].cairn", 0o777); err != nil {
		t.Fatal(err)
	}
	const files, none, dirs, order = ":0", ":4", ":16", ":32"
	for _, c := range []struct {
		line, want, directive string
	}{
		{"ver", "verify version", none},
		{"help stop ", "", none},
		{"completion ", "bash zsh fish powershell", none},
		{"gc --k", "--keep", none},
		{"run --ret", "--retries", none},
		{"run --launcher ", "fork mpirun srun", none},
		{"run --launcher=m", "fork mpirun srun", none},
		{"export --compress ", "none gzip zstd", none},
		{"run --run ", "", dirs},
		{"run ", "", files},
		{"run ./sim --ev", "", files}, // belongs to the program
		{"run ./sim a", "", files},
		{"status ", "old[1].cairn sim.cairn", dirs},
		{"status old[", "old[1].cairn", dirs},
		{"status sim.cairn ", "", none},
		{"inspect s", "sim.cairn", files},
		{"inspect sim.cairn", "sim.cairn sim.cairn@3 sim.cairn@2 sim.cairn@1", order},
		{"diff sim.cairn@1 sim.cairn@", "sim.cairn@3 sim.cairn@2 sim.cairn@1", order},
		{"verify ckpt@", "ckpt@1", order},
		{"inspect nothing@", "", files},
	} {
		got, directive := complete(t, strings.Split(c.line, " ")...)
		if want := strings.Fields(c.want); !slices.Equal(got, want) || directive != c.directive {
			t.Errorf("%q: %q %s, want %q %s", c.line, got, directive, want, c.directive)
		}
	}
}

// TestCompletion_ShellsAcceptScripts shows that each installed shell accepts
// its script, which cobra generates.
func TestCompletion_ShellsAcceptScripts(t *testing.T) {
	for _, shell := range shells {
		script := cairnRun(t, "completion", shell).exit(exitFine).says("cairn", "__complete").out
		if _, err := exec.LookPath(shell); err != nil || shell == "powershell" {
			continue
		}
		file := write(t, filepath.Join(t.TempDir(), "script"), script)
		if out, err := exec.Command(shell, "-n", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
}

// TestCompletion_BashKeepsCheckpointsWhole: Bash divides words at @ unless it
// is configured not to.
func TestCompletion_BashKeepsCheckpointsWhole(t *testing.T) {
	script := cairnRun(t, "completion", "bash").exit(exitFine).out
	out, err := exec.Command("bash", "--norc", "-c", script+"\n"+`case $COMP_WORDBREAKS in *@*) echo divides;; esac`).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v, %s", err, out)
	}
}
