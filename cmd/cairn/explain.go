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
		Short: "show where the checkpoints of a Go program would go, and why",
		Long: `Reads the source of a Go program and shows where points would be put: the loops
in which its work is done, by a count of statements and accesses; for programs
with messages, whether any may be under way there; and which goroutines may be
alive. Nothing is changed; 'cairn build' and 'cairn run' put points there, and
'cairn instrument' shows how.
PACKAGE is as for go build: a folder, an import path or a file, here if left
out. It must be one program. The go command is needed.
In the source, a comment on a loop's line or before it overrides the choice:
//cairn:point asks for a point, //cairn:skip excludes the loop.`,
		Example: `  cairn explain                         # the program in this folder
  cairn explain --all ./cmd/sim         # with the loops that are not ranked, and why
  cairn explain --take cg ./npb         # in the mode in which the program calls cg
  cairn explain --cpuprofile cpu.pprof  # by where a run spent its time
  cairn explain -n 8 --json ./sim       # for 8 ranks, as JSON`,
		Annotations:       map[string]string{exitCodes: sourceExits},
		Args:              takes(0, 1),
		ValidArgsFunction: completeSource,
	}
	f := cmd.Flags()
	n := f.IntP("ranks", "n", 0, "ranks of the run, `N`; 0: what holds for 2, 3 and 4")
	all := f.Bool("all", false, "show all loops, and why each is chosen or not")
	profile := f.String("cpuprofile", "", "a CPU profile of a run, `FILE`: it decides in place of the count")
	take := f.String("take", "", "`FUNCTIONS` with commas between: dynamic calls that may lead to them lead nowhere else")
	tags := f.String("tags", "", "build tags, `LIST` with commas between")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error {
		return explainProgram(ctx, c, *n, *all, *tags, *take, *profile)
	})
	return cmd
}

func explainProgram(ctx context.Context, c *call, ranks int, all bool, tags, take, profile string) error {
	if ranks < 0 || ranks > 64 {
		return usagef("explain: -n %d: messages can be followed for 1 to 64 ranks", ranks)
	}
	var o load.Options
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
	if c.json {
		return c.document(s)
	}
	if err := e.Text(c.stdout, all, !c.quiet); err != nil {
		return err
	}
	return s.Text(c.stdout)
}
