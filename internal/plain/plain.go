// Package plain makes a copy of examples/npb that does not use Cairn: it leaves
// out the calls by which the programs name their state and points. What 'cairn
// build' finds in the copy can be compared with what was written by hand.
package plain

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Env returns what tools need to build the copy, which is a module of its own.
func Env() []string {
	return []string{"CGO_ENABLED=0", "GOFLAGS=" + os.Getenv("GOFLAGS") + " -mod=mod", "GOPROXY=off"}
}

var (
	restoring = regexp.MustCompile(`\t(resumed, err := )?g\.restore\(.*\)\n\tif err != nil \{\n\t\treturn nil, err\n\t\}\n`)
	pointing  = regexp.MustCompile(`\t\tif err := g\.point\(\); err != nil \{\n\t\t\treturn nil, err\n\t\t\}\n`)
	guarding  = regexp.MustCompile(`\tg := &running\{.*\}\n`)
)

// NPB writes the copy into dir; root is this module's directory. top has the
// text that each file gets at the top of its kernel's main loop. NPB returns
// those loops, as FILE:LINE.
func NPB(root, dir string, top map[string]string) (loops []string, err error) {
	root, err = filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(root, "examples", "npb", "*.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		name := filepath.Base(file)
		if name == "guard.go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		text, loop, err := strip(name, string(b), top[name])
		if err != nil {
			return nil, err
		}
		if loop > 0 {
			loops = append(loops, fmt.Sprintf("%s:%d", name, loop))
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			return nil, err
		}
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return nil, err
	}
	text := strings.Replace(string(mod), "module github.com/cairnrun/cairn", "module example.com/npb", 1)
	text += fmt.Sprintf("\nrequire github.com/cairnrun/cairn v0.0.0\n\nreplace github.com/cairnrun/cairn => %s\n", root)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o666); err != nil {
		return nil, err
	}
	return loops, os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o666)
}

// strip returns a file without the calls, and the line of the loop that had a
// point, or 0.
func strip(name, text, top string) (string, int, error) {
	text = restoring.ReplaceAllString(text, "")
	if name == "ft.go" { // it tests whether it was resumed
		text = strings.Replace(text, "\tif !resumed {\n", "\tvar err error\n\t{\n", 1)
	}
	text = strings.NewReplacer(", g guard)", ")", ", resumed: resumed", "", "c.class[0], g)", "c.class[0])").Replace(text)
	text = guarding.ReplaceAllString(text, "")
	loop := 0
	if at := pointing.FindStringIndex(text); at != nil {
		loop = strings.Count(text[:at[0]], "\n") // line of the loop, before the match
		if line := strings.Split(text, "\n")[loop-1]; !strings.HasPrefix(line, "\tfor ") {
			return "", 0, fmt.Errorf("%s:%d: not a loop: %s", name, loop, line)
		}
		text = text[:at[0]] + top + text[at[1]:]
	}
	if strings.Contains(text, "g.restore") || strings.Contains(text, "g.point") {
		return "", 0, fmt.Errorf("%s still has calls of its guard", name)
	}
	return text, loop, nil
}
