// Package programtest writes and runs small programs for tests of the compiler.
package programtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Tree writes files, given as name, text, name, text …, below a new directory.
func Tree(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		name := filepath.Join(dir, filepath.FromSlash(files[i]))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		Write(t, name, files[i+1])
	}
	return dir
}

// Write writes a file.
func Write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Offline returns an environment in which the go command downloads nothing, and
// builds faster: without debugging information, and with less garbage
// collection.
func Offline(more ...string) []string {
	return append(os.Environ(), append([]string{"GOPROXY=off", "GOSUMDB=off", "GOTOOLCHAIN=local", Flags("-ldflags=-w"), "GOWORK=", "GOGC=400"}, more...)...)
}

// Flags returns a setting of GOFLAGS with more flags than there are. Those that
// there are decide what can be taken from the build cache.
func Flags(more string) string {
	return strings.TrimSpace("GOFLAGS=" + os.Getenv("GOFLAGS") + " " + more)
}

// Says returns what a program prints.
func Says(t *testing.T, name string, env ...string) string {
	t.Helper()
	cmd := exec.Command(name)
	cmd.Env = append(os.Environ(), env...)
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return strings.TrimSpace(string(text))
}
