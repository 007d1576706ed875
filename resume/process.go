package resume

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/graph"
)

// process is what a program has changed in its process.
type process struct {
	Env  map[string]*string // variables that were set; nil: unset
	Dir  string             // its working directory, if it is not that of the start; relative to that, if it is below
	In   int64              // bytes read from stdin, if that is a file
	Slog *slog.Logger       // slog.Default, if it was set

	Flags  *flag.FlagSet     // flag.CommandLine, if it can be saved
	Given  map[string]string // flags of the command line whose variables are not saved
	Parsed bool
	Args   []string

	Calls []repeatedCall
}

// start is the state in which the process was started.
var start startState

type startState struct {
	env  map[string]string
	full []string // the whole environment
	dir  string
	args []string
	slog *slog.Logger
}

func environment() map[string]string {
	m := make(map[string]string)
	for _, e := range os.Environ() {
		if k, v, ok := strings.Cut(e, "="); ok && k != "" && !strings.HasPrefix(k, "CAIRN_") {
			m[k] = v
		}
	}
	return m
}

func (o *startState) note() {
	o.env, o.slog = environment(), slog.Default()
	o.args = slices.Clone(os.Args[min(1, len(os.Args)):])
	o.dir, _ = os.Getwd()
}

// rel returns a path relative to the directory of the start; "" if it is not
// below. A run can be moved or copied together with that directory.
func (o *startState) rel(path string) string {
	rel, err := filepath.Rel(o.dir, path)
	if err != nil || !filepath.IsLocal(rel) {
		return ""
	}
	return rel
}

// moved returns the working directory, if it is not that of the start.
func (o *startState) moved() string {
	if dir, err := os.Getwd(); err == nil && dir != o.dir {
		return dir
	}
	return ""
}

// note records what differs from the start.
func (p *process) note() {
	dir := start.moved()
	*p = process{Dir: cmp.Or(start.rel(dir), dir), In: stdinPosition(), Calls: repeatedCalls()}
	if now := environment(); !maps.Equal(now, start.env) {
		p.Env = make(map[string]*string)
		for k, v := range now {
			if old, ok := start.env[k]; !ok || old != v {
				p.Env[k] = &v
			}
		}
		for k := range start.env {
			if _, ok := now[k]; !ok {
				p.Env[k] = nil
			}
		}
	}
	if l := slog.Default(); l != start.slog {
		p.Slog = l
	}
	p.noteFlags()
}

// restore makes the same changes to this process.
func (p *process) restore() error {
	randomNow.Store(nil) // it was restored
	repeat(p.Calls)
	for k, v := range p.Env {
		err := error(nil)
		if v != nil {
			err = os.Setenv(k, *v)
		} else {
			err = os.Unsetenv(k)
		}
		if err != nil {
			return fmt.Errorf("environment variable %s: %w", k, err)
		}
	}
	if p.Dir != "" {
		dir := p.Dir
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(start.dir, dir)
		}
		if err := os.Chdir(dir); err != nil {
			return fmt.Errorf("cannot change to the working directory of the checkpoint: %w", err)
		}
	}
	if p.In > 0 {
		if _, err := control.StdinFile.Seek(p.In, io.SeekStart); err != nil {
			return fmt.Errorf("cannot skip the %d bytes of stdin that were read before the checkpoint: %w; give the program the same file again", p.In, err)
		}
	}
	if p.Slog != nil {
		out, flags, prefix := log.Writer(), log.Flags(), log.Prefix() // they are restored, but SetDefault changes them
		slog.SetDefault(p.Slog)
		log.SetOutput(out)
		log.SetFlags(flags)
		log.SetPrefix(prefix)
	}
	err := p.restoreFlags()
	*p = process{}
	return err
}

// protectStandard adds variables of the standard library to the state.
func protectStandard() {
	Global("log.Default", log.Default())
	Global("os.Args", &os.Args)
	Global("math/rand.Seed", &random)
}

// noteFlags records the flags of the command line. If a flag's value cannot be
// saved, only the remaining arguments are recorded.
func (p *process) noteFlags() {
	set := flag.CommandLine
	p.Parsed, p.Args = set.Parsed(), set.Args()
	if graph.Check(graph.Root{Name: "flag.CommandLine", Ptr: &set}, nil) != nil {
		return
	}
	p.Flags = set
	set.Visit(func(f *flag.Flag) {
		if notInState(f.Value) {
			if p.Given == nil {
				p.Given = make(map[string]string)
			}
			p.Given[f.Name] = f.Value.String()
		}
	})
}

// restoreFlags restores the flags.
func (p *process) restoreFlags() error {
	set := flag.CommandLine
	if p.Flags == nil {
		assign(set, "parsed", p.Parsed)
		assign(set, "args", p.Args)
		return nil
	}
	var err error
	set.VisitAll(func(f *flag.Flag) {
		was := p.Flags.Lookup(f.Name)
		if was == nil || !notInState(f.Value) {
			return
		}
		if text, ok := p.Given[f.Name]; ok {
			if e := f.Value.Set(text); e != nil {
				err = errors.Join(err, fmt.Errorf("flag -%s=%q: %w", f.Name, text, e))
			}
		}
		was.Value = f.Value
	})
	flag.CommandLine = p.Flags
	return err
}

// notInState reports whether a flag's value is a package variable that is not
// part of the state. Each start initializes such variables, and the flag has to
// be set again.
func notInState(v flag.Value) bool {
	r := reflect.ValueOf(v)
	if r.Kind() != reflect.Pointer || !graph.InProgram(r.UnsafePointer()) {
		return false
	}
	at := r.Pointer()
	return !slices.ContainsFunc(globals, func(g global) bool { return at >= g.lo && at < g.hi })
}

// assign sets an unexported field of a flag set.
func assign[T any](set *flag.FlagSet, name string, v T) {
	f := reflect.ValueOf(set).Elem().FieldByName(name)
	if f.IsValid() && f.Type() == reflect.TypeFor[T]() {
		*(*T)(unsafe.Pointer(f.UnsafeAddr())) = v
	}
}

// stdinPosition is the position in stdin, if that is a regular file.
func stdinPosition() int64 {
	if st, err := control.StdinFile.Stat(); err != nil || !st.Mode().IsRegular() {
		return 0
	}
	at, err := control.StdinFile.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0
	}
	return at
}

// inputMark is in the binary of a program that reads stdin: the supervisor
// looks for it.
var inputMark string

// ReadsInput says, from init, that the program reads stdin: 'cairn run' then
// keeps what it reads from a pipe.
func ReadsInput() { inputMark = control.InputMark }
