package main

import (
	"context"
	"flag"

	"github.com/cairnrun/cairn/supervise"
)

// hostCommand is the helper process of 'cairn run'. It is in no list.
func hostCommand() command {
	return command{
		name: "_host", max: 0,
		brief:    "start and watch the ranks of one host, for 'cairn run'",
		about:    `'cairn run' starts one of these on every host. It is of no use to people.`,
		examples: []example{{"cairn run ./sim", "starts one"}},
		setup: func(f *flag.FlagSet) action {
			launched := f.Bool("launched", false, "serve the rank that mpirun or srun gave to this process")
			return func(_ context.Context, _ *call) error {
				// Signals are the supervisor's business, so ctx is not used.
				if *launched {
					return supervise.HelpLaunched(context.Background(), supervise.HelperOptions{})
				}
				return supervise.Help(context.Background(), supervise.HelperOptions{})
			}
		},
	}
}
