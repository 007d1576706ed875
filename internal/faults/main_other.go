//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "faults: the campaign needs Linux, as cairn run does")
	os.Exit(1)
}
