package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestMarkdown_Width shows that prose in Markdown has at most 100 columns. A
// line that cannot be broken, such as a picture's, may be longer, and so may
// tables and what programs print.
func TestMarkdown_Width(t *testing.T) {
	err := fs.WalkDir(os.DirFS("../.."), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "testdata" || e.Name() == "build" || name != "." && name != ".github" && strings.HasPrefix(e.Name(), ".")):
			return fs.SkipDir
		case filepath.Ext(name) != ".md":
			return nil
		}
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			return err
		}
		code := false
		for i, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			prose := !code && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "    ") && !strings.HasPrefix(line, "![")
			if n := utf8.RuneCountInString(line); prose && n > 100 {
				t.Errorf("%s:%d has %d columns; wrap it at 100", name, i+1, n)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestReadme_Length shows that the README has at most 150 lines.
func TestReadme_Length(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > 150 {
		t.Errorf("README.md has %d lines, 150 are allowed; move details to docs/", n)
	}
}
