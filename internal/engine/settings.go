package engine

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// setting is an option that 'cairn run' and the environment can set in place of
// the program.
type setting struct {
	name  string
	set   func(o *Options, text string) error
	value func(o *Options) string // "": the program does not set it
	usual string                  // the default
}

// optimum is the interval of Options.Auto.
const optimum = "Young's and Daly's optimum"

var settings = []setting{
	{"every", func(o *Options, s string) (err error) {
		if s == "auto" {
			o.Every, o.Auto = 0, true
			return nil
		}
		o.Every, err = control.ParseInterval(s)
		return err
	}, func(o *Options) string {
		if o.Every == 0 && o.Auto {
			return optimum
		}
		return durationText(o.Every)
	}, optimum},
	{"every-points", func(o *Options, s string) (err error) {
		o.EveryPoints, err = atLeast(1, s, "points")
		return err
	}, func(o *Options) string { return numberText(int64(o.EveryPoints)) }, "never"},
	{"mtbf", func(o *Options, s string) (err error) {
		o.MTBF, err = control.ParseInterval(s)
		return err
	}, func(o *Options) string { return durationText(o.MTBF) }, "24h0m0s"},
	{"keep", func(o *Options, s string) (err error) {
		o.Keep, err = atLeast(1, s, "checkpoints")
		return err
	}, func(o *Options) string { return numberText(int64(o.Keep)) }, "2"},
	{"disk-limit", func(o *Options, s string) (err error) {
		o.DiskLimit, err = control.ParseBytes(s)
		return err
	}, func(o *Options) string { return bytesText(o.DiskLimit) }, "none"},
	{"memory", func(o *Options, s string) (err error) {
		o.Memory, err = control.ParseBytes(s)
		return err
	}, func(o *Options) string { return bytesText(o.Memory) }, "the size of the state"},
	{"compression", func(o *Options, s string) error {
		c := Compression(s)
		if s == "none" {
			c = None
		}
		if c != None && c != Zstd && c != Gzip || s == "" {
			return fmt.Errorf("there is no compression %q; there are none, zstd and gzip", s)
		}
		o.Compression = c
		return nil
	}, func(o *Options) string { return string(o.Compression) }, "none"},
	{"bases", func(o *Options, s string) error {
		n, err := atLeast(0, s, "bases")
		if o.MaxBases = n; n == 0 {
			o.MaxBases = -1 // all checkpoints are full
		}
		return err
	}, func(o *Options) string {
		if o.MaxBases < 0 {
			return "0"
		}
		return numberText(int64(o.MaxBases))
	}, "64"},
	{"tracking", func(o *Options, s string) error {
		on, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", s)
		}
		o.NoTracking = !on
		return nil
	}, func(o *Options) string {
		if o.NoTracking {
			return "false"
		}
		return ""
	}, "true"},
}

// Settings returns the names of all settings.
func Settings() (names []string) {
	for _, s := range settings {
		names = append(names, s.name)
	}
	return names
}

// CheckSetting reports whether a setting can have this value.
func CheckSetting(name, value string) error {
	for _, s := range settings {
		if s.name == name {
			return s.set(&Options{}, value)
		}
	}
	return fmt.Errorf("there is no setting %q", name)
}

// settle completes the options: what 'cairn run' says comes first, then the
// environment, then the program's own options. It returns the values that
// apply.
func (o *Options) settle(given map[string]string) ([]control.Setting, error) {
	var list []control.Setting
	for _, s := range settings {
		variable := control.SettingVariable(s.name)
		value, from, by := given[s.name], control.FromFlag, "--"+s.name
		if value == "" {
			value, from, by = os.Getenv(variable), control.FromEnvironment, variable
		}
		switch {
		case value != "":
			if err := s.set(o, value); err != nil {
				return nil, fmt.Errorf("cairn: %s: %w", by, err)
			}
		case s.value(o) != "":
			from = control.FromProgram
		default:
			value, from = s.usual, control.FromDefault
		}
		list = append(list, control.Setting{Name: s.name, Value: cmp.Or(s.value(o), value), From: from})
	}
	return list, nil
}

// setOutside reports whether 'cairn run' or the environment set one of the
// options.
func (p *Run) setOutside(names ...string) bool {
	return slices.ContainsFunc(p.settled, func(s control.Setting) bool {
		return slices.Contains(names, s.Name) && s.From != control.FromProgram && s.From != control.FromDefault
	})
}

// leadSettings returns the settings of the rank that reports them.
func (p *Run) leadSettings() []control.Setting {
	if !p.leads {
		return nil
	}
	return p.settled
}

func atLeast(least int, text, what string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least {
		return 0, fmt.Errorf("%q is not a number of %s, %d or more", text, what, least)
	}
	return n, nil
}

func numberText(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func bytesText(n int64) string {
	if n == 0 {
		return ""
	}
	return control.BytesText(n)
}
