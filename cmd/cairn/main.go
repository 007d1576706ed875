// Command cairn runs programs, restarts them after failures, and manages their
// checkpoints: it lists, inspects, verifies, compares, exports and removes
// them.
//
//	main.go         signals and the exit code
//	root.go         the commands in their groups; finding and running one
//	flags.go        unknown flags and wrong values
//	help.go         help texts; man.go: manual pages, with the build tag man
//	errors.go       exit codes; errors as users read them
//	completion.go   shell completion
//	terminal.go     whether a file is a terminal, and how wide it is
//	target.go       what CHECKPOINT and DIR on a command line mean
//	summary.go      a checkpoint in a few numbers
//	text.go         sizes, ages, tables, JSON
//	progress.go     the progress line; reporter.go: the steps of a build
//	run_events.go   what run does with events; detach_linux.go: without a
//	                terminal
//	top_frame.go    the picture of 'cairn top'
//	screen.go       what 'cairn run' shows; display_queue.go: without blocking
//	list.go, …      one file per command
//	run_source.go   what run does with source; run_input.go: with stdin
//	host.go         the helper that 'cairn run' starts on each host
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
