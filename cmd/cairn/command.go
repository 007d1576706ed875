package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/vfs"
)

// command is an entry of the table of commands.
type command struct {
	name     string
	args     string // as the usage line shows them
	min, max int    // how many arguments it takes; max -1: any number
	tail     bool   // flags stand before the first argument; what follows it is not ours
	exits    string // exit codes of its own, for its help
	brief    string // one line
	about    string // the paragraphs of its help
	examples []example
	// setup declares the command's own flags and returns what to do once
	// they have been read.
	setup func(f *flag.FlagSet) action
}

type example struct{ line, meaning string }

// action does a command's work. It returns errFound when all went well and
// there is something to tell by the exit code.
type action func(ctx context.Context, c *call) error

// call is one use of a command.
type call struct {
	args   []string
	json   bool // one JSON document instead of text
	quiet  bool // no progress
	stdout *output
	stderr io.Writer
	fsys   vfs.FS
	now    time.Time
}

// commands is the table of commands, in the order help shows them.
func commands() []command {
	return []command{
		runCommand(), statusCommand(), checkpointCommand(), stopCommand(), migrateCommand(),
		listCommand(), inspectCommand(), verifyCommand(), diffCommand(),
		exportCommand(), gcCommand(), devicesCommand(),
		explainCommand(), buildCommand(), instrumentCommand(), versionCommand(), helpCommand(),
	}
}

// run is the whole program: it does what args say and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := &call{stdout: &output{w: stdout}, stderr: stderr, fsys: vfs.OS(), now: time.Now()}
	err := dispatch(ctx, c, args)
	if c.stdout.err != nil {
		err = fmt.Errorf("the output could not be written: %w", c.stdout.err)
	}
	code := exitCode(err)
	if code > exitFound && err.Error() != "" {
		fmt.Fprintf(stderr, "cairn: %s\n", describe(err))
	}
	return code
}

// dispatch finds the command and runs it.
func dispatch(ctx context.Context, c *call, args []string) error {
	var early []string // flags that stand before the command
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		switch name := strings.TrimLeft(args[0], "-"); name {
		case "h", "help":
			args = []string{"help"}
		case "version":
			args = append([]string{"version"}, args[1:]...)
		case "json", "quiet", "q":
			early = append(early, args[0])
			args = args[1:]
		default:
			return usagef("unknown flag %s before a command%s; flags of a command stand after its name", args[0], suggest(name, []string{"help", "version", "json", "quiet"}, "--"))
		}
	}
	if len(args) == 0 {
		return usagef("no command given\n\n%s", strings.TrimSuffix(overview(), "\n"))
	}
	all := commands()
	if args[0] == hostCommand().name { // for 'cairn run', not for people
		all = append(all, hostCommand())
	}
	i := slices.IndexFunc(all, func(cmd command) bool { return cmd.name == args[0] })
	if i < 0 {
		return unknownCommand(args[0])
	}
	return all[i].invoke(ctx, c, append(early, args[1:]...))
}

func unknownCommand(name string) error {
	var names []string
	for _, cmd := range commands() {
		names = append(names, cmd.name)
	}
	return usagef("unknown command %q%s; 'cairn help' lists all", name, suggest(name, names, ""))
}

// invoke reads the flags and arguments of a command and runs it.
func (cmd *command) invoke(ctx context.Context, c *call, args []string) error {
	f, do := cmd.flags(c)
	wantsHelp, err := c.parse(f, args, cmd.tail)
	if err != nil {
		return usagef("%s: %v; see 'cairn help %s'", cmd.name, err, cmd.name)
	}
	if wantsHelp {
		_, err := io.WriteString(c.stdout, cmd.help())
		return err
	}
	if n := len(c.args); n < cmd.min || cmd.max >= 0 && n > cmd.max {
		problem := "an argument is missing"
		if n > cmd.max && cmd.max >= 0 {
			problem = fmt.Sprintf("too many arguments: %s", strings.Join(c.args[cmd.max:], " "))
		}
		return usagef("%s: %s; usage: %s", cmd.name, problem, cmd.usage())
	}
	if i := slices.Index(c.args, ""); i >= 0 && (i == 0 || !cmd.tail) {
		return usagef("%s: an argument is empty (a variable of the shell that is not set?); usage: %s", cmd.name, cmd.usage())
	}
	return do(ctx, c)
}

// flags returns the command's flags, the common ones too, and its action.
func (cmd *command) flags(c *call) (*flag.FlagSet, action) {
	f := flag.NewFlagSet(cmd.name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.BoolVar(&c.json, "json", false, "print one JSON document instead of text")
	f.BoolVar(&c.quiet, "quiet", false, "show no progress (-q)")
	return f, cmd.setup(f)
}

// parse reads args, in which flags and arguments may stand in any order; "--"
// ends the flags, and so does the first argument if tail is set.
func (c *call) parse(f *flag.FlagSet, args []string, tail bool) (wantsHelp bool, err error) {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			c.args = append(c.args, args...)
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			c.args = append(c.args, arg)
			if tail {
				c.args = append(c.args, args...)
				break
			}
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
		switch name {
		case "h", "help":
			return true, nil
		case "q":
			name = "quiet"
		}
		def := f.Lookup(name)
		if def == nil && !hasValue && arg[1] != '-' && strings.Trim(name[1:], "0123456789") == "" { // -n4
			if def = f.Lookup(name[:1]); def != nil {
				name, value, hasValue = name[:1], name[1:], true
			}
		}
		if def == nil {
			return false, fmt.Errorf("unknown flag %s%s", arg, suggest(name, flagNames(f), "--"))
		}
		if b, ok := def.Value.(interface{ IsBoolFlag() bool }); !hasValue && ok && b.IsBoolFlag() {
			value = "true"
		} else if !hasValue {
			if len(args) == 0 {
				return false, fmt.Errorf("%s needs a value", dashed(name))
			}
			value, args = args[0], args[1:]
		}
		if err := f.Set(name, value); err != nil {
			what, _ := flag.UnquoteUsage(def)
			switch what {
			case "":
				what = "true or false"
			case "N":
				what = "a whole number"
			case "DURATION":
				what = "a time such as 10s or 10m"
			}
			return false, fmt.Errorf("%q is no value for %s, which takes %s", value, dashed(name), what)
		}
	}
	return false, nil
}

func flagNames(f *flag.FlagSet) []string {
	var out []string
	f.VisitAll(func(d *flag.Flag) { out = append(out, d.Name) })
	return append(out, "help")
}

// suggest returns a question about the known name closest to name, or nothing
// when none is close.
func suggest(name string, known []string, prefix string) string {
	best, least := "", len(name)/2+1
	for _, k := range known {
		d := distance(name, k)
		if len(name) > 1 && strings.HasPrefix(k, name) {
			d = 0
		}
		if d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s%s?)", prefix, best)
}

// distance is the number of letters to change, add, drop or swap with their
// neighbour to make b of a.
func distance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
