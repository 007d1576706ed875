package main

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/ckpt"
)

func versionCommand(c *call) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "show the version of this program",
		Long: `Shows the version of this program, the Go version it was built with, and the
version of the file format that it reads and writes.`,
		Example:           `  cairn version --json | jq .format  # the file format`,
		Args:              takes(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              c.does(version),
	}
}

// versionDocument is what version --json prints.
type versionDocument struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the source
	Modified bool   `json:"modified,omitempty"` // the source had changes beside that
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Format   int    `json:"format"`
}

func version(_ context.Context, c *call) error {
	doc := versionDocument{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Format: ckpt.Format}
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			doc.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				doc.Revision = s.Value
			case "vcs.modified":
				doc.Modified = s.Value == "true"
			}
		}
	}
	if c.json {
		return c.document(doc)
	}
	c.printf("cairn %s, %s, %s, file format %d\n", doc.Version, doc.Go, doc.Platform, doc.Format)
	if doc.Revision != "" {
		changed := ""
		if doc.Modified {
			changed = ", with changes"
		}
		c.printf("source %s%s\n", doc.Revision, changed)
	}
	return nil
}
