package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cairnrun/cairn/internal/store"
)

// shells are the shells that completion supports.
var shells = []string{"bash", "zsh", "fish", "powershell"}

func completionCommand(c *call) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "print a script that completes commands in a shell",
		Long: `Prints a script for a shell. When the shell has loaded it, Tab completes
commands, flags, run directories and checkpoints (sim.cairn@ and Tab lists the
checkpoints of sim.cairn). Bash needs the package bash-completion.`,
		Example: `  source <(cairn completion bash)                                   # this shell
  cairn completion bash > /etc/bash_completion.d/cairn              # all later ones
  cairn completion zsh > "${fpath[1]}/_cairn"                       # zsh, with compinit
  cairn completion fish > ~/.config/fish/completions/cairn.fish     # fish
  cairn completion powershell | Out-String | Invoke-Expression      # PowerShell`,
		Args:              takes(1, 1),
		ValidArgsFunction: completeFirst(func(*cobra.Command, string) []string { return shells }, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				// Bash would split sim.cairn@12 into three words.
				c.printf("COMP_WORDBREAKS=${COMP_WORDBREAKS//@/}\n")
				return root.GenBashCompletionV2(c.stdout, true)
			case "zsh":
				return root.GenZshCompletion(c.stdout)
			case "fish":
				return root.GenFishCompletion(c.stdout, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(c.stdout)
			}
			return usagef("completion: no shell %q%s; there are %s", args[0], suggest(args[0], shells, ""), strings.Join(shells, ", "))
		},
	}
}

// unquoteUsages removes the backquotes around the names of flags' values, which
// a shell would show with the flags.
func unquoteUsages(root *cobra.Command) {
	for _, cmd := range append(root.Commands(), root) {
		for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
			flags.VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") })
		}
	}
}

// completeFirst completes a command's first argument from list; directive says
// what the shell does if that is empty.
func completeFirst(list func(*cobra.Command, string) []string, directive cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return list(cmd, word), directive
	}
}

// completeRuns completes RUN and DIR.
var completeRuns = completeFirst(func(_ *cobra.Command, word string) []string { return runsLike(word) }, cobra.ShellCompDirectiveFilterDirs)

// completeSource completes the PACKAGE of commands that read source.
func completeSource(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// completeCheckpoints completes CHECKPOINT: run directories, and DIR@12 if word
// names a directory with checkpoints.
func (c *call) completeCheckpoints(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	out := runsLike(word)
	dir := word
	if at := strings.LastIndex(word, "@"); at > 0 {
		dir = word[:at]
	}
	dir = strings.TrimSuffix(dir, string(filepath.Separator))
	if st, err := os.Stat(dir); err == nil && st.IsDir() {
		c.completing = true
		var found map[uint64][]int
		dir, err := c.checkpointsIn(dir)
		if err == nil {
			found, err = store.Members(c.fsys, dir)
		}
		if err != nil {
			return out, cobra.ShellCompDirectiveDefault
		}
		for _, n := range slices.Backward(slices.Sorted(maps.Keys(found))) {
			if len(found[n]) > 0 {
				out = append(out, fmt.Sprintf("%s@%d", dir, n))
			}
		}
		return out, cobra.ShellCompDirectiveKeepOrder
	}
	return out, cobra.ShellCompDirectiveDefault
}

// runsLike returns the *.cairn directories whose name begins with word.
func runsLike(word string) []string {
	var out []string
	found, _ := filepath.Glob(globQuote.Replace(word) + "*")
	for _, name := range found {
		if st, err := os.Stat(name); err == nil && st.IsDir() && strings.HasSuffix(name, ".cairn") {
			out = append(out, name)
		}
	}
	return out
}

// globQuote makes a name match itself only.
var globQuote = strings.NewReplacer("*", "[*]", "?", "[?]", "[", "[[]")

// completeValues completes a flag that takes one of these values.
func (*call) completeValues(cmd *cobra.Command, flag string, values ...string) {
	cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completeDirs completes flags that take a directory.
func (*call) completeDirs(cmd *cobra.Command, flags ...string) {
	for _, f := range flags {
		cmd.MarkFlagDirname(f)
	}
}
