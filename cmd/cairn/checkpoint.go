package main

import (
	"context"
	"flag"

	"github.com/cairnrun/cairn/supervise"
)

func checkpointCommand() command {
	return command{
		name: "checkpoint", args: "[RUN]", max: 1,
		brief: "let a run take a checkpoint now",
		about: `Asks the ranks of a running run to take a checkpoint at their next points,
waits until it is committed, and prints the set. RUN is the folder that 'cairn
run' made; left out, it is the only *.cairn folder here.`,
		examples: []example{
			{"cairn checkpoint", "of the run in this folder"},
			{"cairn checkpoint --reason 'before the upgrade' sim.cairn", "'cairn list' shows the reason"},
		},
		setup: func(f *flag.FlagSet) action {
			reason := f.String("reason", "request", "`TEXT` that is kept with the set")
			return func(ctx context.Context, c *call) error {
				run, err := c.theRun()
				if err != nil {
					return err
				}
				set, err := supervise.Checkpoint(ctx, run, *reason)
				if err != nil {
					return err
				}
				if c.json {
					return c.document(set)
				}
				c.printf("set %s\n", setText(set, set.Time))
				return nil
			}
		},
	}
}
