package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/supervise/helper"
)

// hostName is the name of the helper's command.
const hostName = "_host"

// hostCommand is the helper of 'cairn run' on a host. Help does not list it.
func hostCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:     hostName + " [--launched]",
		Short:   "start and watch the ranks of one host, for 'cairn run'",
		Long:    `'cairn run' starts one of these on every host. Users do not need it.`,
		Example: `  cairn run ./sim  # starts one`,
		Args:    takes(0, 0),
		Hidden:  true,
	}
	f := cmd.Flags()
	launched := f.Bool("launched", false, "serve the rank that mpirun or srun gave to this process")
	cmd.RunE = c.does(func(_ context.Context, _ *call) error {
		// The supervisor handles signals, so ctx is not used.
		if *launched {
			return helper.RunLaunched(context.Background())
		}
		return helper.Run(context.Background())
	})
	return cmd
}
