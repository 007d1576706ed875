// Command cairn runs programs and brings them back after failures, and looks
// after checkpoints: it lists, explains, checks, compares, exports and removes
// the sets that runs leave behind.
//
//	main.go      signals and the exit code
//	root.go      the commands in their groups, and how one is found and run
//	flags.go     flags that are unknown or have a wrong value
//	help.go      help texts; man.go: manual pages, with the build tag man
//	errors.go    exit codes, and errors as people read them
//	completion.go  what shells complete
//	terminal.go  whether a file is a terminal, and how wide it is
//	target.go    what SET and DIR on a command line mean
//	summary.go   a set in a few numbers
//	text.go      sizes, ages, tables, JSON
//	progress.go  the progress line
//	screen.go    what 'cairn run' shows; lane.go: without waiting for it
//	list.go …    one file per command; run_build.go is what run does with source,
//	             input.go what it does with stdin, host.go its helper's side
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ctx.Done()
		time.Sleep(time.Second) // launchers may send the same signal twice
		stop()                  // from now on a signal ends the process at once
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
