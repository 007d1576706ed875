//go:build man

package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func init() { extra = append(extra, manCommand) }

// manCommand writes the manual pages, for 'make man'. The command that users
// get does not have it, nor the packages that it needs.
func manCommand(c *call) *cobra.Command {
	return &cobra.Command{
		Use:    "_man DIR",
		Short:  "write the manual pages of all commands into DIR",
		Hidden: true,
		Args:   takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			if err := os.MkdirAll(args[0], 0o777); err != nil {
				return err
			}
			root.Long = markdown("Cairn runs programs, restarts them after failures, and manages their checkpoints.\n\n" + argumentHelp)
			root.Long += "\n" + exitSection(exitHelp)
			pages := append(listedCommands(root), root)
			for _, cmd := range pages {
				if cmd != root {
					cmd.Long = manText(cmd)
				}
				if err := manPage(cmd, args[0]); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func manPage(cmd *cobra.Command, dir string) error {
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	f, err := os.Create(filepath.Join(dir, name+".1"))
	if err != nil {
		return err
	}
	defer f.Close()
	header := &doc.GenManHeader{Title: strings.ToUpper(name), Section: "1", Source: "Cairn", Manual: "Cairn Manual"}
	cmd.DisableAutoGenTag = true
	if err := doc.GenMan(cmd, header, f); err != nil {
		return err
	}
	return f.Close()
}

// manText returns the text of a manual page without flags and examples.
func manText(cmd *cobra.Command) string {
	text := markdown(cmd.Long)
	if strings.Contains(cmd.Use, "CHECKPOINT") {
		text += "\n" + markdown(argumentHelp)
	}
	if own := cmd.Annotations[exitCodes]; own != "" {
		return text + "\n" + exitSection(own)
	}
	return text + "\n" + exitSection(exitHelp)
}

func exitSection(text string) string {
	return "# EXIT STATUS\n" + markdown(strings.TrimPrefix(text, "Exit codes\n"))
}

// markdown turns plain text into Markdown. Lines that begin with blanks are
// kept as they are.
func markdown(text string) string {
	var b strings.Builder
	before := false // the line before stands as it is
	for line := range strings.Lines(strings.TrimSuffix(text, "\n") + "\n") {
		asIs := strings.HasPrefix(line, "  ")
		if asIs != before {
			b.WriteByte('\n')
		}
		before = asIs
		if asIs {
			b.WriteString("  " + line)
		} else {
			b.WriteString(manQuote.Replace(line))
		}
	}
	return b.String()
}

var manQuote = strings.NewReplacer("*", `\*`, "_", `\_`, "<", `\<`)
