package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/ckpt"
)

func exportCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export [--compress none|gzip|zstd] [--rank N] SET OUT.h5",
		Short: "write a set as one plain, self-contained HDF5 file",
		Long: `Writes all values of a set into one HDF5 file that needs no other, for h5py,
h5dump, MATLAB or to be kept: the variables are datasets under /MemBlocks. All
commands that take a SET take such a file too. Every byte is checked on the
way, and OUT.h5 appears only when it is whole; it must not exist before.

With several ranks each has a file of its own: --rank says whose is exported.`,
		Example: `  cairn export ckpt result.h5                    # the newest set in folder ckpt
  cairn export --compress gzip ckpt@12 set12.h5  # set 12, smaller; every HDF5 tool reads gzip`,
		Args:              takes(2, 2),
		ValidArgsFunction: c.completeCheckpoints,
	}
	f := cmd.Flags()
	compress := f.String("compress", "none", "compress by `METHOD`: none, gzip or zstd; zstd needs a plugin in HDF5 tools")
	rank := rankFlag(f)
	c.completeValues(cmd, "compress", compressions...)
	cmd.RunE = c.does(func(ctx context.Context, c *call) error { return export(ctx, c, *compress, int(*rank)) })
	return cmd
}

// compressions are the values of --compress.
var compressions = []string{"none", "gzip", "zstd"}

// exportDocument is what export --json prints.
type exportDocument struct {
	Index       uint64  `json:"set"`
	Rank        int     `json:"rank"`
	Ranks       int     `json:"ranks"`
	Path        string  `json:"path"`
	Output      string  `json:"output"`
	Compression string  `json:"compression"`
	StateBytes  int64   `json:"stateBytes"`
	FileBytes   int64   `json:"fileBytes"` // of the output
	Seconds     float64 `json:"seconds"`
}

func export(ctx context.Context, c *call, compress string, rank int) error {
	var how ckpt.Compression
	switch compress {
	case "none":
		how = ckpt.None
	case "gzip":
		how = ckpt.Gzip
	case "zstd":
		how = ckpt.Zstd
	default:
		return usagef("export: no compression %q%s; --compress takes none, gzip or zstd", compress, suggest(compress, compressions, ""))
	}
	out := c.args[1]
	if err := c.free(out); err != nil {
		return err
	}
	s, err := c.openCheckpoint(c.args[0], rank)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := ctx.Err(); err != nil {
		return err
	}
	began := time.Now()
	p := c.progress(fmt.Sprintf("exporting set %d", s.Header.Index), s.State())
	err = s.Export(ctx, c.fsys, out, how, p.at)
	p.end()
	if errors.Is(err, ckpt.ErrCorrupt) {
		return fmt.Errorf("%s: not exported: %w", s.Path, err)
	}
	if err != nil {
		return err
	}
	st, err := c.fsys.Stat(out)
	if err != nil {
		return err
	}
	sum := c.summarize(s)
	doc := exportDocument{s.Header.Index, s.Header.Rank, s.Header.Ranks, s.Path, out, compress, sum.StateBytes, st.Size(), time.Since(began).Seconds()}
	if c.json {
		return c.document(doc)
	}
	which := ""
	if doc.Ranks > 1 {
		which = fmt.Sprintf(", rank %d of %d ranks (--rank N exports another one)", doc.Rank, doc.Ranks)
	}
	c.printf("%s: set %d%s, %s of state in %s\n", out, doc.Index, which, size(doc.StateBytes), size(doc.FileBytes))
	return nil
}

// free checks that a file can be made at path, before long work begins.
func (c *call) free(path string) error {
	st, err := c.fsys.Stat(path)
	if err == nil && st.IsDir() {
		return fmt.Errorf("%s: a folder; name the file to write, as %s", path, filepath.Join(path, "set.h5"))
	}
	if err == nil {
		return fmt.Errorf("%s: exists already; name another file, or remove it first", path)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := c.fsys.Stat(path + ".tmp"); err == nil {
		return fmt.Errorf("%s.tmp: another export is writing it, or one was killed; remove it if that is so", path)
	}
	parent := filepath.Dir(path)
	if _, err := c.fsys.Stat(parent); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: no such folder; make it first", parent)
	} else if err != nil {
		return err
	}
	return nil
}
