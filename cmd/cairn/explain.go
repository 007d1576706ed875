package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/compiler/golang"
	"github.com/cairnrun/cairn/internal/compiler/golang/explain"
	"github.com/cairnrun/cairn/internal/compiler/golang/instrument"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

func explainCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [flags] [PACKAGE]",
		Short: "show where a Go program can take checkpoints, and why",
		Long: `Reads the source of a Go program and shows where Cairn would put points (places
where it can take a checkpoint): in the loops that do the work, by a count of
statements and accesses to variables. For a program with messages, it shows
whether messages may be in flight at these points, and which goroutines may be
alive. It changes nothing; 'cairn build' and 'cairn run' put points there, and
'cairn instrument' shows how.

PACKAGE is as for go build: a directory, an import path or a file; the current
directory if left out. It must be one program. The go command is needed.

In the source, a comment on a loop's line or the line before changes the choice:
//cairn:point asks for a point, //cairn:skip excludes the loop.`,
		Example: `  cairn explain                         # the program in this directory
  cairn explain --all ./cmd/sim         # with the loops that are not ranked, and why
  cairn explain --take cg ./npb         # in the mode in which the program calls cg
  cairn explain --cpuprofile cpu.pprof  # by where a run spent its time
  cairn explain -n 8 --json ./sim       # for 8 ranks, as JSON`,
		Annotations:       map[string]string{exitCodes: sourceExits},
		Args:              takes(0, 1),
		ValidArgsFunction: completeSource,
	}
	f := cmd.Flags()
	n := f.IntP("ranks", "n", 0, "check messages for `N` ranks; 0: for 2, 3 and 4")
	all := f.Bool("all", false, "show all loops, and why each is chosen or not")
	profile := f.String("cpuprofile", "", "choose by the CPU profile in `FILE`, not by counting statements")
	take := f.String("take", "", "if a dynamic call may reach one of these `FUNCTIONS` (separated by commas), assume that it reaches only these")
	tags := f.String("tags", "", "build tags, `LIST` separated by commas")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error {
		return explainProgram(ctx, c, *n, *all, *tags, *take, *profile)
	})
	return cmd
}

func explainProgram(ctx context.Context, c *call, ranks int, all bool, tags, take, profile string) error {
	if ranks < 0 || ranks > 64 {
		return usagef("explain: -n %d: messages can be checked for 1 to 64 ranks", ranks)
	}
	r := c.newReporter(named(c.args))
	if r.line == nil {
		r.soon = r.every // the output follows
	}
	stop := r.start()
	defer stop()
	o := load.Options{Step: r.step}
	if tags != "" {
		o.Tags = strings.Split(tags, ",")
	}
	if take != "" {
		o.Take = strings.Split(take, ",")
	}
	by, err := samples(profile)
	if err != nil {
		return err
	}
	defer collectLess()()
	p, err := golang.Load(ctx, ".", c.args, o)
	if errors.Is(err, load.ErrPattern) {
		return usagef("explain: %v", err)
	}
	if err != nil {
		return err
	}
	how := explain.Options{Samples: by}
	if ranks > 0 {
		how.Ranks = []int{ranks}
	}
	e := explain.Explain(p, how)
	in, err := instrument.Instrument(p, instrument.Options{Explain: how})
	s := instrument.Save(e, in, err)
	stop()
	if c.json {
		return c.document(s)
	}
	if err := e.Text(c.stdout, all, !c.quiet); err != nil {
		return err
	}
	return s.Text(c.stdout)
}
