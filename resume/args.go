package resume

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
)

// useArgs makes a resumed program use other arguments than those of the
// checkpoint: os.Args, and the flags of flag.CommandLine whose values were
// given differently. What the program has computed from the old ones stays.
func useArgs(old, now []string) error {
	os.Args = append(os.Args[:min(1, len(os.Args)):1], now...)
	set := flag.CommandLine
	if !set.Parsed() {
		return nil
	}
	was, _, err := givenFlags(set, old)
	if err != nil {
		return nil // they were parsed in another way
	}
	is, rest, err := givenFlags(set, now)
	if err != nil {
		return err
	}
	set.VisitAll(func(f *flag.Flag) {
		texts, ok := is[f.Name]
		if slices.Equal(texts, was[f.Name]) {
			return
		}
		if !ok {
			texts = []string{f.DefValue}
		}
		for _, text := range texts {
			if e := set.Set(f.Name, text); e != nil && err == nil {
				err = fmt.Errorf("flag -%s=%q: %w", f.Name, text, e)
			}
		}
	})
	assign(set, "args", rest)
	return err
}

// givenFlag records what a flag is set to.
type givenFlag struct {
	texts []string
	bool  bool
}

func (g *givenFlag) String() string     { return "" }
func (g *givenFlag) Set(s string) error { g.texts = append(g.texts, s); return nil }
func (g *givenFlag) IsBoolFlag() bool   { return g.bool }

// givenFlags returns the values that arguments give to the flags of a set, and
// the arguments after them.
func givenFlags(set *flag.FlagSet, args []string) (given map[string][]string, rest []string, err error) {
	shadow := flag.NewFlagSet("", flag.ContinueOnError)
	shadow.SetOutput(io.Discard)
	set.VisitAll(func(f *flag.Flag) {
		b, ok := f.Value.(interface{ IsBoolFlag() bool })
		shadow.Var(&givenFlag{bool: ok && b.IsBoolFlag()}, f.Name, "")
	})
	if err := shadow.Parse(args); err != nil {
		return nil, nil, err
	}
	given = make(map[string][]string)
	shadow.Visit(func(f *flag.Flag) { given[f.Name] = f.Value.(*givenFlag).texts })
	return given, shadow.Args(), nil
}
