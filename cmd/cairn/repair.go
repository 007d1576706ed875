package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise"
)

func repairCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "repair [--replace shared] [RUN]",
		Short: "rebuild what tiers of a run have lost, from other tiers",
		Long: `Reads everything that the tiers of a run have (cairn run --tiers), and rebuilds what
is missing or damaged, from whatever has it: other hosts' disks, copies, shards, the
shared directory or the object store. Then each checkpoint survives again what its
tiers promise. It says what it has repaired, what cannot be repaired, and where that
was. The exit code is 1 if something cannot be repaired.

The command may be killed and repeated: it removes nothing that can be used. Stop
the run first. While it runs, only the shared directory and the object store are
repaired. A host that is gone for good is no damage: 'cairn run' resumes the run
without it.

Of a run that has finished, the command repairs its end on the shared directory and
the object store.

If the directory of the shared tier does not have what the run has put there, its
file system may not be mounted, and cairn does not touch it. If its content is lost
for good, let --replace shared begin it anew.`,
		Example: `  cairn repair sim.cairn                                  # all tiers of the run
  cairn repair --json sim.cairn | jq '.lost'              # what cannot be repaired`,
		Args: takes(0, 1),
	}
	replace := cmd.Flags().StringSlice("replace", nil, "what the `TIER` had is lost for good: begin it anew (shared)")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error {
		for _, kind := range *replace {
			if kind != "shared" {
				return usagef("repair: --replace %s: only a shared tier can be begun anew", kind)
			}
		}
		if err := c.noPlace("repair", "name the run directory, which says where else the run keeps its checkpoints"); err != nil {
			return err
		}
		return repair(ctx, c, *replace)
	})
	return cmd
}

func repair(ctx context.Context, c *call, replace []string) error {
	run, err := c.theRun()
	if err != nil {
		return err
	}
	if run, err = filepath.Abs(run); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := supervise.RepairRun(ctx, run, []string{self, hostName}, replace)
	if out == nil {
		return err
	}
	if c.json {
		if derr := c.document(out); derr != nil {
			return derr
		}
	} else {
		for _, note := range out.Notes {
			c.notef("%s", printable(note))
		}
		for _, r := range out.Repaired {
			c.printf("%s\n", printable(r.String()))
		}
		for _, r := range out.Lost {
			c.printf("%s\n", printable(r.String()))
		}
		what := control.Count(len(out.Checkpoints), "checkpoint")
		if out.End {
			what = "the end of the run"
		}
		c.printf("%s looked at, %d repaired, %d cannot be repaired\n", what, len(out.Repaired), len(out.Lost))
	}
	if err == nil && len(out.Lost) > 0 {
		err = errFound
	}
	return err
}
