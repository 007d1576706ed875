package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise"
	"github.com/cairnrun/cairn/internal/vfs"
)

func copyCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "copy [--key FILE] [--to-key FILE] FROM TO",
		Short: "copy a run, or one checkpoint of it, to another place",
		Long: `Copies a run to an empty place. A place is an object store, s3://BUCKET/PREFIX, or a
directory of one run on a shared tier, such as /gpfs/me/sim-7d0c51e9. FROM is such a
place, a run directory, or a checkpoint directory (Options.Dir). Of a place, all
checkpoints are copied, else the newest. With FROM@12, only checkpoint 12 is copied.

The command checks the digest (a hash) of every object that it copies. The run may
be running meanwhile. A checkpoint counts at TO only when all of it is there. If
the command was interrupted, repeat it: it copies only what is missing. The copy
is a run of its own, with its own identity: 'cairn run --from TO' resumes it, and
the original run continues where it is.

--key names the file with the key of an encrypted FROM, and --to-key that of TO. If
the hosts of a run share no files, cairn copies what its tiers outside of the hosts
have; without such tiers, it copies the newest checkpoint from the hosts' disks.`,
		Example: `  cairn copy s3://bucket/sim /gpfs/me/sim             # to a directory
  cairn copy /gpfs/me/sim-7d0c51e9@12 s3://other/sim  # checkpoint 12, to another store
  cairn copy sim.cairn s3://bucket/sim                # a run directory
  cairn run -n 8 --from /gpfs/me/sim ./sim            # resume the copy`,
		Args: takes(2, 2),
	}
	f := cmd.Flags()
	key := f.String("key", "", "`FILE` with the key of FROM, if it is encrypted")
	toKey := f.String("to-key", "", "`FILE` with the key of TO, to encrypt it")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error {
		out, err := supervise.CopyRun(ctx, c.args[0], c.args[1], *key, *toKey)
		if errors.Is(err, supervise.ErrOnHosts) {
			out, err = c.copyHosted(ctx, *toKey)
		}
		if err != nil {
			return err
		}
		if c.json {
			return c.document(out)
		}
		c.printf("%s of run %s copied to %s as run %s, %s\n", control.Count(len(out.Checkpoints), "checkpoint"), out.Of, out.To, out.Run, control.BytesText(out.Bytes))
		return nil
	})
	return cmd
}

// copyHosted copies a checkpoint of a run from the disks of its hosts, by way
// of a temporary directory here.
func (c *call) copyHosted(ctx context.Context, toKey string) (*supervise.CopiedRun, error) {
	run, index := splitIndex(c.args[0])
	if err := c.askHosts(run); err != nil {
		return nil, err
	}
	if index == 0 {
		index = c.newestHosted(ctx)
	}
	if index == 0 {
		return nil, fmt.Errorf("%s: no checkpoint is complete on the hosts that answer", run)
	}
	g, err := c.theCheckpoint(fmt.Sprintf("%s@%d", run, index))
	if err != nil {
		return nil, err
	}
	from, err := c.soundCheckpoint(g)
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp("", "cairn-copy-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	if err := c.copyCheckpoint(ctx, from, filepath.Join(tmp, filepath.Base(from))); err != nil {
		return nil, err
	}
	for _, p := range g.parts {
		f, err := ckpt.Open(vfs.OS(), store.Open(vfs.OS(), tmp, p.rank).File(index))
		if err != nil {
			return nil, err
		}
		files, err := f.Files()
		f.Close()
		if err == nil {
			err = c.hosts.FilesElsewhere(p.rank, files)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := pinOutput(ctx, tmp, c.hosts.OpenOutput); err != nil {
		return nil, err
	}
	out, err := supervise.CopyRun(ctx, tmp, c.args[1], "", toKey)
	if err == nil {
		out.From = c.args[0]
	}
	return out, err
}
