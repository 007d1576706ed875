package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestManPages shows that every command has a manual page with its flags,
// examples and exit codes.
func TestManPages(t *testing.T) {
	if os.Getenv("CAIRN_LONG") == "" {
		t.Skip("it compiles the generator of manual pages: set CAIRN_LONG=1")
	}
	dir := t.TempDir()
	if out, err := exec.Command("go", "run", "-tags", "man", ".", "_man", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	root := newRoot(&call{})
	if err != nil || len(pages) != len(listedCommands(root))+1 {
		t.Errorf("%d pages, %v", len(pages), err)
	}
	for _, cmd := range listedCommands(root) {
		text, err := os.ReadFile(filepath.Join(dir, "cairn-"+cmd.Name()+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, want := range []string{".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH EXAMPLE", ".SH EXIT STATUS", "--json"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("the page of %s lacks %q:\n%s", cmd.Name(), want, text)
			}
		}
	}
}

// TestManPages_GeneratorIsNotLinked shows that the generator of manual pages is
// not part of the command that users get.
func TestManPages_GeneratorIsNotLinked(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if deps := string(out); strings.Contains(deps, "cobra/doc") || strings.Contains(deps, "md2man") || !strings.Contains(deps, "spf13/cobra\n") {
		t.Errorf("%s", deps)
	}
}
