package gobuild

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tree writes files, given as name, text, name, text …, below a new
// directory.
func tree(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		name := filepath.Join(dir, filepath.FromSlash(files[i]))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(files[i+1]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// offline returns an environment in which the go command downloads nothing.
func offline(more ...string) []string {
	return append(os.Environ(), append([]string{"GOPROXY=off", "GOSUMDB=off", "GOTOOLCHAIN=local", "GOFLAGS=", "GOWORK="}, more...)...)
}

// says returns what a program prints.
func says(t *testing.T, name string, env ...string) string {
	t.Helper()
	cmd := exec.Command(name)
	cmd.Env = append(os.Environ(), env...)
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return strings.TrimSpace(string(text))
}

// build builds a program with files in place of those on disk.
func build(output, dir string, patterns []string, files map[string][]byte, o Options) error {
	b, err := New(context.Background(), dir, patterns, o)
	if err != nil {
		return err
	}
	return b.Build(files, output)
}
