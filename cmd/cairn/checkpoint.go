package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/supervise"
)

func checkpointCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "checkpoint [--reason TEXT] [RUN]",
		Short: "let a run take a checkpoint now",
		Long: `Asks the ranks of a running run to take a checkpoint at their next points,
waits until it is committed, and prints the set. RUN is the folder that 'cairn
run' made; left out, it is the only *.cairn folder here.`,
		Example: `  cairn checkpoint                                          # of the run in this folder
  cairn checkpoint --reason 'before the upgrade' sim.cairn  # 'cairn list' shows the reason`,
		Args:              takes(0, 1),
		ValidArgsFunction: completeRuns,
	}
	f := cmd.Flags()
	reason := f.String("reason", "request", "`TEXT` that is kept with the set")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error {
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
		c.printf("set %s\n", checkpointText(set, set.Time))
		return nil
	})
	return cmd
}
