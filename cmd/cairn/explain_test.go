package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/explain"
)

const explained = `package main

import "os"

func main() {
	n := len(os.Args)
	for i := 0; i < n; i++ {
		n += i * i
	}
	//cairn:skip
	for n > 3 {
		n /= 2
	}
}
`

func TestExplain(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "main.go")
	if err := os.WriteFile(name, []byte(explained), 0o666); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, c := range []struct {
		args   string
		status int
		out    []string
		errs   string
	}{
		{"explain main.go", exitFine, []string{"2 loops, of which 1 is ranked and 1 chosen", "main.go:7 in main\n", "chosen: number 1 of 1", "Times\n"}, ""},
		{"explain -q --all main.go", exitFine, []string{"main.go:11: not chosen: a comment in the source excludes it"}, ""},
		{"help explain", exitFine, []string{"'cairn build' and 'cairn run' put"}, ""},
		{"explain -n -1 main.go", exitUsage, nil, "1 to 64 ranks"},
		{"explain --take nothing main.go", exitUsage, nil, "no dynamic call"},
		{"explain absent.go", exitUsage, nil, "there is no file absent.go"},
	} {
		var out, errs bytes.Buffer
		status := run(context.Background(), strings.Fields(c.args), &out, &errs)
		if status != c.status || !strings.Contains(errs.String(), c.errs) || c.errs == "" && errs.Len() > 0 {
			t.Errorf("%s: status %d, %s", c.args, status, errs.String())
		}
		for _, w := range c.out {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s: %q is not in\n%s", c.args, w, out.String())
			}
		}
	}
	var out, errs bytes.Buffer
	var e explain.Explanation
	if status := run(context.Background(), []string{"explain", "--json", "main.go"}, &out, &errs); status != exitFine {
		t.Fatal(status, errs.String())
	}
	if err := json.Unmarshal(out.Bytes(), &e); err != nil {
		t.Fatal(err)
	}
	if len(e.Loops) != 2 || !e.Loops[0].Chosen || e.Loops[0].Line != 7 || e.Loops[0].S != 2 || e.Loops[0].A != 3 || e.Loops[1].Chosen {
		t.Errorf("%+v", e)
	}
}
