package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

func helpCommand() command {
	return command{
		name: "help", args: "[COMMAND]", max: 1,
		brief:    "show help, of a command or of all",
		about:    `Shows what a command does, its flags, and examples; without COMMAND, all commands.`,
		examples: []example{{"cairn help verify", "the help of one command"}},
		setup:    func(*flag.FlagSet) action { return help },
	}
}

const setHelp = `SET is one of
  ckpt/set-00000012/rank-0000.h5   a set's file
  ckpt/set-00000012                a set's folder
  ckpt                             a run's folder: its newest set
  ckpt@12                          set 12 of that folder
  result.h5                        a file made by 'cairn export'
DIR is a folder of sets, the one that Options.Dir names, or RUN/sets.
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

func help(_ context.Context, c *call) error {
	all := commands()
	if len(c.args) > 0 {
		i := slices.IndexFunc(all, func(cmd command) bool { return cmd.name == c.args[0] })
		if i < 0 {
			return unknownCommand(c.args[0])
		}
		all = all[i : i+1]
	}
	if c.json {
		var doc helpDocument
		for _, cmd := range all {
			doc.Commands = append(doc.Commands, commandInfo{cmd.name, cmd.usage(), cmd.brief, cmd.help()})
		}
		return c.document(doc)
	}
	text := overview()
	if len(c.args) > 0 {
		text = all[0].help()
	}
	_, err := io.WriteString(c.stdout, text)
	return err
}

// overview is the help of the whole program.
func overview() string {
	var b strings.Builder
	b.WriteString("cairn runs long-running programs and looks after their checkpoints.\n\n")
	b.WriteString("usage: cairn COMMAND [flags] arguments\n\nCommands\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, cmd := range commands() {
		fmt.Fprintf(w, "  %s\t%s\n", strings.TrimSpace(cmd.name+" "+cmd.args), cmd.brief)
	}
	w.Flush()
	b.WriteString("\n" + setHelp)
	b.WriteString(`
Flags stand before or after arguments (for run: before PROGRAM); every command takes
  --json       print one JSON document on stdout; errors stay text on stderr
  --quiet, -q  show no progress
  --help, -h   show the command's help
` + "\n" + exitHelp + `
Examples
  cairn run -n 4 ./sim       run it, and bring it back after failures
  cairn run ./cmd/sim        the same for a Go program's source, as it is
  cairn status               how far is it?
  cairn list ckpt            what is there?
  cairn verify ckpt          is it good?
  cairn diff ckpt@11 ckpt    what changed since set 11?
`)
	return b.String()
}

func (cmd *command) usage() string {
	flags := cmd.flagUsage()
	if len(flags) > 80 {
		flags = " [flags]"
	}
	return strings.TrimSpace("cairn " + cmd.name + flags + " " + cmd.args)
}

// dashed is a flag's name as people write it.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// flagUsage shows the command's own flags for its usage line.
func (cmd *command) flagUsage() string {
	var b strings.Builder
	f := flag.NewFlagSet(cmd.name, flag.ContinueOnError)
	cmd.setup(f)
	f.VisitAll(func(d *flag.Flag) {
		if value, _ := flag.UnquoteUsage(d); value != "" {
			fmt.Fprintf(&b, " [%s %s]", dashed(d.Name), value)
		} else {
			fmt.Fprintf(&b, " [%s]", dashed(d.Name))
		}
	})
	return b.String()
}

// help is the command's help text.
func (cmd *command) help() string {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: %s\n\n%s%s.\n\n%s\n", cmd.usage(), strings.ToUpper(cmd.brief[:1]), cmd.brief[1:], cmd.about)
	if strings.Contains(cmd.args, "SET") {
		b.WriteString("\n" + setHelp)
	}
	b.WriteString("\nFlags\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	f, _ := cmd.flags(&call{})
	f.VisitAll(func(d *flag.Flag) {
		value, usage := flag.UnquoteUsage(d)
		fmt.Fprintf(w, "  %s\t%s\n", strings.TrimSpace(dashed(d.Name)+" "+value), usage)
	})
	fmt.Fprintf(w, "  --help\tshow this help (-h)\n")
	w.Flush()
	b.WriteString("\nExamples\n")
	w = tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, e := range cmd.examples {
		fmt.Fprintf(w, "  %s\t%s\n", e.line, e.meaning)
	}
	w.Flush()
	if cmd.exits != "" {
		b.WriteString("\nExit codes\n" + cmd.exits)
	} else {
		b.WriteString("\n" + exitHelp)
	}
	return b.String()
}
