package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func helpCommand(c *call) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "show help for a command",
		Long: `Shows what a command does, its flags and examples. Without COMMAND, it lists all
commands.`,
		Example: `  cairn help verify  # help for one command`,
		Args:    takes(0, 1),
		ValidArgsFunction: completeFirst(func(cmd *cobra.Command, _ string) []string {
			var out []string
			for _, cmd := range listedCommands(cmd.Root()) {
				out = append(out, cmd.Name()+"\t"+cmd.Short)
			}
			return out
		}, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.args = args
			return help(c, cmd.Root())
		},
	}
}

// exitCodes is the annotation of a command that has its own exit codes: the
// lines of its help that explain them.
const exitCodes = "exit codes"

const argumentHelp = `CHECKPOINT is one of
  ckpt/ckpt-00000012/rank-0000.h5  one rank's file of a checkpoint
  ckpt/ckpt-00000012               a checkpoint
  ckpt                             a checkpoint or run directory: its newest checkpoint
  ckpt@12                          checkpoint 12 of that directory
  result.h5                        a file of 'cairn export'
DIR is a checkpoint directory (Options.Dir, CAIRN_DIR, or RUN/ckpt) or a run
directory. RUN is the run directory that 'cairn run' made. If you leave out [RUN],
[DIR] or [CHECKPOINT], the command uses the only *.cairn directory here.
`

const exitHelp = `Exit codes
  0  done
  1  damage was found, or no checkpoint is complete (list, verify); or the
     checkpoints differ (diff)
  2  the command line is wrong
  3  the command failed: not found, not a checkpoint, in use, damaged (if the
     command does not look for damage), an error of the system, or interrupted
'cairn run' and 'cairn migrate' have more; see their help.
`

// sourceExits are those of commands that read a program's source.
const sourceExits = `  0  done
  2  the command line is wrong
  3  the command failed: the source does not compile, or has something that
     cannot be resumed (the message says where and why; 'cairn explain' shows it and
     exits with 0), Go is missing, an error of the system, or interrupted
`

// helpDocument is what help --json prints.
type helpDocument struct {
	Commands []commandInfo `json:"commands"`
}

type commandInfo struct {
	Name  string `json:"name"`
	Usage string `json:"usage"`
	Brief string `json:"brief"`
	Help  string `json:"help"`
}

func help(c *call, root *cobra.Command) error {
	all := listedCommands(root)
	if len(c.args) > 0 {
		i := slices.IndexFunc(all, func(cmd *cobra.Command) bool { return cmd.Name() == c.args[0] })
		if i < 0 {
			return unknownCommand(root, c.args[0])
		}
		all = all[i : i+1]
	}
	if c.json {
		var doc helpDocument
		for _, cmd := range all {
			doc.Commands = append(doc.Commands, commandInfo{cmd.Name(), cmd.UseLine(), cmd.Short, helpText(cmd)})
		}
		return c.document(doc)
	}
	if len(c.args) > 0 {
		return all[0].Help()
	}
	return root.Help()
}

// listedCommands returns the commands that help lists, in its order.
func listedCommands(root *cobra.Command) []*cobra.Command {
	var out []*cobra.Command
	for _, g := range root.Groups() {
		for _, cmd := range root.Commands() {
			if cmd.GroupID == g.ID {
				out = append(out, cmd)
			}
		}
	}
	return out
}

// helpText returns the help of a command.
func helpText(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return overview(cmd)
	}
	text := fmt.Sprintf("usage: %s\n\n%s%s.\n\n%s\n", cmd.UseLine(), strings.ToUpper(cmd.Short[:1]), cmd.Short[1:], cmd.Long)
	if strings.Contains(cmd.Use, "CHECKPOINT") {
		text += "\n" + argumentHelp
	}
	cmd.InheritedFlags() // merges them
	text += "\nFlags\n" + cmd.Flags().FlagUsagesWrapped(100) + "\nExamples\n" + cmd.Example + "\n\n"
	if own := cmd.Annotations[exitCodes]; own != "" {
		return text + "Exit codes\n" + own
	}
	return text + exitHelp
}

// overview returns the help of the whole program.
func overview(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("cairn runs long-running programs, restarts them after failures, and manages their\ncheckpoints.\n\nusage: " + root.Use + "\n")
	group := ""
	for _, cmd := range listedCommands(root) {
		if cmd.GroupID != group {
			group = cmd.GroupID
			fmt.Fprintf(&b, "\n%s\n", group)
		}
		fmt.Fprintf(&b, "  %-*s  %s\n", root.NamePadding(), cmd.Name(), cmd.Short)
	}
	b.WriteString("\n" + argumentHelp + "\nFlags stand before or after arguments (for run: before PROGRAM). Every command has\n")
	b.WriteString(root.PersistentFlags().FlagUsagesWrapped(100) + "\n" + exitHelp + "\nExamples\n" + root.Example + "\n")
	return b.String()
}
