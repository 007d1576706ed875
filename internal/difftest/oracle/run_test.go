//go:build linux

package oracle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// One start of a program may take this many seconds of processor time, which
// does not depend on the load of the machine. The other bound ends a program
// that waits forever.
const processorSeconds = 60

var patience = 10 * time.Minute

// outcome is what a run of a program leaves behind.
type outcome struct {
	Stdout, Stderr string
	Exit           int // exit status, or -N for signal N
	Files          map[string]string

	kills int
	took  time.Duration // processor time of the last start
	said  []string      // Cairn's messages on stderr
}

var (
	errSlow  = fmt.Errorf("it takes longer than %d seconds of a processor", processorSeconds)
	errHangs = errors.New("it does not end")
)

// start runs a program once in the directory cwd below work. Its output is
// appended to two files there. start returns the exit status, or -N if the
// program died of signal N. took is set to the processor time.
func (p *program) start(work, binary string, env []string, took *time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	limited := fmt.Sprintf(`ulimit -t %d && exec "$0" "$@"`, processorSeconds) // then SIGKILL; Go ignores SIGXCPU
	cmd := exec.CommandContext(ctx, "/bin/sh", slices.Concat([]string{"-c", limited, binary}, p.args)...)
	cmd.Dir = filepath.Join(work, "cwd")
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	stdout, err := os.OpenFile(filepath.Join(work, "stdout"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return 0, err
	}
	defer stdout.Close()
	stderr, err := os.OpenFile(filepath.Join(work, "stderr"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return 0, err
	}
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if p.stdin != "" {
		stdin, err := os.Open(filepath.Join(cmd.Dir, p.stdin))
		if err != nil {
			return 0, err
		}
		defer stdin.Close()
		cmd.Stdin = stdin
	}
	err = cmd.Run()
	if ctx.Err() != nil {
		return 0, errHangs
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	*took = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() && *took >= processorSeconds*time.Second {
		return 0, errSlow
	}
	if status.Signaled() {
		return -int(status.Signal()), nil
	}
	return status.ExitStatus(), nil
}

// run runs the program in a new directory, and starts it again as long as it
// kills itself. It keeps checkpoints if env says when.
func (p *program) run(work, binary string, env ...string) (*outcome, error) {
	return p.runAgain(work, binary, env, env)
}

// runAgain is run with another environment for the starts after the first.
func (p *program) runAgain(work, binary string, env, again []string) (*outcome, error) {
	if err := os.MkdirAll(work, 0o777); err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	cwd := filepath.Join(work, "cwd")
	if p.in == "" {
		if err := os.Mkdir(cwd, 0o777); err != nil {
			return nil, err
		}
	} else if err := os.CopyFS(cwd, os.DirFS(p.in)); err != nil {
		return nil, err
	}
	if len(env) > 0 {
		dir := "CAIRN_DIR=" + filepath.Join(work, "checkpoints")
		env, again = append(slices.Clip(env), dir), append(slices.Clip(again), dir)
	}
	o := &outcome{}
	for {
		exit, err := p.start(work, binary, env, &o.took)
		if err != nil {
			return o, err
		}
		if o.Exit = exit; exit != -int(syscall.SIGKILL) {
			break
		}
		if o.kills++; o.kills > 1000 {
			return nil, errors.New("killed 1000 times")
		}
		env = again
	}
	for name, to := range map[string]*string{"stdout": &o.Stdout, "stderr": &o.Stderr} {
		text, err := os.ReadFile(filepath.Join(work, name))
		if err != nil {
			return nil, err
		}
		*to = string(text)
	}
	var err error
	if o.Files, err = readFiles(cwd); err != nil {
		return nil, err
	}
	o.normalise()
	return o, nil
}

var (
	addresses = regexp.MustCompile(`0x(c0[0-9a-f]{8}|[0-9a-f]{6,12})\b`)
	durations = regexp.MustCompile(`\b\d+(\.\d+)?(ns|µs|ms|s)\b`)
	logTimes  = regexp.MustCompile(`\b\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\b`)
)

// normalise removes what depends on the build or the process: addresses of
// variables, traces of goroutines, which name functions that Cairn adds, and
// Cairn's own messages.
func (o *outcome) normalise() {
	var rest strings.Builder
	for line := range strings.Lines(o.Stderr) {
		if said, ok := strings.CutPrefix(line, "cairn: "); ok {
			o.said = append(o.said, strings.TrimSpace(said))
		} else {
			rest.WriteString(line)
		}
	}
	o.Stderr = rest.String()
	if o.Exit == 2 || o.Exit < 0 {
		for _, head := range []string{"\ngoroutine ", "\nruntime stack:", "[signal "} {
			if i := strings.Index(o.Stderr, head); i >= 0 {
				o.Stderr = o.Stderr[:i]
			}
		}
	}
	for _, s := range []*string{&o.Stdout, &o.Stderr} {
		*s = addresses.ReplaceAllString(*s, "0xADDRESS")
		*s = durations.ReplaceAllString(*s, "DURATION")
		*s = logTimes.ReplaceAllString(*s, "TIME")
	}
}

// readFiles returns the contents of all files in a directory; directories end
// in /.
func readFiles(dir string) (map[string]string, error) {
	files := make(map[string]string)
	return files, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		switch {
		case e.IsDir():
			files[rel+"/"] = ""
		case e.Type().IsRegular():
			text, err := os.ReadFile(path)
			files[rel] = string(text)
			return err
		default:
			files[rel] = e.Type().String()
		}
		return nil
	})
}

// differs describes how o differs from another outcome, or returns "".
func (o *outcome) differs(from *outcome) string {
	switch {
	case o.Exit != from.Exit:
		return fmt.Sprintf("exit status %d, plain %d; stderr: %.300s", o.Exit, from.Exit, strings.TrimSpace(o.Stderr))
	case o.Stdout != from.Stdout:
		return "stdout: " + firstDifference(o.Stdout, from.Stdout)
	case o.Stderr != from.Stderr:
		return "stderr: " + firstDifference(o.Stderr, from.Stderr)
	}
	for name, want := range from.Files {
		if got, ok := o.Files[name]; !ok {
			return "file " + name + " is missing"
		} else if got != want {
			return "file " + name + ": " + firstDifference(got, want)
		}
	}
	for name := range o.Files {
		if _, ok := from.Files[name]; !ok {
			return "there is a file " + name + ", which the plain program does not leave"
		}
	}
	return ""
}

// firstDifference describes the first line in which two texts differ.
func firstDifference(got, want string) string {
	g, w := strings.SplitAfter(got, "\n"), strings.SplitAfter(want, "\n")
	for i := range max(len(g), len(w)) {
		a, b := "the end", "the end"
		if i < len(g) && g[i] != "" {
			a = strconv.Quote(g[i])
		}
		if i < len(w) && w[i] != "" {
			b = strconv.Quote(w[i])
		}
		if a != b {
			return fmt.Sprintf("line %d: %.300s, plain %.300s", i+1, a, b)
		}
	}
	return "the same"
}

// unsaved reports whether the program ended because it had to be killed at a
// point that Cairn cannot save.
func (o *outcome) unsaved() bool {
	return o.Exit == 1 && len(o.said) > 0 && strings.Contains(o.said[len(o.said)-1], "CAIRN_KILL_AT: checkpoint not saved: ")
}

// killPoints lists points to kill at. Each is later than the one before by at
// least a factor.
func killPoints(factor float64) (points []string) {
	for n := int64(1); n < 1e10; n = max(n+1, int64(float64(n)*factor)) {
		points = append(points, strconv.FormatInt(n, 10))
	}
	return points
}
