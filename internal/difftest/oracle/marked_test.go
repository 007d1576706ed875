//go:build linux

package oracle

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// otherLoops matches lines with loops that have no mark.
var otherLoops = regexp.MustCompile(`(?m)^\s*for .*\{$`)

// markedPrograms copies the programs of internal/difftest to a directory, with
// points where they request them, and returns them.
func markedPrograms(t *testing.T, to string) (list []*program) {
	t.Helper()
	from := filepath.Join("..", "testdata", "progs")
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o777)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if filepath.Ext(path) == ".go" {
			text = otherLoops.ReplaceAll(text, []byte("$0 //cairn:skip"))
			text = bytes.ReplaceAll(text, []byte("//difftest:loop"), []byte("//cairn:point"))
		}
		return os.WriteFile(filepath.Join(to, rel), text, 0o666)
	})
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(to, "*", "main.go"))
	if err != nil || len(names) < 100 {
		t.Fatalf("%s has only %d programs: %v", from, len(names), err)
	}
	for _, name := range names {
		dir := filepath.Dir(name)
		p := &program{name: "progs/" + filepath.Base(dir), dir: to, pkg: "./" + filepath.Base(dir), marked: true}
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			p.dir, p.pkg = dir, "."
		}
		if _, err := os.Stat(filepath.Join(dir, "in")); err == nil {
			p.in = filepath.Join(dir, "in")
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			said, ok := strings.CutPrefix(strings.TrimSpace(line), "//difftest:")
			if !ok {
				continue
			}
			switch key, value, _ := strings.Cut(said, " "); key {
			case "args":
				p.args = strings.Fields(value)
			case "stdin":
				p.stdin = value
			case "supervised":
				p = nil
			}
			if p == nil {
				break
			}
		}
		if p != nil {
			list = append(list, p)
		}
	}
	return list
}
