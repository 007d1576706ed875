package resume_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Eight bytes for each iteration. Iterations 3 to 5 come after the checkpoint.
const (
	inputText = "in zero in one  in two  in threein four in five "
	dataText  = "da zero da one  da two  da threeda four da five "
)

// reader returns a program that reads input, with its input. It was killed in
// iteration 3.
func reader(t *testing.T, args ...string) (p *program, dir string) {
	t.Helper()
	dir = t.TempDir()
	write(t, filepath.Join(dir, "in"), inputText)
	p = newProgram(t, build(t, "./testdata/cases"), append([]string{"reading"}, args...)...)
	p.env = []string{"CAIRN_DIR=" + filepath.Join(p.dir, "ck")}
	write(t, filepath.Join(p.dir, "data"), dataText)
	p.stdin = filepath.Join(dir, "in")
	if _, killed, text := p.start("CAIRN_KILL_AT=4"); !killed {
		t.Fatal("not killed", text)
	}
	return p, dir
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// refused starts a program that must refuse to start.
func (p *program) refused(what string, says ...string) {
	p.t.Helper()
	before := p.files()["out"]
	code, _, text := p.start()
	for _, s := range append(says, "The checkpoints are kept") {
		if code != 1 || !strings.Contains(text, s) {
			p.t.Errorf("%s: status %d, does not say %q: %s", what, code, s, text)
		}
	}
	if now := p.files()["out"]; now != before {
		p.t.Errorf("%s: it wrote %q, had written %q", what, now, before)
	}
}

// TestInput_Changed restarts a program with another stdin, with other files,
// and finally with its original input. Bytes after those that were read may
// differ.
func TestInput_Changed(t *testing.T) {
	p, dir := reader(t)
	first, other, data := p.stdin, filepath.Join(dir, "other"), filepath.Join(p.dir, "data")
	named := first // name in the message, if the system provides it
	if runtime.GOOS != "linux" {
		named = "a file"
	}

	p.stdin = ""
	p.refused("null device", "read 24 bytes of "+named, "but now it is ", "start it again with")
	p.stdin = other
	write(t, other, inputText[:20])
	p.refused("shorter", "read 24 bytes of "+named, "which has 20 bytes")
	write(t, other, "In"+inputText[2:])
	p.refused("other beginning", "read 24 bytes of "+named, "begins differently", "CAIRN_CHANGED_INPUT=1")
	p.pipe = true
	p.refused("pipe", "read 24 bytes of "+named, "it is a pipe")
	p.pipe = false
	shell, args := p.path, p.args
	p.path, p.args = "sh", append([]string{"-c", `exec "$0" "$@" <&-`, shell}, args...)
	p.refused("closed", "read 24 bytes of "+named)
	p.path, p.args = shell, args

	p.stdin = first
	write(t, data, "Da"+dataText[2:])
	p.refused("other file", data, "position 24", "has changed")
	write(t, data, dataText[:30])
	p.refused("shorter file", data+" has 30 bytes, but had 48")
	if err := os.Remove(data); err != nil {
		t.Fatal(err)
	}
	p.refused("no file", "open "+data, "restore it")

	there, err := filepath.EvalSymlinks(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	write(t, data, dataText)
	here := p.dir
	p.dir = t.TempDir()
	p.refused("other directory without the files", "start the program in "+there)
	write(t, filepath.Join(p.dir, "data"), dataText)
	write(t, filepath.Join(p.dir, "out"), strings.Repeat("somebody else's\n", 100))
	p.refused("other directory with files of those names", "start the program in "+there)
	p.dir = here

	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	write(t, other, inputText[:32]+"IN FOUR in five and more")
	write(t, data, dataText+" and more")
	p.stdin = other
	if code, _, text := p.start(); code != 0 {
		t.Fatal(code, text)
	}
	want := newProgram(t, p.path, p.args...)
	write(t, filepath.Join(want.dir, "data"), dataText+" and more")
	want.stdin = other
	if code, _, text := want.start(); code != 0 {
		t.Fatal(code, text)
	}
	p.same(want)
}

// TestInput_ChangeAllowed lets a program resume with other input, as requested.
func TestInput_ChangeAllowed(t *testing.T) {
	p, _ := reader(t)
	write(t, p.stdin, strings.ToUpper(inputText))
	write(t, filepath.Join(p.dir, "data"), strings.ToUpper(dataText))
	p.refused("changed", "begins differently")
	if code, _, text := p.start("CAIRN_CHANGED_INPUT=1"); code != 0 {
		t.Fatal(code, text)
	}
	if got := p.files()["out"]; !strings.HasPrefix(got, `0 "in zero "`) || !strings.Contains(got, `3 "IN THREE"`) || !strings.HasSuffix(got, "5 \"DA FIVE \" <nil>\ndone\n") {
		t.Errorf("%s", got)
	}
}

// TestInput_ChangedByProgram shows that a file which the program itself has
// changed since the checkpoint is compared in its state at the checkpoint.
func TestInput_ChangedByProgram(t *testing.T) {
	p, _ := reader(t)
	if code, _, text := p.start("DIE=1"); code != 9 {
		t.Fatal(code, text)
	}
	if p.files()["data"] == dataText {
		t.Fatal("it has changed nothing")
	}
	if code, _, text := p.start(); code != 0 {
		t.Fatal(code, text)
	}
	if got := p.files()["out"]; !strings.HasSuffix(got, "5 \"da five \" <nil>\ndone\n") {
		t.Errorf("%s", got)
	}
}
