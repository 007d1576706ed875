package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cairnrun/cairn/internal/compiler/golang"
	"github.com/cairnrun/cairn/internal/compiler/golang/explain"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

func buildCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "build [flags] [PACKAGE]",
		Short: "build a Go program with checkpointing",
		Long: `Builds a Go program with checkpointing, without changes to its source. Cairn finds
the loops that do the work ('cairn explain' shows them) and builds the program so
that checkpoints can be taken there and the program can resume from them. Nothing
in the source's directories is changed.

PACKAGE is as for go build: a directory, an import path or files; the current
directory if left out. It must be one program. The go command is needed, version
1.26 or newer.

The program runs as the plain one would. 'cairn run' takes its checkpoints and
restarts it; 'cairn run PACKAGE' builds and runs in one step.`,
		Example: `  cairn build                                      # the program in this directory
  cairn build -o sim ./cmd/sim && cairn run ./sim  # build it, then run it
  cairn build --race --tags big ./sim              # with flags of go build`,
		Annotations:       map[string]string{exitCodes: sourceExits},
		Args:              takes(0, -1),
		ValidArgsFunction: completeSource,
	}
	f := cmd.Flags()
	var m makeFlags
	m.declare(f)
	ranks := f.IntP("ranks", "n", 0, "check messages for `N` ranks; 0: for 2, 3 and 4")
	out := f.StringP("output", "o", "", "write the program to `FILE` (default: its name, in the current directory)")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error {
		o, err := m.options(f)
		if err != nil {
			return err
		}
		forRanks(&o, *ranks)
		o.Output = cmp.Or(*out, ".")
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

// What to do if something cannot be written.
const (
	otherName = "choose another file with -o FILE"
	otherRun  = "choose another run directory with --run DIRECTORY"
)

// buildDocument is what build --json prints.
type buildDocument struct {
	Program string              `json:"program"`
	Points  []explain.PointInfo `json:"points"`
	Cached  bool                `json:"cached"` // it was built before, and nothing has changed
}

// makeFlags are the flags for building programs.
type makeFlags struct {
	tags, take, profile string
}

// goFlags are the flags of go build that are passed on, with their help.
var goFlags = []struct{ name, usage string }{
	{"ldflags", "`ARGS` for go tool link"},
	{"gcflags", "`ARGS` for go tool compile"},
	{"asmflags", "`ARGS` for go tool asm"},
	{"buildmode", "`MODE`: exe or pie"},
	{"buildvcs", "stamp the binary with version control information: `WHEN` is true, false or auto"},
	{"mod", "module download `MODE`: readonly, vendor or mod"},
	{"modfile", "read `FILE` in place of go.mod"},
	{"pgo", "`FILE` with a profile for the Go compiler, or off"},
	{"p", "run `N` compilers at a time"},
}

var goBools = []struct{ name, usage string }{
	{"race", "build with the race detector"},
	{"trimpath", "remove the paths of directories from the program"},
	{"x", "show the commands of go build"},
}

// declare declares all flags.
func (m *makeFlags) declare(f *pflag.FlagSet) {
	m.declareFew(f)
	for _, g := range goFlags {
		f.StringP(g.name, shorthand(g.name), "", g.usage)
	}
	for _, g := range goBools {
		f.BoolP(g.name, shorthand(g.name), false, g.usage)
	}
}

// shorthand returns a name of one letter, which users write with one dash.
func shorthand(name string) string {
	if len(name) == 1 {
		return name
	}
	return ""
}

// declareFew declares the flags that run has as well.
func (m *makeFlags) declareFew(f *pflag.FlagSet) {
	f.StringVar(&m.tags, "tags", "", "build tags, `LIST` separated by commas")
	f.StringVar(&m.take, "take", "", "if a dynamic call may reach one of these `FUNCTIONS` (separated by commas), assume that it reaches only these")
	f.StringVar(&m.profile, "cpuprofile", "", "choose points by the CPU profile in `FILE`, not by counting statements")
}

// samples reads a CPU profile; it returns nil without one.
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

// options returns the options that the flags set.
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

// makeProgram builds the program that patterns name, and shows the steps.
func makeProgram(ctx context.Context, c *call, patterns []string, o golang.MakeOptions) (*golang.Made, error) {
	r := c.newReporter(named(patterns))
	defer r.start()()
	defer collectLess()()
	o.Progress, o.Step, o.Messages = r.say, r.step, r
	made, err := golang.Make(ctx, ".", patterns, o)
	if errors.Is(err, load.ErrPattern) {
		return nil, usagef("%v", err)
	}
	return made, err
}

// named returns patterns as users read them.
func named(patterns []string) string {
	if len(patterns) == 0 {
		return "."
	}
	return strings.Join(patterns, " ")
}

// mostRanks is the largest number of ranks for which messages are checked; the
// time grows with it.
const mostRanks = 64

// forRanks sets the number of ranks for which messages are checked. A run with
// another number of ranks agrees on every checkpoint.
func forRanks(o *golang.MakeOptions, n int) {
	if n > 1 && n <= mostRanks {
		o.Instrument.Explain.Ranks = []int{n}
	}
}
