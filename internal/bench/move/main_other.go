//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "move: network namespaces, which are the hosts here, need Linux")
	os.Exit(1)
}
