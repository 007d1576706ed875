package graph

// parts are values with CairnState that packages keep for a program.
var parts []any

// Part makes v, a pointer to a value with CairnState, part of the state of a
// program that is saved as a whole. What is restored is a new value: its method
// puts things right. It is called from init.
func Part(v any) { parts = append(parts, v) }

// Parts returns them.
func Parts() []any { return parts }

// IsWhole reports whether the program is saved as a whole.
func IsWhole() bool { return whole }
