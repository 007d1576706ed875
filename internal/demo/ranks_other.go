//go:build !linux

package main

import (
	"context"
	"fmt"
)

// ranks is for Linux, as runs of several ranks are.
func ranks(context.Context, string) (bool, error) {
	fmt.Println("\nRuns of several ranks need Linux.")
	return true, nil
}
