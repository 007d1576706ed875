package main

import (
	"context"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/compiler/golang"
	"github.com/cairnrun/cairn/internal/compiler/golang/explain"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

func instrumentCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "instrument [flags] -o DIR [PACKAGE]",
		Short: "write the source that 'cairn build' compiles",
		Long: `Writes the files that 'cairn build' and 'cairn run' compile in place of those of a
Go program, for you to read or to compare. It writes files that differ, and new
ones (zz_cairn.go). In DIR they have the paths that they have in the program's
module; those of other modules are below DIR/modules. Nothing else is changed.

PACKAGE is as for go build: a directory, an import path or files; the current
directory if left out.`,
		Example: `  cairn instrument -o /tmp/new ./sim  # write the files
  diff -ru sim /tmp/new/sim           # compare`,
		Annotations:       map[string]string{exitCodes: sourceExits},
		Args:              takes(0, -1),
		ValidArgsFunction: completeSource,
	}
	f := cmd.Flags()
	var m makeFlags
	m.declareFew(f)
	dir := f.StringP("output", "o", "", "write into `DIR`, which must be empty or not exist")
	c.completeDirs(cmd, "output")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error {
		o, err := m.options(f)
		if err != nil {
			return err
		}
		return instrumentProgram(ctx, c, *dir, o)
	})
	return cmd
}

// instrumentDocument is what instrument --json prints.
type instrumentDocument struct {
	Files  []string            `json:"files"`
	Points []explain.PointInfo `json:"points"`
}

func instrumentProgram(ctx context.Context, c *call, dir string, o golang.MakeOptions) error {
	if dir == "" {
		return usagef("instrument: name the directory to write into with -o DIR")
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return usagef("instrument: %s is not empty; name a directory that is empty or does not exist", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	defer collectLess()()
	r := c.newReporter(named(c.args))
	if r.line == nil {
		r.soon = r.every // the output follows
	}
	o.Step = r.step
	stop := r.start()
	w, err := golang.Rewrite(ctx, ".", c.args, o)
	stop()
	if errors.Is(err, load.ErrPattern) {
		return usagef("instrument: %v", err)
	}
	if err != nil {
		return err
	}
	doc := instrumentDocument{Points: w.Points}
	for _, name := range slices.Sorted(maps.Keys(w.Files)) {
		text := w.Readable(name)
		if strings.HasSuffix(name, ".go") {
			if nice, err := format.Source(text); err == nil {
				text = nice
			}
		}
		to := filepath.Join(dir, w.TreePath(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o666); err != nil {
			return err
		}
		doc.Files = append(doc.Files, to)
	}
	if c.json {
		return c.document(doc)
	}
	for _, name := range doc.Files {
		fmt.Fprintln(c.stdout, name)
	}
	return nil
}
