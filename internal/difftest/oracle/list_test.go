//go:build linux

package oracle

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// listFile lists programs that Cairn refuses, or takes no checkpoint of.
const listFile = "testdata/without.txt"

// readList reads the list: lines of NAME: VERDICT: REASON. Its first line names
// the version of Go whose programs it lists.
//
// The verdict "process" is assigned by hand to programs that detect that they
// run in another process, or that they were rewritten: by finalizers, by
// profiles, by addresses as numbers. They are tried only on request.
func readList(t *testing.T) (goVersion string, list map[string]result) {
	t.Helper()
	text, err := os.ReadFile(listFile)
	if err != nil {
		t.Fatal(err)
	}
	list = make(map[string]result)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# "); ok {
			if goVersion == "" {
				goVersion = strings.TrimSuffix(strings.Fields(rest)[0], ":")
			}
			continue
		}
		words := strings.SplitN(line, ": ", 3)
		if len(words) != 3 {
			t.Fatalf("%s: want NAME: VERDICT: REASON, not %q", listFile, line)
		}
		list[words[0]] = result{name: words[0], verdict: words[1], reason: words[2]}
	}
	return goVersion, list
}

// compareList compares results with the list. With all set, the list must have
// no programs without a result.
func compareList(t *testing.T, results []result, all bool) {
	t.Helper()
	goVersion, list := readList(t)
	if goVersion != languageVersion() {
		t.Logf("%s is about the programs of %s, not of %s: it is not compared", listFile, goVersion, languageVersion())
		return
	}
	for _, r := range results {
		was, ok := list[r.name]
		delete(list, r.name)
		switch {
		case was.verdict == process, was.verdict == slow && r.verdict != wrong: // it depends on the machine
		case r.verdict == wrong:
			t.Errorf("%s: %s", r.name, r.reason)
		case r.listed() && !ok:
			t.Errorf("%s: newly %s: %s", r.name, r.verdict, r.reason)
		case r.listed() && was.verdict != r.verdict:
			t.Errorf("%s: %s, and was %s (%s): %s", r.name, r.verdict, was.verdict, was.reason, r.reason)
		case !r.listed() && ok:
			t.Errorf("%s is right now: remove it from %s, so that it stays so", r.name, listFile)
		}
	}
	if all {
		for name := range list {
			t.Errorf("%s is listed in %s, and is no program of GOROOT/test", name, listFile)
		}
	}
}

// writeList writes the list for results.
func writeList(t *testing.T, name string, results []result) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "# %s: programs of GOROOT/test that Cairn refuses, takes no checkpoint of, or that\n# do not run plainly here. The list only shrinks: see doc.go.\n", languageVersion())
	_, list := readList(t)
	for _, r := range results {
		if was := list[r.name]; was.verdict == process {
			r = was
		}
		if r.listed() {
			reason, _, _ := strings.Cut(r.reason, "\n")
			fmt.Fprintf(&b, "%s: %s: %s\n", r.name, r.verdict, reason)
		}
	}
	if err := os.WriteFile(name, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
}
