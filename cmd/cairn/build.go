package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cairnrun/cairn/internal/compiler/golang"
	"github.com/cairnrun/cairn/internal/compiler/golang/explain"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

func buildCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "build [flags] [PACKAGE]",
		Short: "build a Go program that can be restarted where it was",
		Long: `Builds a Go program as it is, without changes to its source: Cairn finds the
loops in which its work is done ('cairn explain' shows them), and builds it so
that checkpoints can be taken there and the program goes on from them. Nothing
in the source's folders is changed.
PACKAGE is as for go build: a folder, an import path or files, here if left out.
It must be one program. The go command is needed, of version 1.26 or newer.

The program runs as the plain one would; 'cairn run' saves it and brings it
back. 'cairn run PACKAGE' does both at once.`,
		Example: `  cairn build                                      # the program in this folder
  cairn build -o sim ./cmd/sim && cairn run ./sim  # build it, then run it
  cairn build --race --tags big ./sim              # with flags of go build`,
		Annotations:       map[string]string{exitCodes: sourceExits},
		Args:              takes(0, -1),
		ValidArgsFunction: completeSource,
	}
	f := cmd.Flags()
	var m makeFlags
	m.declare(f)
	ranks := f.IntP("ranks", "n", 0, "ranks of the run, `N`, if it has several; 0: 2, 3 or 4")
	out := f.StringP("output", "o", "", "write the program to `FILE` (default: here, under its name)")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error {
		o, err := m.options(f)
		if err != nil {
			return err
		}
		forRanks(&o, *ranks)
		o.Output = *out
		if o.Output == "" {
			o.Output = "."
		}
		if strings.HasSuffix(o.Output, string(os.PathSeparator)) {
			if err := os.MkdirAll(o.Output, 0o777); err != nil {
				return elsewhere(err, otherName)
			}
		}
		made, err := makeProgram(ctx, c, c.args, o)
		if errors.Is(err, golang.ErrOutput) {
			return elsewhere(err, otherName)
		}
		if err != nil {
			return err
		}
		if !c.quiet {
			c.notef("%s: written to %s", named(c.args), made.Path)
		}
		if c.json {
			return c.document(buildDocument{made.Path, made.Points, made.Cached})
		}
		return nil
	})
	return cmd
}

// What to do where something can't be written.
const (
	otherName = "give another name with -o FILE"
	otherRun  = "put the run's folder elsewhere with --run FOLDER"
)

// buildDocument is what build --json prints.
type buildDocument struct {
	Program string              `json:"program"`
	Points  []explain.PointInfo `json:"points"`
	Before  bool                `json:"before"` // nothing had changed
}

// makeFlags are the flags by which programs are made.
type makeFlags struct {
	tags, take, profile string
}

// goFlags are those of go build that can be given, with what help says of them.
var goFlags = []struct{ name, usage string }{
	{"ldflags", "`ARGS` for go tool link"},
	{"gcflags", "`ARGS` for go tool compile"},
	{"asmflags", "`ARGS` for go tool asm"},
	{"buildmode", "`MODE`: exe or pie"},
	{"buildvcs", "whether to note the state of version control: `WHEN` is true, false or auto"},
	{"mod", "`MODE` of modules: readonly, vendor or mod"},
	{"modfile", "`FILE` to read in place of go.mod"},
	{"pgo", "`FILE` with a profile to compile by, or off"},
	{"p", "run `N` compilers at a time"},
}

var goBools = []struct{ name, usage string }{
	{"race", "build with the race detector"},
	{"trimpath", "leave the names of folders out of the program"},
	{"x", "show the commands of go build"},
}

// declare declares all of them.
func (m *makeFlags) declare(f *pflag.FlagSet) {
	m.declareFew(f)
	for _, g := range goFlags {
		f.StringP(g.name, shorthand(g.name), "", g.usage)
	}
	for _, g := range goBools {
		f.BoolP(g.name, shorthand(g.name), false, g.usage)
	}
}

// shorthand is a name of one letter, for which one dash is usual.
func shorthand(name string) string {
	if len(name) == 1 {
		return name
	}
	return ""
}

// declareFew declares those that run has too.
func (m *makeFlags) declareFew(f *pflag.FlagSet) {
	f.StringVar(&m.tags, "tags", "", "build tags, `LIST` with commas between")
	f.StringVar(&m.take, "take", "", "`FUNCTIONS` with commas between: dynamic calls that may lead to them lead nowhere else")
	f.StringVar(&m.profile, "cpuprofile", "", "a CPU profile of a run, `FILE`: it decides where points are, in place of a count")
}

// samples reads a profile.
func samples(profile string) (*explain.Samples, error) {
	if profile == "" {
		return nil, nil
	}
	data, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	s, err := explain.ReadSamples(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; make one with runtime/pprof or 'go test -cpuprofile'", profile, err)
	}
	return s, nil
}

// options are what flags that were given say.
func (m *makeFlags) options(f *pflag.FlagSet) (golang.MakeOptions, error) {
	var o golang.MakeOptions
	var err error
	if o.Instrument.Explain.Samples, err = samples(m.profile); err != nil {
		return o, err
	}
	if m.tags != "" {
		o.Flags = append(o.Flags, "-tags="+m.tags)
	}
	if m.take != "" {
		o.Take = strings.Split(m.take, ",")
	}
	f.Visit(func(d *pflag.Flag) {
		for _, g := range slices.Concat(goFlags, goBools) {
			if g.name == d.Name {
				o.Flags = append(o.Flags, "-"+d.Name+"="+d.Value.String())
			}
		}
	})
	return o, nil
}

// makeProgram makes the program of patterns and shows what is done.
func makeProgram(ctx context.Context, c *call, patterns []string, o golang.MakeOptions) (*golang.Made, error) {
	r := &reporter{to: c.stderr, quiet: c.quiet, about: named(patterns), every: 10 * time.Second}
	defer r.start()()
	o.Progress, o.Messages = r.say, r
	made, err := golang.Make(ctx, ".", patterns, o)
	if errors.Is(err, load.ErrPattern) {
		return nil, usagef("%v", err)
	}
	return made, err
}

// named is what patterns name, for people.
func named(patterns []string) string {
	if len(patterns) == 0 {
		return "."
	}
	return strings.Join(patterns, " ")
}

// mostRanks is for how many ranks messages are looked at, which takes longer the
// more there are.
const mostRanks = 64

// forRanks makes it known how many ranks a program is made for. Where messages
// were not looked at for that many, ranks agree on every checkpoint.
func forRanks(o *golang.MakeOptions, n int) {
	if n > 1 && n <= mostRanks {
		o.Instrument.Explain.Ranks = []int{n}
	}
}
