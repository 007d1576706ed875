//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
)

// TestRun_Settings has values of the same settings in all places, and expects
// that each place overrides the next.
func TestRun_Settings(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, "bin/cairn.toml", "keep = 3\nmtbf = \"1h\"\ncompression = \"gzip\"\nbases = 0\ndisk-limit = \"1G\"\nevery-points = 10\nretries = 4\n")
	program := filepath.Join(dir, "bin", "counter")
	if err := os.Link(self(t), program); err != nil {
		if err := os.Symlink(self(t), program); err != nil {
			t.Fatal(err)
		}
	}
	write(t, "go", "")
	t.Setenv("CAIRN_COMPRESSION", "zstd")
	t.Setenv("CAIRN_KEEP", "5")
	cairnRun(t, "run", "-q", "--keep", "7", "--run", "r", program, "_counter", "go").exit(exitFine)
	st := decode[control.RunState](cairnRun(t, "status", "--json", "r").exit(exitFine))
	for name, want := range map[string]control.Setting{
		"keep":         {Value: "7", From: control.FromFlag},
		"compression":  {Value: "zstd", From: control.FromEnvironment},
		"mtbf":         {Value: "1h0m0s", From: control.FromFile},
		"bases":        {Value: "0", From: control.FromFile},
		"disk-limit":   {Value: "1.0 GiB", From: control.FromFile},
		"every-points": {Value: "10", From: control.FromFile},
		"retries":      {Value: "4", From: control.FromFile},
		"memory":       {Value: "the size of the state", From: control.FromDefault},
		"tracking":     {Value: "true", From: control.FromDefault},
	} {
		found := false
		for _, x := range st.Settings {
			if x.Name == name {
				found = true
				if x.Value != want.Value || x.From != want.From {
					t.Errorf("%s is %s from %s; want %s from %s", name, x.Value, x.From, want.Value, want.From)
				}
			}
		}
		if !found {
			t.Errorf("%s is not known", name)
		}
	}
	cairnRun(t, "status", "-v", "r").exit(exitFine).says("SETTING", "keep          7", "zstd")

	for _, c := range []struct{ toml, env, args, want string }{
		{"kep = 3", "", "", `there is no setting "kep" (did you mean --keep`},
		{"fresh = true", "", "", "fresh can only be given on the command line"},
		{"keep = 0", "", "", "bin/cairn.toml: keep: \"0\" is not a number of checkpoints"},
		{"keep = ", "", "", "cairn.toml:1: "},
		{"[run]\nkeep = 3", "", "", "run is a table"},
		{"", "lots", "", `CAIRN_KEEP: "lots" is not a number`},
		{"", "", "--compression lz4", `--compression: there is no compression "lz4"; there are none, zstd and gzip`},
		{"", "", "--disk-limit 10Q", "--disk-limit: \"10Q\" is not a number of bytes"},
		{"", "", "--every 0", "--every: \"0\" is not a duration"},
		{"", "", "--every-points 0", "--every-points: \"0\" is not a number of points"},
		{"", "", "--bases -1", "--bases: \"-1\" is not a number of bases"},
		{"", "", "--tracking perhaps", "--tracking: \"perhaps\" is neither true nor false"},
	} {
		write(t, "bin/cairn.toml", c.toml+"\n")
		t.Setenv("CAIRN_KEEP", c.env)
		args := append([]string{"run", "--run", "r2"}, strings.Fields(c.args)...)
		cairnRun(t, append(args, program, "_counter", "go")...).exit(exitUsage).complains(strings.ReplaceAll(c.want, "--keep", "keep"))
	}
}
