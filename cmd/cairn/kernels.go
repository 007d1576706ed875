package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/kernel"
)

func kernelsCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kernels [flags] [PACKAGE…]",
		Short: "translate kernels in Go for GPUs and OpenCL devices",
		Long: `Translates the kernels of Go packages, functions that they pass to
device.KernelOf, to OpenCL C. In each package it writes ` + kernel.FileName + `, which
registers the translations. With that file in the package, a program that is
built with go build launches its kernels on all devices. 'cairn build' needs no
such file.

What cannot be translated is an error with its file and line.

PACKAGE is as for go build; the current directory if left out.`,
		Example: `  cairn kernels                  # in this directory
  cairn kernels ./...            # in all packages below it
  cairn kernels --check ./...    # are the files current?

In a Go file, so that 'go generate' does it:
  //go:generate cairn kernels`,
		Annotations:       map[string]string{exitCodes: sourceExits},
		Args:              takes(0, -1),
		ValidArgsFunction: completeSource,
	}
	f := cmd.Flags()
	only := f.Bool("check", false, "write nothing; fail if a file is not current")
	tags := f.String("tags", "", "build tags, `LIST` separated by commas")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error { return writeKernels(ctx, c, *tags, *only) })
	return cmd
}

// kernelsDocument is what kernels --json prints.
type kernelsDocument struct {
	Kernels []string `json:"kernels"`
	Files   []string `json:"files"`
}

func writeKernels(ctx context.Context, c *call, tags string, only bool) error {
	packages, err := kernel.Load(ctx, ".", c.args, tags)
	if errors.Is(err, load.ErrPattern) {
		return usagef("kernels: %v", err)
	}
	if err != nil {
		return err
	}
	doc := kernelsDocument{Kernels: []string{}, Files: []string{}}
	for _, p := range packages {
		list, err := kernel.Translate(p.Source)
		if err != nil {
			return err
		}
		name := filepath.Join(p.Dir, kernel.FileName)
		if len(list) == 0 {
			if err := removeOld(name, only); err != nil {
				return err
			}
			continue
		}
		text, err := kernel.File(p.Source, p.Name, list, true)
		if err != nil {
			return err
		}
		old, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if !bytes.Equal(old, text) {
			if only {
				return fmt.Errorf("%s is not current: run 'cairn kernels' in its directory", name)
			}
			if err := os.WriteFile(name, text, 0o666); err != nil {
				return err
			}
		}
		for _, k := range list {
			doc.Kernels = append(doc.Kernels, k.Name)
		}
		doc.Files = append(doc.Files, name)
	}
	if c.json {
		return c.document(doc)
	}
	for _, name := range doc.Files {
		fmt.Fprintln(c.stdout, name)
	}
	if len(doc.Files) == 0 {
		fmt.Fprintln(c.stdout, "no package passes a function to device.KernelOf")
	}
	return nil
}

// removeOld removes the file of a package that has no kernels any more.
func removeOld(name string, only bool) error {
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if only {
		return fmt.Errorf("%s is not needed any more: run 'cairn kernels' in its directory", name)
	}
	return os.Remove(name)
}
