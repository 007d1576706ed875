package vfs

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// TestQuoteGlob shows that a quoted name matches itself.
func TestQuoteGlob(t *testing.T) {
	for _, name := range []string{"plain", "run[1]", "run[1", `a\b`, "what?", "all*"} {
		if runtime.GOOS == "windows" && name != "plain" && name != "run[1]" {
			continue
		}
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		want := filepath.Join(dir, "x.lock")
		if err := os.WriteFile(want, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := filepath.Glob(filepath.Join(QuoteGlob(dir), "*.lock")); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%q: found %q, %v", name, got, err)
		}
	}
}
