package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/pflag"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/engine"
)

// settingsFile has values for flags of 'cairn run', beside the program.
const settingsFile = "cairn.toml"

// flagOnly are flags that discard or change something once, or are about this call
// of the command. The environment and cairn.toml cannot set them.
var flagOnly = []string{"fresh", "changed-source", "changed-args", "from", "detach", "help", "json", "quiet", "verbose", "cpuprofile"}

// declareLibrary declares the flags for options of the library.
func declareLibrary(f *pflag.FlagSet) {
	f.String("every", "", "take a checkpoint every `DURATION`, such as 10m (default: the optimum for its cost)")
	f.String("every-points", "", "take a checkpoint every `N` points")
	f.String("mtbf", "", "mean time between failures, for the optimal interval: `DURATION` (default 24h)")
	f.String("keep", "", "keep the newest `N` checkpoints (default 2)")
	f.String("disk-limit", "", "remove the oldest checkpoints if all of them take more than `SIZE`, such as 200G; the newest one stays")
	f.String("memory", "", "use at most `SIZE` of memory for copies of changed blocks (default: the size of the state)")
	f.String("compression", "", "compress checkpoints: `METHOD` is none, zstd or gzip (default none)")
	f.String("bases", "", "a differential checkpoint needs at most `N` older files (default 64); 0: all checkpoints are full")
	f.String("tracking", "", "let the kernel track written pages: `true` or false (default true)")
}

// settle completes the flags: those that were not given come from the environment
// (CAIRN_KEEP for --keep), and then from cairn.toml beside the program. It returns
// all that were set, and where each came from.
func settle(f *pflag.FlagSet, program string) (list []control.Setting, err error) {
	file, path, err := readSettings(program)
	if err != nil {
		return nil, err
	}
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
			from, by = control.FromFile, path+": "+flag.Name
			err = f.Set(flag.Name, value)
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
		list = append(list, control.Setting{Name: flag.Name, Value: value, From: from})
	})
	if err != nil {
		return nil, err
	}
	for name := range file {
		if !known[name] {
			var names []string
			for k := range known {
				names = append(names, k)
			}
			if slices.Contains(flagOnly, name) {
				return nil, usagef("run: %s: %s can only be given on the command line", path, name)
			}
			return nil, usagef("run: %s: there is no setting %q%s; the settings are the flags of 'cairn run', without dashes", path, name, suggest(name, names, ""))
		}
	}
	return list, nil
}

// readSettings reads cairn.toml beside the program or its source, if there is one.
func readSettings(program string) (values map[string]string, path string, err error) {
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
	values = make(map[string]string)
	for name, v := range doc {
		switch v := v.(type) {
		case string, int64, bool, float64:
			values[name] = fmt.Sprint(v)
		case []any:
			if name != "hosts" && name != "tiers" && name != "transport" {
				return nil, path, usagef("run: %s: %s has one value, not a list", path, name)
			}
			var items []string
			for _, x := range v {
				items = append(items, fmt.Sprint(x))
			}
			values[name] = strings.Join(items, ",")
		default:
			return nil, path, usagef("run: %s: %s is a table; settings stand at the top: %s = …", path, name, "keep")
		}
	}
	return values, path, nil
}

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
