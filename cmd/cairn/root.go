package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/supervise"
	"github.com/cairnrun/cairn/internal/vfs"
)

// call is one use of a command.
type call struct {
	ctx    context.Context
	args   []string
	json   bool // one JSON document instead of text
	quiet  bool // no progress
	stdout *output
	stderr io.Writer
	fsys   vfs.FS
	now    time.Time

	key        string              // --key: the file with the key of a place on a tier
	hosts      *supervise.HostView // of a run whose hosts share no files; nil: there is none
	run        string              // the run directory whose checkpoints are looked for
	completing bool                // a shell waits for completions: no host is asked
}

// action does a command's work. It returns errFound if the command succeeded,
// and its exit code must report what it found.
type action func(ctx context.Context, c *call) error

// does sets the action of a command.
func (c *call) does(do action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c.ctx, c.args = cmd.Context(), args
		return do(cmd.Context(), c)
	}
}

// extra are commands that only some builds have; runCommands are those of them
// that show runs.
var extra, runCommands []func(*call) *cobra.Command

func init() { cobra.EnableCommandSorting = false } // help shows them as they are listed here

// newRoot returns the command cairn with all others below it, in the groups
// that its help shows.
func newRoot(c *call) *cobra.Command {
	root := &cobra.Command{
		Use:   "cairn COMMAND [flags] arguments",
		Short: "run long-running programs and manage their checkpoints",
		Example: `  cairn run ./cmd/sim           # build a Go program, run it, restart it after failures
  cairn run -n 4 ./sim          # four ranks of a program that is built already
  cairn status                  # how far is it?
  cairn list sim.cairn          # which checkpoints does it have?
  cairn verify sim.cairn        # are they good?
  cairn diff ckpt@11 ckpt@12    # what changed from checkpoint 11 to 12?`,
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	flags := root.PersistentFlags()
	flags.BoolVar(&c.json, "json", false, "print one JSON document on stdout; errors are text on stderr")
	flags.BoolVarP(&c.quiet, "quiet", "q", false, "show no progress")
	flags.BoolP("help", "h", false, "show the command's help")
	root.Flags().Bool("version", false, "show the version of this program")
	root.Flags().SetInterspersed(false)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { io.WriteString(c.stdout, helpText(cmd)) })
	root.SetHelpCommand(helpCommand(c))
	runs := []*cobra.Command{runCommand(c), statusCommand(c)}
	for _, make := range runCommands {
		runs = append(runs, make(c))
	}
	for _, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Runs", append(runs, checkpointCommand(c), stopCommand(c), migrateCommand(c))},
		{"Checkpoints", []*cobra.Command{listCommand(c), inspectCommand(c), verifyCommand(c), diffCommand(c), exportCommand(c), copyCommand(c), pinCommand(c), repairCommand(c), gcCommand(c)}},
		{"Programs in Go", []*cobra.Command{explainCommand(c), buildCommand(c), instrumentCommand(c), kernelsCommand(c)}},
		{"Others", []*cobra.Command{keyCommand(c), devicesCommand(c), versionCommand(c), completionCommand(c)}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, cmd := range g.commands {
			cmd.GroupID = g.title
		}
		root.AddCommand(g.commands...)
	}
	root.SetHelpCommandGroupID("Others")
	root.InitDefaultHelpCmd()
	root.AddCommand(hostCommand(c))
	for _, make := range extra {
		root.AddCommand(make(c))
	}
	for _, cmd := range root.Commands() {
		cmd.DisableFlagsInUseLine = true
	}
	return root
}

// run is the whole program: it does what args say and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := &call{stdout: &output{w: stdout}, stderr: stderr, fsys: vfs.OS(), now: time.Now()}
	err := execute(ctx, newRoot(c), args)
	if c.hosts != nil {
		c.hosts.Close()
	}
	if c.stdout.err != nil {
		err = fmt.Errorf("cannot write the output: %w", c.stdout.err)
	}
	code := exitCode(err)
	if code > exitFound && err.Error() != "" {
		fmt.Fprintf(stderr, "cairn: %s\n", describe(err))
	}
	return code
}

// execute finds the command that args name and runs it. Flags that every
// command takes may stand before its name.
func execute(ctx context.Context, root *cobra.Command, args []string) error {
	early, err := checkFlags(root, args, true)
	if err != nil {
		return err
	}
	if err := root.ParseFlags(early); err != nil {
		return flagError(root, err)
	}
	args = root.Flags().Args()
	if asked, _ := root.Flags().GetBool("version"); asked {
		args = append([]string{"version"}, args...)
	}
	if len(args) == 0 {
		if asked, _ := root.Flags().GetBool("help"); asked {
			return root.Help()
		}
		return usagef("no command given\n\n%s", strings.TrimSuffix(helpText(root), "\n"))
	}
	if args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd {
		unquoteUsages(root)
	} else {
		cmd, own, err := root.Find(args)
		if err != nil {
			return unknownCommand(root, args[0])
		}
		if own, err = checkFlags(cmd, own, cmd.Name() == "run"); err != nil {
			return err
		}
		args = append([]string{cmd.Name()}, own...)
	}
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

func unknownCommand(root *cobra.Command, name string) error {
	var known []string
	for _, cmd := range root.Commands() {
		if !cmd.Hidden {
			known = append(known, cmd.Name())
		}
	}
	return usagef("unknown command %q%s; 'cairn help' lists all commands", name, suggest(name, known, ""))
}

// takes checks that a command has at least min and at most max arguments, any
// number if max is -1, and that none is empty.
func takes(min, max int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case max >= 0 && len(args) > max:
			return usagef("%s: too many arguments: %s; usage: %s", cmd.Name(), strings.Join(args[max:], " "), cmd.UseLine())
		case len(args) < min:
			return usagef("%s: an argument is missing; usage: %s", cmd.Name(), cmd.UseLine())
		case slices.Contains(args, ""):
			return usagef("%s: an argument is empty (is a shell variable not set?); usage: %s", cmd.Name(), cmd.UseLine())
		}
		return nil
	}
}

// takesProgram checks that there is a program. Its arguments are its own.
func takesProgram(cmd *cobra.Command, args []string) error {
	return takes(1, 1)(cmd, args[:min(1, len(args))])
}
