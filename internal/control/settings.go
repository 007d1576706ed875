package control

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Setting is an option of a run: the value that counts, and where it comes
// from.
type Setting struct {
	Name  string `json:"name"` // as the flag of 'cairn run', without dashes
	Value string `json:"value"`
	From  string `json:"from"` // one of the constants below
}

// Where a setting comes from, in the order of precedence.
const (
	FromFlag        = "flag"
	FromEnvironment = "environment"
	FromFile        = "cairn.toml"
	FromProgram     = "program" // its Options
	FromDefault     = "default"
)

// SettingVariable returns the environment variable of a setting.
func SettingVariable(name string) string {
	return "CAIRN_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// ParseBytes reads a number of bytes, such as 512M or 64GiB.
func ParseBytes(text string) (int64, error) {
	number, unit := text, ""
	if i := strings.IndexFunc(text, func(c rune) bool { return (c < '0' || c > '9') && c != '.' }); i >= 0 {
		number, unit = text[:i], strings.TrimSpace(text[i:])
	}
	letter := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(unit), "B"), "I")
	power := strings.Index("_KMGTP", letter)
	if letter == "" {
		power = 0
	}
	n, err := strconv.ParseFloat(number, 64)
	if n *= math.Pow(1024, float64(power)); err != nil || power < 0 || len(letter) > 1 || letter == "_" || n < 0 || n > math.MaxInt64/2 {
		return 0, fmt.Errorf("%q is not a number of bytes, such as 512M or 64G", text)
	}
	return int64(n), nil
}

// ParseInterval reads a duration above zero, such as 10m.
func ParseInterval(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not a duration such as 10m", text)
	}
	return d, nil
}
