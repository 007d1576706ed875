package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestHelp_ReferenceIsCurrent shows that docs/cli.md has the usage and the
// flags of every command. CAIRN_UPDATE=1 writes them there.
func TestHelp_ReferenceIsCurrent(t *testing.T) {
	const path, begin, end = "../../docs/cli.md", "<!-- commands -->\n", "<!-- /commands -->\n"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no %s and %s", path, begin, end)
	}
	var b strings.Builder
	root := newRoot(&call{stdout: &output{}})
	for _, cmd := range listedCommands(root) {
		fmt.Fprintf(&b, "### %s\n\n%s%s.\n\n    %s\n", cmd.Name(), strings.ToUpper(cmd.Short[:1]), cmd.Short[1:], cmd.UseLine())
		own := pflag.NewFlagSet("", pflag.ContinueOnError)
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" {
				own.AddFlag(f)
			}
		})
		for line := range strings.Lines(own.FlagUsagesWrapped(96)) {
			b.WriteString("    " + line)
		}
		b.WriteString("\n")
	}
	if want := before + begin + "\n" + b.String() + end + after; want != string(doc) {
		if os.Getenv("CAIRN_UPDATE") == "" {
			t.Fatalf("%s is not current; write it with CAIRN_UPDATE=1 go test -run TestHelp_Reference ./cmd/cairn", path)
		}
		if err := os.WriteFile(path, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHelp_Width shows that the texts of commands fit a terminal of 84 columns.
func TestHelp_Width(t *testing.T) {
	for _, cmd := range listedCommands(newRoot(&call{stdout: &output{}})) {
		for line := range strings.Lines(cmd.Long + "\n" + cmd.Annotations[exitCodes]) {
			if n := textWidth(strings.TrimSuffix(line, "\n")); n > 84 {
				t.Errorf("help %s: a line of %d columns: %s", cmd.Name(), n, line)
			}
		}
	}
}
