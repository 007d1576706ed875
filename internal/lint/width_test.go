package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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

// TestComments_Width shows that comments in Go files have at most 80 columns,
// where a tab counts 4. Tables, pictures and code in them, which are indented,
// may have 100. Only lines that are all comment count.
func TestComments_Width(t *testing.T) {
	for _, c := range []struct {
		line string
		max  int // 0: any width
	}{
		{"\t// A comment.", 80},
		{"// A comment.", 80},
		{"//\ttable   row", 100},
		{"//    indented", 100},
		{"//   - an item of a list", 80},
		{"//     and its second line", 80},
		{"// see https://example.com", 0},
		{"//go:build linux", 0},
		{"//cairn:rebuild", 0},
		{"x := 1 // A comment behind code.", 0},
	} {
		if n := commentWidth(c.line); n != c.max {
			t.Errorf("%q may have %d columns, want %d", c.line, n, c.max)
		}
	}
	generated := regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	err := fs.WalkDir(os.DirFS("../.."), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "testdata" || e.Name() == "build" || name != "." && strings.HasPrefix(e.Name(), ".")):
			return fs.SkipDir
		case filepath.Ext(name) != ".go":
			return nil
		}
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil || generated.Match(text) {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			n := utf8.RuneCountInString(columns.Replace(line))
			if most := commentWidth(line); most > 0 && n > most {
				t.Errorf("%s:%d has %d columns; wrap the comment at %d", name, i+1, n, most)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	columns      = strings.NewReplacer("//\t", "//  ", "\t", "    ") // a tab ends at a multiple of 4
	directive    = regexp.MustCompile(`^//[a-z]+:`)
	preformatted = regexp.MustCompile(`^//(\t| {4}[^ ]| {6})`)
)

// commentWidth returns how many columns a line may have; 0: any number, because
// it is no comment, a directive, or has an address in it.
func commentWidth(line string) int {
	line = strings.TrimLeft(line, "\t")
	switch {
	case !strings.HasPrefix(line, "//") || directive.MatchString(line) || strings.Contains(line, "://"):
		return 0
	case preformatted.MatchString(line):
		return 100
	}
	return 80
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
