//go:build !linux

package control

import "errors"

// TakeStdout fails on this system, where nothing is supervised.
func TakeStdout(string) (func(bool), error) {
	return nil, errors.New("standard output cannot be turned on this system")
}

// TakeStderr fails on this system, where nothing is supervised.
func TakeStderr(string) error { return errors.New("standard error cannot be turned on this system") }
