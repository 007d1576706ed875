// Package rundir is the directory of a run: its record, its locks, its control
// socket, and the names of the files in it. The supervisor owns the directory;
// helpers and commands read it and lock their parts.
//
//	RUN/
//	  lock              locked by the supervisor (flock)
//	  run.json          what is run and how far it came; replaced atomically
//	  run-copy.json     the same, in case that it is damaged
//	  log               one line per event
//	  events.jsonl      the same with figures, for programs (package events)
//	  detached.log      what a detached supervisor has shown
//	  control.sock      for cairn status, checkpoint, stop, migrate
//	  evacuate          written by people: hosts to evacuate at SIGUSR2
//	  hosts/NAME.lock   locked by the helper of that host; lists its ranks
//	  output/           rank-0000.out, rank-0000.err, …
//	  output-offsets    how much of these has been shown
//	  ckpt/             checkpoint directory of programs that name none
package rundir

import "errors"

// RequeueLock is the lock of the helper that watches a Slurm job.
const RequeueLock = "requeue.lock"

// Errors about a run directory.
var (
	ErrBusy    = errors.New("another supervisor runs this run")
	ErrDiffers = errors.New("the run directory belongs to another command")
	ErrNoRun   = errors.New("not a run directory")
)

// States of a run.
const (
	Starting    = "starting"
	Running     = "running"
	Waiting     = "waiting" // until the next attempt after a failure
	Stopping    = "stopping"
	Stopped     = "stopped"
	Finishing   = "finishing" // the ranks have finished; the output is being completed
	Finished    = "finished"
	Failed      = "failed"
	Interrupted = "interrupted" // its supervisor is gone
	Silent      = "silent"      // its supervisor does not answer
)
