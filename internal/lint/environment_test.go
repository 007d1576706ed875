package lint

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestEnvironment_Documented shows that docs/cli.md names every environment
// variable of Cairn that production code knows.
func TestEnvironment_Documented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	literal := regexp.MustCompile(`"(CAIRN_[A-Z_]+)\b`)
	tests := []string{"internal/bench", "internal/faults", "internal/transport/transporttest", "internal/driver/drivertest"}
	found := 0
	err = fs.WalkDir(os.DirFS("../.."), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (name == ".git" || name == "build" || path.Base(name) == "testdata" || below(name, tests)):
			return fs.SkipDir
		case e.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		src, err := os.ReadFile("../../" + name)
		if err != nil {
			return err
		}
		for _, m := range literal.FindAllSubmatch(src, -1) {
			found++
			if !strings.Contains(string(doc), "`"+string(m[1])+"`") {
				t.Errorf("%s: docs/cli.md does not name %s", name, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 20 {
		t.Errorf("only %d uses of environment variables found", found)
	}
}
