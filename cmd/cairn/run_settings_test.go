//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/engine"
)

// TestRun_SettingsPrecedence has values of the same settings in all places, and
// expects that each place overrides the next.
func TestRun_SettingsPrecedence(t *testing.T) {
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
	cairnRun(t, "run", "-q", "--every", "auto", "--outside-files", "--run", "r3", program, "_counter", "go").exit(exitFine)
	cairnRun(t, "status", "-v", "r3").exit(exitFine).says("every          Young's and Daly's optimum  flag", "outside-files  true                        flag")

	for _, c := range []struct{ toml, env, args, want string }{
		{"kep = 3", "", "", `bin/cairn.toml:1: kep: there is no such setting (did you mean --keep`},
		{"fresh = true", "", "", "fresh can only be given on the command line"},
		{"keep = 0", "", "", "bin/cairn.toml:1: keep: \"0\" is not a number of checkpoints"},
		{"keep = ", "", "", "cairn.toml:1: "},
		{"[run]\nkeep = 3", "", "", "cairn.toml:1: run is a table"},
		{"", "lots", "", `CAIRN_KEEP: "lots" is not a number`},
		{"", "", "--compression lz4", `--compression: there is no compression "lz4"; there are none, zstd and gzip`},
		{"", "", "--disk-limit 10Q", "--disk-limit: \"10Q\" is not a number of bytes"},
		{"", "", "--every 0", "--every: \"0\" is not a duration"},
		{"", "", "--every-points 0", "--every-points: \"0\" is not a number of points"},
		{"", "", "--bases -1", "--bases: \"-1\" is not a number of bases"},
		{"", "", "--tracking perhaps", "--tracking: \"perhaps\" is neither true nor false"},
		{"# two\nhosts = [\"a:x\"]", "", "", `bin/cairn.toml:2: hosts: "a:x" has no number of slots`},
		{"launcher = \"ssh\"", "", "", `bin/cairn.toml:1: launcher: there is no launcher "ssh"; there are fork, mpirun, mpiexec and srun`},
		{"retries = -1", "", "", "bin/cairn.toml:1: retries -1 is negative"},
		{"ranks = -1", "", "", "bin/cairn.toml:1: ranks -1: a run has at least one rank"},
	} {
		write(t, "bin/cairn.toml", c.toml+"\n")
		t.Setenv("CAIRN_KEEP", c.env)
		args := append([]string{"run", "--run", "r2"}, strings.Fields(c.args)...)
		cairnRun(t, append(args, program, "_counter", "go")...).exit(exitUsage).complains(strings.ReplaceAll(c.want, "--keep", "keep"))
	}
}

// TestOptions_EachHasSetting goes through the options of the library: each is a
// flag of 'cairn run', a variable and a setting of cairn.toml, or the test says
// why not.
func TestOptions_EachHasSetting(t *testing.T) {
	flagOf := map[string]string{
		"Dir": "dir", "Local": "local", "Tiers": "tiers", "Fresh": "fresh", "GroupReadable": "group", "AnyOwner": "any-owner",
		"Every": "every", "EveryPoints": "every-points", "Auto": "every", "MTBF": "mtbf", "Keep": "keep", "DiskLimit": "disk-limit",
		"Memory": "memory", "Compression": "compression", "MaxBases": "bases", "NoTracking": "tracking", "OutsideFiles": "outside-files",
	}
	ofProgram := map[string]string{
		"Signals": "under a supervisor, the supervisor gets them", "SafePoints": "a promise about the program", "Drop": "variables of the program",
		"OnSaved": "a function", "OnError": "a function", "Log": "a value of the program",
	}
	flags := runCommand(&call{}).Flags()
	for f := range reflect.TypeFor[cairn.Options]().Fields() {
		name, ok := flagOf[f.Name]
		switch {
		case ofProgram[f.Name] != "":
		case !ok:
			t.Errorf("Options.%s is no setting", f.Name)
		case flags.Lookup(name) == nil:
			t.Errorf("Options.%s: there is no flag --%s", f.Name, name)
		case slices.Contains(flagOnly, name) && f.Name != "Fresh":
			t.Errorf("Options.%s: the environment and cairn.toml cannot set %s", f.Name, name)
		}
	}
	// Those that the program's side knows have flags, too.
	for _, name := range engine.Settings() {
		if flags.Lookup(name) == nil || slices.Contains(flagOnly, name) {
			t.Errorf("%s is no flag, or cannot be set otherwise", name)
		}
	}
}

// TestRun_WrongVariables has wrong values and names in the environment.
func TestRun_WrongVariables(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "go", "")
	t.Setenv("CAIRN_KEEPS", "3")
	t.Setenv("CAIRN_NOTHING_LIKE_IT", "3")
	t.Setenv("CAIRN_FROM", "there")
	r := cairnRun(t, "run", "--run", "r", self(t), "_counter", "go").complains(
		"CAIRN_KEEPS is ignored: there is no such variable (did you mean CAIRN_KEEP?)", "CAIRN_NOTHING_LIKE_IT is ignored: there is no such variable\n", "CAIRN_FROM is ignored: --from can only")
	if r.code != exitFine {
		t.Errorf("exit code %d", r.code)
	}
	t.Setenv("CAIRN_HOSTS", "a:x")
	cairnRun(t, "run", "--run", "r", self(t), "_counter", "go").exit(exitUsage).complains(`run: CAIRN_HOSTS: "a:x" has no number`)
	t.Setenv("CAIRN_HOSTS", "")
	t.Setenv("CAIRN_LAUNCHER", "ssh")
	cairnRun(t, "run", "--run", "r", self(t), "_counter", "go").exit(exitUsage).complains(`run: CAIRN_LAUNCHER: there is no launcher "ssh"; there are fork, mpirun, mpiexec and srun`)
}

// TestVariables_DocumentedAreKnown looks for each variable of the manual.
func TestVariables_DocumentedAreKnown(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	flags := runCommand(&call{}).Flags()
	for _, m := range regexp.MustCompile("`CAIRN_([A-Z_]+)`").FindAllStringSubmatch(string(text), -1) {
		if flags.Lookup(strings.ToLower(strings.ReplaceAll(m[1], "_", "-"))) == nil && !slices.Contains(otherVariables, m[1]) {
			t.Errorf("'cairn run' does not know CAIRN_%s", m[1])
		}
	}
}

// TestRun_UntrustedSettingsRefused has files beside the program that others may
// have put there. Their settings could name commands.
func TestRun_UntrustedSettingsRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	program, err := filepath.Abs("bin/true")
	if err != nil {
		t.Fatal(err)
	}
	write(t, "bin/true", "#!/bin/sh\n")
	if err := os.Chmod(program, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		make       func(path string) error
	}{
		{"pipe", "it is not a regular file", func(path string) error { return syscall.Mkfifo(path, 0o600) }},
		{"link", "it is not a regular file", func(path string) error { return os.Symlink("/etc/passwd", path) }},
		{"open", "others may write it (mode 0666)", func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o666), os.Chmod(path, 0o666))
		}},
		{"another's", "it belongs to another user", func(path string) error {
			if os.Geteuid() != 0 {
				t.Skip("only root can give files away")
			}
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 12345, -1))
		}},
		{"list", "on-event has one value, not a list", func(path string) error {
			return os.WriteFile(path, []byte("on-event = [\"a\", \"b\"]\n"), 0o600)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := "bin/cairn.toml"
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(path)
			cairnRun(t, "run", "--run", "r", program).exit(exitUsage).complains("cairn.toml", c.want)
		})
	}
}
