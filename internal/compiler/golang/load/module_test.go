package load

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLoad_OtherModule shows that an error names the module that a directory
// belongs to.
func TestLoad_OtherModule(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"m/p", "n"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, dir, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "m", "go.mod"), []byte("module m\n\ngo 1.26\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]string{
		"./m/p": "./m/p is part of the module in " + filepath.Join(root, "m"),
		"./n":   "./n is in no module: run 'go mod init NAME'",
	} {
		_, err := Load(t.Context(), root, []string{pattern}, Options{Env: append(os.Environ(), "GOWORK=off", "GO111MODULE=on")})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", pattern, err, want)
		}
	}
	if said := moduleHint(filepath.Join(root, "m"), []string{"-e", "./p", filepath.Join(root, "m"), "example.org/x"}); said != "" {
		t.Errorf("%q about directories of the module", said)
	}
}
