package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/supervise/client"
)

func checkpointCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "checkpoint [--reason TEXT] [RUN]",
		Short: "take a checkpoint of a run now",
		Long: `Asks the ranks (processes) of a run to take a checkpoint at their next points,
waits until it is committed (no crash can destroy it any more), and prints it. RUN
is the run directory; if left out, the only *.cairn directory here.`,
		Example: `  cairn checkpoint                                          # of the run in this directory
  cairn checkpoint --reason 'before the upgrade' sim.cairn  # 'cairn list' shows the reason`,
		Args:              takes(0, 1),
		ValidArgsFunction: completeRuns,
	}
	f := cmd.Flags()
	reason := f.String("reason", "request", "`TEXT` to keep with the checkpoint")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error {
		run, err := c.theRun()
		if err != nil {
			return err
		}
		saved, err := client.Checkpoint(ctx, run, *reason)
		if err != nil {
			return err
		}
		if c.json {
			return c.document(saved)
		}
		c.printf("checkpoint %s\n", checkpointText(saved, saved.Time))
		return nil
	})
	return cmd
}
