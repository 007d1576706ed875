package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang"
	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/vfs"
)

// build builds the program if the command names source, and makes the command
// name the result. build is nil if the command names a program.
func (r *runFlags) build(ctx context.Context, c *call) (*golang.Made, error) {
	o := &r.o
	n := sourceArgs(o.Command)
	if n == 0 {
		if r.sourceFlags {
			return nil, usagef("run: %s is a program; --tags, --take, --cpuprofile and --go-flags need source", o.Command[0])
		}
		if r.changedSource {
			return nil, usagef("run: %s is a program; --changed-source needs source", o.Command[0])
		}
		return nil, nil
	}
	patterns := slices.Clone(o.Command[:n])
	if st, err := os.Stat(patterns[0]); err == nil && st.IsDir() && !filepath.IsAbs(patterns[0]) && !strings.HasPrefix(patterns[0], ".") {
		patterns[0] = "." + string(filepath.Separator) + patterns[0] // and no import path
	}
	forRanks(&r.makeOptions, o.Ranks)
	made, err := makeProgram(ctx, c, patterns, r.makeOptions)
	if err != nil {
		return nil, err
	}
	o.Run = cmp.Or(o.Run, strings.TrimSuffix(made.Name, filepath.Ext(made.Name))+".cairn")
	program := r.program(made, o.Run)
	o.Command = append([]string{program}, dropDashes(o.Command[n:])...)
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		// The supervisor needs the file. If another process runs, it
		// exists.
		return made, elsewhere(r.copy(made, program), otherRun)
	}
	_, err = r.fits(ctx, made, o.Run)
	return made, err
}

// program returns the path of a built program in the run directory. All
// versions of the source have the same path, so the run's command does not
// change.
func (*runFlags) program(made *golang.Made, run string) string {
	return filepath.Join(run, "bin", made.Name)
}

// fits checks that the checkpoints of a run that resumes belong to the same
// source: places in other source may mean something else. With --changed-source
// only what the checkpoints hold must be the same; then fits returns what has
// changed.
func (r *runFlags) fits(ctx context.Context, made *golang.Made, run string) (note string, err error) {
	old, err := readSource(r.program(made, run) + ".source")
	if errors.Is(err, fs.ErrNotExist) || r.o.Fresh {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if old.Digest == made.Source.Digest {
		return "", nil
	}
	st, err := client.Read(ctx, run)
	if err != nil {
		return "", err
	}
	if st.State == rundir.Finished || st.State == rundir.Finishing || st.Last == nil {
		return "", nil
	}
	change := sourceChange(old, made.Source)
	remedy := "bring the old source back, or start over with --fresh"
	switch conflicts := old.Conflicts(made.Source); {
	case len(old.Resumable) == 0:
	case len(conflicts) > 0 && r.changedSource:
		change += fmt.Sprintf(", and with it what the checkpoint may hold: %s", strings.Join(few(conflicts), ", "))
	case len(conflicts) == 0 && r.changedSource:
		return change, nil
	case len(conflicts) == 0:
		remedy = "bring the old source back, resume with --changed-source (nothing that the checkpoint holds has changed), or start over with --fresh"
	default:
		remedy += fmt.Sprintf(" (--changed-source does not help: the checkpoint may hold %s)", strings.Join(few(conflicts), ", "))
	}
	return "", fmt.Errorf("%s: cannot resume from checkpoint %d: %s; %s", run, st.Last.Index, change, remedy)
}

// few returns the first names of a list.
func few(names []string) []string {
	const most = 5
	if n := len(names) - most; n > 0 {
		return append(names[:most:most], fmt.Sprintf("%d more", n))
	}
	return names
}

// sourceChange says how the source of a program has changed.
func sourceChange(old, now *golang.Source) string {
	if len(old.Files) == 0 {
		return "the program's source has changed since"
	}
	files := golang.Changed(old.Files, now.Files)
	if len(files) == 0 {
		return "the program's source has not changed since, but it was built by another version of Cairn, or with other flags"
	}
	return "the program's source has changed since: " + strings.Join(few(files), ", ")
}

// readSource reads the description of the source that a run's program was built
// from: the digest, and a line of JSON.
func readSource(name string) (*golang.Source, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	digest, rest, _ := strings.Cut(string(text), "\n")
	s := new(golang.Source)
	if json.Unmarshal([]byte(rest), s) != nil {
		s = new(golang.Source) // the digest decides
	}
	s.Digest = strings.TrimSpace(digest)
	return s, nil
}

func writeSource(name string, s *golang.Source) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(name, fmt.Appendf(nil, "%s\n%s\n", s.Digest, text), 0o600)
}

// place puts a built program into the run directory, which is locked.
func (r *runFlags) place(ctx context.Context, c *call, made *golang.Made, run string) error {
	note, err := r.fits(ctx, made, run) // another run may have ended just now
	if err != nil {
		return err
	}
	if note != "" {
		fmt.Fprintf(c.stderr, "cairn: %s: resuming with --changed-source: %s\n", run, note)
	}
	program := r.program(made, run)
	err = r.copy(made, program)
	if err == nil {
		err = writeSource(program+".source", made.Source)
	}
	return elsewhere(err, otherRun)
}

// copy puts a built program into the run directory, which must be the user's.
func (r *runFlags) copy(made *golang.Made, program string) error {
	bin := filepath.Dir(program)
	if err := vfs.MakeDir(filepath.Dir(bin), vfs.AccessFromEnv().With(r.o.Group, r.o.AnyOwner)); err != nil {
		return err
	}
	if err := vfs.SubDir(bin); err != nil {
		return err
	}
	for _, name := range []string{program, program + ".source"} {
		if err := vfs.NoLink(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return made.Copy(program)
}

// sourceArgs returns how many words of a command name Go source: files, a
// directory of them, or an import path; 0 if it is a program.
func sourceArgs(command []string) int {
	n := 0
	for n < len(command) && strings.HasSuffix(command[n], ".go") {
		n++
	}
	if n > 0 {
		return n
	}
	first := command[0]
	if st, err := os.Stat(first); err == nil && st.IsDir() {
		if found, _ := filepath.Glob(filepath.Join(vfs.QuoteGlob(first), "*.go")); len(found) > 0 {
			return 1
		}
		return 0
	} else if err == nil {
		return 0
	}
	if _, err := exec.LookPath(first); err == nil {
		return 0
	}
	if strings.Contains(first, "/") && !filepath.IsAbs(first) && !strings.HasPrefix(first, ".") {
		return 1
	}
	return 0
}

func dropDashes(args []string) []string {
	if len(args) > 0 && args[0] == "--" {
		return args[1:]
	}
	return args
}
