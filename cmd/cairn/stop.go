package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

func stopCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stop [RUN]",
		Short: "make a run save and stop",
		Long: `Asks the ranks of a run to take a checkpoint and stop, as Ctrl-C in its terminal
does, and waits until they have. The same 'cairn run' command resumes the run. RUN
is the run directory; if left out, the only *.cairn directory here. If the state
cannot be saved, on a full disk for example, the ranks stop all the same; the
command says so and exits with 3.`,
		Example: `  cairn stop                                                # the run in this directory
  cairn stop sim.cairn && cairn run -n 8 --hosts c:8 ./sim  # resume elsewhere`,
		Args:              takes(0, 1),
		ValidArgsFunction: completeRuns,
	}
	cmd.RunE = c.does(func(ctx context.Context, c *call) error {
		run, err := c.theRun()
		if err != nil {
			return err
		}
		st, err := client.Stop(ctx, run, "cairn stop")
		if err != nil {
			return err
		}
		if c.json {
			err = c.document(st)
		} else {
			c.printf("%s", st.State)
			if st.Unsaved != nil && st.Unsaved.Lost && st.Last != nil {
				c.printf(" without saving; the last checkpoint is %d", st.Last.Index)
			} else if st.Unsaved != nil && st.Unsaved.Lost {
				c.printf(" without saving; there is no checkpoint")
			} else if st.Last != nil {
				c.printf(" with checkpoint %d", st.Last.Index)
			}
			c.printf("\n")
		}
		if u := st.Unsaved; err == nil && u != nil && u.Lost {
			err = fmt.Errorf("%s: the state could NOT be saved, and the work since the last checkpoint is lost: %s", run, u.Why)
		} else if err == nil && st.State == rundir.Failed {
			err = fmt.Errorf("%s: the run failed: %s", run, st.Why)
		}
		return err
	})
	return cmd
}
