package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/pflag"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/engine"
)

// settingsFile has values for flags of 'cairn run', beside the program.
const settingsFile = "cairn.toml"

// flagOnly are flags that discard or change something once, or are about this
// call of the command. The environment and cairn.toml cannot set them.
var flagOnly = []string{"fresh", "changed-source", "changed-args", "from", "detach", "help", "json", "quiet", "verbose", "cpuprofile"}

// declareLibrary declares the flags for options of the library.
func declareLibrary(f *pflag.FlagSet) {
	f.String("every", "", "take a checkpoint every `DURATION`, such as 10m; auto: at the optimum for its cost (the default)")
	f.String("every-points", "", "take a checkpoint every `N` points")
	f.String("mtbf", "", "mean time between failures, for the optimal interval: `DURATION` (default 24h)")
	f.String("keep", "", "keep the newest `N` checkpoints (default 2)")
	f.String("disk-limit", "", "remove the oldest checkpoints if all of them take more than `SIZE`, such as 200G; the newest one stays")
	f.String("memory", "", "use at most `SIZE` of memory for copies of changed blocks (default: the size of the state)")
	f.String("compression", "", "compress checkpoints: `METHOD` is none, zstd or gzip (default none)")
	f.String("bases", "", "a differential checkpoint needs at most `N` older files (default 64); 0: all checkpoints are full")
	f.String("tracking", "", "let the kernel track written pages: `true` or false (default true)")
}

// settings are the flags that were set, and where each came from.
type settings struct {
	list   []control.Setting
	places map[string]string // of those that were not given as flags: CAIRN_KEEP, or sim/cairn.toml:3: keep
}

// settle completes the flags: those that were not given come from the
// environment (CAIRN_KEEP for --keep), and then from cairn.toml beside the
// program.
func settle(f *pflag.FlagSet, program string) (s settings, err error) {
	file, path, err := readSettings(program)
	if err != nil {
		return s, err
	}
	s.places = make(map[string]string)
	known := make(map[string]bool)
	f.VisitAll(func(flag *pflag.Flag) {
		if err != nil || slices.Contains(flagOnly, flag.Name) {
			return
		}
		known[flag.Name] = true
		from, by := "", "--"+flag.Name
		switch value, ok := file[flag.Name]; {
		case flag.Changed:
			from = control.FromFlag
		case os.Getenv(control.SettingVariable(flag.Name)) != "" && flag.Name != "grace": // CAIRN_GRACE is the scheduler's time
			from, by = control.FromEnvironment, control.SettingVariable(flag.Name)
			err = f.Set(flag.Name, os.Getenv(by))
		case ok:
			from, by = control.FromFile, value.place(path, flag.Name)
			err = f.Set(flag.Name, value.text)
		default:
			return
		}
		value := flag.Value.String()
		if err == nil && slices.Contains(engine.Settings(), flag.Name) && (value != "" || from == control.FromFlag) {
			err = engine.CheckSetting(flag.Name, value)
		}
		if err != nil {
			err = usagef("run: %s: %v", by, err)
			return
		}
		s.list = append(s.list, control.Setting{Name: flag.Name, Value: value, From: from})
		if from != control.FromFlag {
			s.places[flag.Name] = by
		}
	})
	if err != nil {
		return s, err
	}
	for name, v := range file {
		if !known[name] {
			if slices.Contains(flagOnly, name) {
				return s, usagef("run: %s can only be given on the command line", v.place(path, name))
			}
			return s, usagef("run: %s: there is no such setting%s; the settings are the flags of 'cairn run', without dashes", v.place(path, name), suggest(name, slices.Collect(maps.Keys(known)), ""))
		}
	}
	return s, nil
}

// name replaces flags in the text of a usage error by what they came from, if
// nobody has typed them.
func (s *settings) name(err error) error {
	var u usageError
	if !errors.As(err, &u) || len(s.places) == 0 {
		return err
	}
	return usageError(flagNames.ReplaceAllStringFunc(string(u), func(flag string) string {
		return cmp.Or(s.places[longNames[flag]], s.places[strings.TrimLeft(flag, "-")], flag)
	}))
}

var (
	flagNames = regexp.MustCompile(`\B--?[a-z][a-z-]*`)
	longNames = map[string]string{"-n": "ranks", "-o": "output"}
)

// fileValue is a value in a cairn.toml.
type fileValue struct {
	text string
	line int // 0: not known
}

// place says where a setting stands.
func (v *fileValue) place(path, name string) string {
	if v.line > 0 {
		path = fmt.Sprintf("%s:%d", path, v.line)
	}
	return path + ": " + name
}

// readSettings reads cairn.toml beside the program or its source, if there is
// one.
func readSettings(program string) (values map[string]fileValue, path string, err error) {
	if !strings.Contains(program, "/") {
		if found, err := exec.LookPath(program); err == nil {
			program = found
		}
	}
	dir := program
	if st, err := os.Stat(program); err != nil || !st.IsDir() {
		dir = filepath.Dir(program)
	}
	path = filepath.Join(dir, settingsFile)
	st, err := os.Lstat(path)
	if err != nil { // there is none, or the program's directory is not ours to read
		return nil, path, nil
	}
	if err := trusted(st); err != nil {
		return nil, path, usagef("run: %s: %v; its settings can name commands, so it must be a file of yours that nobody else can write", path, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, path, usagef("run: %v", err)
	}
	var doc map[string]any
	if err := toml.Unmarshal(text, &doc); err != nil {
		var at toml.ParseError
		if errors.As(err, &at) {
			return nil, path, usagef("run: %s:%d: %s", path, at.Position.Line, at.Message)
		}
		return nil, path, usagef("run: %s: %v", path, err)
	}
	values = make(map[string]fileValue)
	for name, v := range doc {
		x := fileValue{line: lineOf(string(text), name)}
		switch v := v.(type) {
		case string, int64, bool, float64:
			x.text = fmt.Sprint(v)
		case []any:
			if name != "hosts" && name != "tiers" && name != "transport" {
				return nil, path, usagef("run: %s has one value, not a list", x.place(path, name))
			}
			var items []string
			for _, item := range v {
				items = append(items, fmt.Sprint(item))
			}
			x.text = strings.Join(items, ",")
		default:
			return nil, path, usagef("run: %s is a table; settings stand at the top: %s = …", x.place(path, name), "keep")
		}
		values[name] = x
	}
	return values, path, nil
}

// lineOf returns the line of a TOML file at whose beginning a key or table
// stands, or 0.
func lineOf(text, name string) int {
	key := regexp.MustCompile(`^\s*\[*\s*["']?` + regexp.QuoteMeta(name) + `["']?\s*[]=.]`)
	for i, line := range strings.Split(text, "\n") {
		if key.MatchString(line) {
			return i + 1
		}
	}
	return 0
}

// otherVariables are the variables of Cairn that are no settings: those of
// docs/cli.md, those that Cairn sets for processes that it starts, and those of
// its tests.
var otherVariables = strings.Fields(`
	ANY_OWNER CHANGED_ARGS DEVICES DIR FRESH GRACE GROUP HELPER JOB KEEP_DEVICES LIBMPI LIBRARY OUTSIDE_FILES SAVE_ALL SYNC
	CHANGED_INPUT CONTROL DETACHED EVENT EVENT_RUN EVENT_TEXT MPI_JOIN PROXY RANK SECRET SHELL SIZE STAY SUPERVISOR WRITER
	CLOCK_JUMPS FAKE_CUDA FAULTS_CASE KILL_AT KILL_RANK LONG LOSE_DEVICE PICTURES SEED STEP STEP_LOG`)

// sayVariables says which variables of the environment look like settings and
// are none.
func (c *call) sayVariables(f *pflag.FlagSet, environ []string) {
	var names []string
	f.VisitAll(func(flag *pflag.Flag) {
		names = append(names, strings.TrimPrefix(control.SettingVariable(flag.Name), variablePrefix))
	})
	for _, e := range environ {
		variable, _, _ := strings.Cut(e, "=")
		name, ok := strings.CutPrefix(variable, variablePrefix)
		flag := strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		switch {
		case !ok || c.quiet || slices.Contains(otherVariables, name) || strings.HasPrefix(name, "TEST_"):
		case slices.Contains(flagOnly, flag):
			fmt.Fprintf(c.stderr, "cairn: %s is ignored: --%s can only be given on the command line\n", variable, flag)
		case !slices.Contains(names, name):
			fmt.Fprintf(c.stderr, "cairn: %s is ignored: there is no such variable%s\n", variable, suggest(name, names, variablePrefix))
		}
	}
}

const variablePrefix = "CAIRN_"

// sayFile says which settings come from a file: nobody has typed them.
func (c *call) sayFile(list []control.Setting) {
	var names []string
	for _, s := range list {
		if s.From == control.FromFile {
			names = append(names, s.Name)
		}
	}
	if len(names) > 0 && !c.quiet {
		fmt.Fprintf(c.stderr, "cairn: %s beside the program sets %s\n", settingsFile, strings.Join(names, ", "))
	}
}
