// Package conf has package variables that depend on another package.
package conf

import "progs/initorder/unit"

var Mode = "mode of " + unit.Name
var Table = map[string]int{"size": unit.Size * 2}
var history []string

func init() { history = append(history, Mode) }

// Set changes the mode and remembers the old one.
func Set(m string) {
	history = append(history, Mode)
	Mode = m
	Table["size"] += len(m)
}

func History() []string { return history }
