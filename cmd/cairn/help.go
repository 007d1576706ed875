package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func helpCommand(c *call) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "show help, of a command or of all",
		Long:    `Shows what a command does, its flags, and examples; without COMMAND, all commands.`,
		Example: `  cairn help verify  # the help of one command`,
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

// exitCodes is the annotation of a command that has exit codes of its own: the
// lines of its help that say what they mean.
const exitCodes = "exit codes"

const argumentHelp = `SET is one of
  ckpt/ckpt-00000012/rank-0000.h5   a set's file
  ckpt/ckpt-00000012                a set's folder
  ckpt                             a run's folder: its newest set
  ckpt@12                          set 12 of that folder
  result.h5                        a file made by 'cairn export'
DIR is a folder of sets, the one that Options.Dir names, or RUN/ckpt.
RUN is the folder that 'cairn run' made; [RUN], [DIR] and [SET], left out, are the
only *.cairn here.
`

const exitHelp = `Exit codes
  0  fine
  1  damage found (list, verify), or the sets differ (diff)
  2  the command line is wrong
  3  it could not be done: not found, not a checkpoint, in use, damaged (where
     damage was not looked for), an error of the system, or interrupted
'cairn run' and 'cairn migrate' have more of them, see their help.
`

// sourceExits are those of commands that read a program's source.
const sourceExits = `  0  fine
  2  the command line is wrong
  3  it could not be done: the source is not right, or holds what can't be
     restarted (the message says where and why; 'cairn explain' shows it and
     ends with 0), no Go, an error of the system, or interrupted
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

// listedCommands are the commands that help lists, in its order.
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

// helpText is the help of a command.
func helpText(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return overview(cmd)
	}
	text := fmt.Sprintf("usage: %s\n\n%s%s.\n\n%s\n", cmd.UseLine(), strings.ToUpper(cmd.Short[:1]), cmd.Short[1:], cmd.Long)
	if strings.Contains(cmd.Use, "SET") {
		text += "\n" + argumentHelp
	}
	cmd.InheritedFlags() // merges them
	text += "\nFlags\n" + cmd.Flags().FlagUsagesWrapped(100) + "\nExamples\n" + cmd.Example + "\n\n"
	if own := cmd.Annotations[exitCodes]; own != "" {
		return text + "Exit codes\n" + own
	}
	return text + exitHelp
}

// overview is the help of the whole program.
func overview(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("cairn runs long-running programs and looks after their checkpoints.\n\nusage: " + root.Use + "\n")
	group := ""
	for _, cmd := range listedCommands(root) {
		if cmd.GroupID != group {
			group = cmd.GroupID
			fmt.Fprintf(&b, "\n%s\n", group)
		}
		fmt.Fprintf(&b, "  %-*s  %s\n", root.NamePadding(), cmd.Name(), cmd.Short)
	}
	b.WriteString("\n" + argumentHelp + "\nFlags stand before or after arguments (for run: before PROGRAM); every command takes\n")
	b.WriteString(root.PersistentFlags().FlagUsagesWrapped(100) + "\n" + exitHelp + "\nExamples\n" + root.Example + "\n")
	return b.String()
}
