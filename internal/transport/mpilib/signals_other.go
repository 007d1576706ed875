//go:build !linux

package mpilib

// handlers are needed only where libraries can be opened.
type handlers struct{}

func saveHandlers() *handlers { return nil }

func (*handlers) restore() {}
