//go:build linux

package serve

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// compat is a program written for FTI or VeloC, compiled with its MPI library.
type compat struct {
	launcher []string
	path     string
	dir      string // where it runs, with its configuration file
	config   string // … its name
	ranks    string
}

// compileCompat compiles testdata/NAME.c with lib/compat/NAME.c; for
// testdata/NAME_CASE.c, too.
func compileCompat(t *testing.T, name, library string) *compat {
	t.Helper()
	built := build(t)
	i := slices.IndexFunc(mpiLibraries, func(l mpiLibrary) bool { return l.name == library })
	lib := mpiLibraries[i]
	source, _, _ := strings.Cut(name, "_")
	c := &compat{launcher: slices.Clone(lib.launcher), path: filepath.Join(t.TempDir(), name), dir: t.TempDir(), config: "config", ranks: "2"}
	cmd := exec.Command(mustFind(t, lib.compiler), "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-I../../lib/compat", "-I../../lib", "-o", c.path,
		"testdata/"+name+".c", "../../lib/compat/"+source+".c", filepath.Join(built, "libcairn.a"), "-lpthread", "-ldl")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return c
}

// configure writes the configuration file.
func (c *compat) configure(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, "config"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// run starts the ranks, of which one kills itself in the given step ("18:1").
func (c *compat) run(t *testing.T, kill, steps, how string, env ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := program(t, "cairn")
	cmd.Path, cmd.Dir = mustFind(t, c.launcher[0]), c.dir
	cmd.Args = append(slices.Clone(c.launcher), "-n", c.ranks, c.path, c.config, steps, how)
	cmd.Env = append(append(cmd.Env, "KILL="+kill), env...)
	var text strings.Builder
	cmd.Stderr = &text
	out, err := cmd.Output()
	return string(out), text.String(), err
}

// survive runs the program undisturbed, then kills it in step 18, and starts it
// again. It must print the same, and have resumed at step 15.
func (c *compat) survive(t *testing.T, config, how string) {
	t.Helper()
	c.configure(t, config)
	want, stderr, err := c.run(t, "", "25", how)
	if err != nil || !strings.HasPrefix(want, "sum ") {
		t.Fatalf("%s: %v: %s\n%s", how, err, want, stderr)
	}
	c.dir = t.TempDir()
	c.configure(t, config)
	if out, stderr, err := c.run(t, "18:1", "25", how); err == nil {
		t.Fatalf("%s: it was not killed: %s\n%s", how, out, stderr)
	}
	got, stderr, err := c.run(t, "", "25", how)
	if err != nil || got != "resumed at step 15\n"+want {
		t.Errorf("%s: %v: %s, want %s\n%s", how, err, got, want, stderr)
	}
}

// loseBetween loses a helper between the first and the last call of an
// incremental checkpoint. The last call says that it is not saved: the program
// may have changed what it had added. The next one is saved.
func (c *compat) loseBetween(t *testing.T, config, how, says string) {
	t.Helper()
	want := ""
	for _, kill := range []string{"", "18:0"} {
		c.dir = t.TempDir()
		c.configure(t, config)
		out, stderr, err := c.run(t, kill, "25", how, "LOST=10:1")
		if (err != nil) != (kill != "") || strings.Count(stderr, "others have been started") != 1 || !strings.Contains(stderr, says) {
			t.Fatalf("%v: %s\n%s", err, out, stderr)
		}
		if want == "" {
			want = out
		}
	}
	if got, stderr, err := c.run(t, "", "25", how); err != nil || got != "resumed at step 15\n"+want {
		t.Errorf("%v: %s, want %s\n%s", err, got, want, stderr)
	}
}

const configFTI = "[Basic]\nHead = 0\nnode_size = 2 # per node\nckpt_dir = Local\nglbl_dir = \"Global\"\nckpt_L1 = 3\nkeep_last_ckpt = 0\n[Restart]\nfailure = 0\n"

// onlyLong skips a test of the long suite, and says which daily test is like
// it.
func onlyLong(t *testing.T, daily string) {
	t.Helper()
	if os.Getenv("CAIRN_LONG") == "" {
		t.Skip(daily + ": set CAIRN_LONG=1")
	}
}

// TestFTI_RankKilled kills a rank of a program written for FTI. It recovers all
// variables, one by one, or what incremental checkpoints hold.
func TestFTI_RankKilled(t *testing.T) {
	for library, ways := range map[string][]string{"openmpi": {"icp", "all"}, "mpich": {"var"}} {
		t.Run(library, func(t *testing.T) {
			if library == "mpich" && os.Getenv("CAIRN_LONG") == "" {
				t.Skip("VELOC's test uses MPICH every day: set CAIRN_LONG=1")
			}
			c := compileCompat(t, "fti", library)
			for i, how := range ways {
				if i > 0 && os.Getenv("CAIRN_LONG") == "" {
					break
				}
				c.survive(t, configFTI, how)
			}
		})
	}
}

// TestFTI_HelperLost kills a helper of a program written for FTI, which does
// not look at what FTI_Snapshot and FTI_Checkpoint return. They start others,
// and save; if they cannot, the program ends.
func TestFTI_HelperLost(t *testing.T) {
	c := compileCompat(t, "fti", "mpich")
	c.configure(t, configFTI)
	want, stderr, err := c.run(t, "", "25", "all")
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, want, stderr)
	}
	for how, resumed := range map[string]string{"snap": "10", "all": "15"} {
		c.dir = t.TempDir()
		c.configure(t, configFTI)
		if out, stderr, err := c.run(t, "18:0", "25", how, "LOST=10:1"); err == nil || strings.Count(stderr, "others have been started") != 1 {
			t.Errorf("%s: %v: %s\n%s", how, err, out, stderr)
		}
		if got, stderr, err := c.run(t, "", "25", how); err != nil || got != "resumed at step "+resumed+"\n"+want {
			t.Errorf("%s: %v: %s\n%s", how, err, got, stderr)
		}
	}
	c.loseBetween(t, configFTI, "icp", "FTI_FinalizeICP: checkpoint 2 is not saved: the helper that was lost had its variables")
	c.dir = t.TempDir()
	c.configure(t, configFTI)
	helper := filepath.Join(t.TempDir(), "cairn")
	if err := os.Link(filepath.Join(build(t), "cairn"), helper); err != nil {
		t.Skip(err)
	}
	out, stderr, err := c.run(t, "", "25", "snap", "LOST=10:1", "GONE=1", "CAIRN_HELPER="+helper)
	if err == nil || strings.Contains(out, "sum") || strings.Count(stderr, "it would continue without checkpoints; start it again") != 1 {
		t.Errorf("without another helper: %v: %s\n%s", err, out, stderr)
	}
}

// TestFTI_KeepLastCheckpoint ends the program with keep_last_ckpt: the next
// start resumes from the last checkpoint, if it has as many ranks, and one that
// keeps none starts over after it.
func TestFTI_KeepLastCheckpoint(t *testing.T) {
	onlyLong(t, "TestVELOC_RankKilled restores every day")
	c := compileCompat(t, "fti", "mpich")
	c.configure(t, strings.ReplaceAll(configFTI, "keep_last_ckpt = 0", "keep_last_ckpt = 1"))
	for _, want := range []string{"sum ", "resumed at step 10\n"} {
		if out, stderr, err := c.run(t, "", "12", "all"); err != nil || !strings.HasPrefix(out, want) {
			t.Fatalf("%v: %s, want %s\n%s", err, out, want, stderr)
		}
	}
	c.ranks = "3"
	if out, stderr, err := c.run(t, "", "12", "all"); err == nil || strings.Count(out, "FTI_Init returned -2") != 3 || !strings.Contains(stderr, "saved by a run of 2 ranks") {
		t.Errorf("with 3 ranks: %v: %s\n%s", err, out, stderr)
	}
	c.ranks = "2"
	c.configure(t, configFTI)
	for _, want := range []string{"resumed at step 10\n", "sum "} {
		if out, stderr, err := c.run(t, "", "12", "all"); err != nil || !strings.HasPrefix(out, want) {
			t.Fatalf("%v: %s, want %s\n%s", err, out, want, stderr)
		}
	}
}

// TestFTI_WrongConfiguration reads configuration files that say something
// wrong, or something that has no counterpart.
func TestFTI_WrongConfiguration(t *testing.T) {
	c := compileCompat(t, "fti", "mpich")
	for _, x := range []struct {
		config, says string
		fails        bool
	}{
		{"[Basic]\nckpt_dir = Local\n", "has no glbl_dir", true},
		{configFTI + "[Basic]\nckpt_l2 = often\n", "config, line 11: ckpt_l2 = often: a whole number", true},
		{configFTI + "head\n", `config, line 10: "head" is neither`, true},
		{configFTI + "[Basic]\nhead = 1\ninline_L4 = 0\nenable_staging = 1\n", "head = 1: all 2 processes compute", false},
	} {
		c.configure(t, x.config)
		out, stderr, err := c.run(t, "", "5", "all")
		if (err != nil) != x.fails || strings.Count(stderr, x.says) != 1 || x.fails && !strings.Contains(out, "FTI_Init returned -1") {
			t.Errorf("%s%v: %s\n%s, want once: %s", x.config, err, out, stderr, x.says)
		}
	}
}

// TestVELOC_RankKilled kills a rank of a program written for VeloC, which saves
// and recovers all regions or selected ones, and whose processes restart
// together or alone.
func TestVELOC_RankKilled(t *testing.T) {
	const config = "scratch = scratch\npersistent = persistent\nmax_versions = 3\nmode = "
	for library, ways := range map[string][]string{"openmpi": {"single sync", "all sync"}, "mpich": {"some async"}} {
		t.Run(library, func(t *testing.T) {
			if library == "openmpi" && os.Getenv("CAIRN_LONG") == "" {
				t.Skip("FTI's test uses Open MPI every day: set CAIRN_LONG=1")
			}
			c := compileCompat(t, "veloc", library)
			for i, way := range ways {
				if i > 0 && os.Getenv("CAIRN_LONG") == "" {
					break
				}
				how, mode, _ := strings.Cut(way, " ")
				c.survive(t, config+mode+"\n", how)
			}
		})
	}
}

// TestVELOC_HelperLost kills a helper of a program written for VeloC, while it
// may be writing a checkpoint, and before one. All calls succeed: other helpers
// are started. The configuration is in environment variables.
func TestVELOC_HelperLost(t *testing.T) {
	onlyLong(t, "TestFTI_HelperLost kills helpers every day")
	c := compileCompat(t, "veloc", "mpich")
	c.config = ""
	config := []string{"VELOC_SCRATCH=scratch", "VELOC_PERSISTENT=persistent", "VELOC_MAX_VERSIONS=3"}
	want := ""
	for _, way := range []string{"sync", "async 6:0", "sync 10:1"} {
		mode, lost, _ := strings.Cut(way, " ")
		c.dir = t.TempDir()
		got, stderr, err := c.run(t, "", "25", "all", append(config, "VELOC_MODE="+mode, "LOST="+lost)...)
		if want == "" {
			want = got
		}
		if err != nil || !strings.HasPrefix(got, "sum ") || got != want || strings.Contains(stderr, "others have been started") != (lost != "") {
			t.Errorf("%s: %v: %s, want %s\n%s", way, err, got, want, stderr)
		}
	}
	c.config = "config"
	c.loseBetween(t, "scratch = scratch\npersistent = persistent\nmax_versions = 3\nmode = async\n", "some", "VELOC_Checkpoint_end: version 10 of walk: ")
}

// TestCompat_ManyVariables protects as many variables as FTI has ids for. The
// time is proportional to their number.
func TestCompat_ManyVariables(t *testing.T) {
	for name, config := range map[string]string{"fti_many": configFTI, "veloc_many": "scratch = scratch\nmode = sync\n"} {
		c := compileCompat(t, name, "mpich")
		c.configure(t, config)
		cmd := program(t, "cairn")
		cmd.Path, cmd.Dir, cmd.Args = c.path, c.dir, []string{c.path, c.config}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestVELOC_Supervised runs programs that call VELOC_Init_single under 'cairn
// run'. One process alone is supervised: it is restarted while it makes
// progress. Several processes are independent: 'cairn run' sees no checkpoints
// of them.
func TestVELOC_Supervised(t *testing.T) {
	const config = "scratch = scratch\npersistent = persistent\nmax_versions = 3\nmode = sync\n"
	alone := compileCompat(t, "veloc_alone", "mpich")
	alone.configure(t, config)
	walk := compileCompat(t, "veloc", "mpich")
	walk.configure(t, config)
	for _, x := range []struct {
		c    *compat
		args []string
		want string
		sees bool
	}{
		{alone, []string{alone.path, "config", "13"}, steps(13), true},
		{walk, append(slices.Clone(walk.launcher), "-n", "2", walk.path, "config", "25", "single"), "sum ", false},
	} {
		cmd := program(t, "cairn", append([]string{"run", "--run", filepath.Join(t.TempDir(), "run")}, x.args...)...)
		cmd.Dir = x.c.dir
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil || !strings.HasPrefix(string(out), x.want) || strings.Contains(stderr.String(), "committed") != x.sees || strings.Contains(stderr.String(), "has not reported") {
			t.Errorf("%v: %v: %s\n%s", cmd.Args, err, out, stderr.String())
		}
	}
}

// TestVELOC_WrongConfiguration reads configuration files that say something
// wrong.
func TestVELOC_WrongConfiguration(t *testing.T) {
	onlyLong(t, "TestFTI_WrongConfiguration reads a configuration every day")
	c := compileCompat(t, "veloc", "mpich")
	for config, want := range map[string]string{
		"scratch = s\n": "mode = : sync or async is needed",
		"mode = sync\n": "has no scratch",
		"mode = sync\nscratch = s\nmax_versions = x\n": "max_versions = x: a whole number",
	} {
		c.configure(t, config)
		if out, stderr, err := c.run(t, "", "5", "all"); err == nil || strings.Count(stderr, want) != 1 || !strings.Contains(out, "VELOC_Init failed") {
			t.Errorf("%s%v: %s\n%s, want once: %s", config, err, out, stderr, want)
		}
	}
}

// TestInstall_Compat compiles a program written for FTI as its documentation
// says: with pkg-config, and with -lfti. The program is compiled as C++, too.
func TestInstall_Compat(t *testing.T) {
	built := build(t)
	mpicc := mustFind(t, "mpicc.openmpi")
	mustFind(t, "pkg-config")
	prefix := t.TempDir()
	for _, args := range [][]string{{"install"}, {"compat", "MPICC=" + mpicc}} {
		args = append([]string{"-s", "-C", "../../lib", "BUILD=" + built, "PREFIX=" + prefix, "CFLAGS=-O1 -g -Werror"}, args...)
		if out, err := exec.Command("make", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for _, name := range []string{"fti", "veloc"} {
		flags := exec.Command("pkg-config", "--cflags", "--libs", "cairn-"+name)
		flags.Env = append(os.Environ(), "PKG_CONFIG_PATH="+filepath.Join(prefix, "lib/pkgconfig"))
		list, err := flags.Output()
		if err != nil {
			t.Fatal(err)
		}
		library := map[string]string{"fti": "-lfti", "veloc": "-lveloc-client"}[name]
		file := "lib" + library[2:] + ".so"
		f, err := elf.Open(filepath.Join(prefix, "lib", file))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if soname, err := f.DynString(elf.DT_SONAME); err != nil || !slices.Equal(soname, []string{file}) { // ctypes.util.find_library needs it
			t.Errorf("%s: %v: soname %q", file, err, soname)
		}
		for _, args := range [][]string{
			strings.Fields(string(list)),
			{"-I" + prefix + "/include", "-L" + prefix + "/lib", library},
		} {
			args = append([]string{"-o", filepath.Join(t.TempDir(), name), "testdata/" + name + ".c"}, args...)
			if out, err := exec.Command(mpicc, args...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", args, err, out)
			}
		}
		args := append([]string{"-o", filepath.Join(t.TempDir(), name), "-x", "c++", "testdata/" + name + ".c"}, strings.Fields(string(list))...)
		if out, err := exec.Command(mustFind(t, "mpicxx.openmpi"), args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
}
