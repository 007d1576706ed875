package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// checkFlags refuses flags that cmd does not have. It returns args with two
// dashes before every long flag; users may write one, as for the go command. It
// stops at "--", and if tail is set, at the first argument: what follows
// PROGRAM belongs to the program.
func checkFlags(cmd *cobra.Command, args []string, tail bool) ([]string, error) {
	cmd.InheritedFlags() // merges them
	flags := cmd.Flags()
	flags.AddFlagSet(cmd.PersistentFlags())
	out := slices.Clone(args)
	for i := 0; i < len(out); i++ {
		arg := out[i]
		if arg == "--" {
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			if tail {
				break
			}
			continue
		}
		name, _, hasValue := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
		flag := flags.Lookup(name)
		switch {
		case arg[1] == '-':
		case flag != nil && len(name) > 1:
			out[i] = "-" + arg
		case name != "" && strings.Trim(name[1:], "0123456789") == "": // -n, -n4
			flag = flags.ShorthandLookup(name[:1])
			hasValue = hasValue || len(name) > 1
		}
		if flag == nil {
			return nil, unknownFlag(cmd, arg, name)
		}
		if !hasValue && flag.NoOptDefVal == "" {
			i++
		}
	}
	return out, nil
}

func unknownFlag(cmd *cobra.Command, arg, name string) error {
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	hint := suggest(name, known, "--")
	if !cmd.HasParent() {
		return usagef("unknown flag %s before the command%s; flags of a command stand after its name", arg, hint)
	}
	return usagef("%s: unknown flag %s%s; see 'cairn help %s'", cmd.Name(), arg, hint, cmd.Name())
}

// flagError describes what is wrong with the value of a flag.
func flagError(cmd *cobra.Command, err error) error {
	var missing *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &missing):
		err = fmt.Errorf("%s needs a value", dashed(missing.GetFlag()))
	case errors.As(err, &invalid):
		what, _ := pflag.UnquoteUsage(invalid.GetFlag())
		switch what {
		case "":
			what = "true or false"
		case "N":
			what = "a whole number"
		case "DURATION":
			what = "a duration such as 10s or 10m"
		}
		err = fmt.Errorf("%q is not a value for %s, which takes %s", invalid.GetValue(), dashed(invalid.GetFlag()), what)
	}
	if !cmd.HasParent() {
		return usagef("%v; see 'cairn help'", err)
	}
	return usagef("%s: %v; see 'cairn help %s'", cmd.Name(), err, cmd.Name())
}

// dashed returns a flag as users write it.
func dashed(f *pflag.Flag) string {
	if f.Shorthand != "" {
		return "-" + f.Shorthand
	}
	return "--" + f.Name
}

// suggest returns "(did you mean …?)" with the known names that are most
// similar to name, or "" if none is similar.
func suggest(name string, known []string, prefix string) string {
	if name == "" {
		return ""
	}
	list := &cobra.Command{}
	for _, k := range known {
		list.AddCommand(&cobra.Command{Use: k, Run: func(*cobra.Command, []string) {}})
	}
	var found []string
	for distance := 0; len(found) == 0; distance++ {
		if distance > min(2, (len(name)+1)/2) {
			return ""
		}
		list.SuggestionsMinimumDistance = distance
		found = list.SuggestionsFor(name)
	}
	for i, f := range found {
		found[i] = prefix + f
	}
	return fmt.Sprintf(" (did you mean %s?)", strings.Join(found, " or "))
}
