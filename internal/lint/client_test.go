package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestClient_Small counts the lines of code of libcairn, without its part for
// GPUs: the library that a program takes into its process stays small.
func TestClient_Small(t *testing.T) {
	const most = 1999
	files, err := filepath.Glob("../../lib/*.c")
	if err != nil || len(files) == 0 {
		t.Fatal("no sources:", err)
	}
	comments := regexp.MustCompile(`(?s)/\*.*?\*/`)
	lines := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(path) == "gpu.c" {
			continue
		}
		for line := range strings.Lines(comments.ReplaceAllString(string(text), "")) {
			if strings.TrimSpace(line) != "" {
				lines++
			}
		}
	}
	if lines > most {
		t.Errorf("the sources in lib have %d lines of code, and may have %d: simplify them", lines, most)
	}
}
