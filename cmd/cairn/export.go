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
	"github.com/cairnrun/cairn/internal/control"
)

func exportCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export [--compress none|gzip|zstd] [--rank N] [--key FILE] CHECKPOINT OUT.h5",
		Short: "write a checkpoint as one self-contained HDF5 file",
		Long: `Writes all values of a checkpoint into one HDF5 file that needs no other file, for
h5py, h5dump, MATLAB or an archive. The variables are datasets under /MemBlocks.
Commands that take a CHECKPOINT accept such a file, too. Every byte is checked on
the way. OUT.h5 must not exist; it appears only when it is complete.

With several ranks, each has its own file: --rank chooses one.`,
		Example: `  cairn export ckpt result.h5                   # the newest checkpoint in directory ckpt
  cairn export --compress gzip ckpt@12 c12.h5   # checkpoint 12, smaller; every HDF5 tool reads gzip`,
		Args:              takes(2, 2),
		ValidArgsFunction: c.completeCheckpoints,
	}
	f := cmd.Flags()
	compress := f.String("compress", "none", "compress by `METHOD`: none, gzip or zstd; HDF5 tools need a plugin for zstd")
	rank := rankFlag(f)
	keyFlag(f, c)
	c.completeValues(cmd, "compress", compressions...)
	cmd.RunE = c.does(func(ctx context.Context, c *call) error { return export(ctx, c, *compress, int(*rank)) })
	return cmd
}

// compressions are the values of --compress.
var compressions = []string{"none", "gzip", "zstd"}

// exportDocument is what export --json prints.
type exportDocument struct {
	Index       uint64  `json:"index"`
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
		return usagef("export: unknown compression %q%s; --compress takes none, gzip or zstd", compress, suggest(compress, compressions, ""))
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
	p := c.progress(fmt.Sprintf("exporting checkpoint %d", s.Header.Index), s.State())
	err = s.Export(ctx, c.fsys, out, how, p.at)
	p.end()
	if errors.Is(err, ckpt.ErrCorrupt) {
		return fmt.Errorf("%s: cannot export: %w", s.Path, err)
	}
	if err != nil {
		return err
	}
	st, err := c.fsys.Stat(out)
	if err != nil {
		return err
	}
	sum := c.summarize(s)
	doc := exportDocument{s.Header.Index, s.Header.Rank, s.Header.Ranks, withSlashes(s.Path), out, compress, sum.StateBytes, st.Size(), time.Since(began).Seconds()}
	if c.json {
		return c.document(doc)
	}
	which := ""
	if doc.Ranks > 1 {
		which = fmt.Sprintf(", rank %d of %d ranks (--rank N exports another one)", doc.Rank, doc.Ranks)
	}
	c.printf("%s: checkpoint %d%s, %s of state in %s\n", out, doc.Index, which, control.BytesText(doc.StateBytes), control.BytesText(doc.FileBytes))
	return nil
}

// free checks, before long work begins, that a file can be made at path.
func (c *call) free(path string) error {
	st, err := c.fsys.Stat(path)
	if err == nil && st.IsDir() {
		return fmt.Errorf("%s: this is a directory; name the file to write, such as %s", path, filepath.Join(path, "checkpoint.h5"))
	}
	if err == nil {
		return fmt.Errorf("%s exists; name another file, or remove it first", path)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := c.fsys.Stat(path + ".tmp"); err == nil {
		return fmt.Errorf("%s.tmp exists: another export is running, or one was killed; if none is running, remove it", path)
	}
	parent := filepath.Dir(path)
	if _, err := c.fsys.Stat(parent); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: no such directory; make it first", parent)
	} else if err != nil {
		return err
	}
	return nil
}
