// Package helper is the process that works for a supervisor on one host. It
// starts the ranks there, passes on their messages and output, writes their
// checkpoints, and copies these to the tiers.
//
//	helper, launch, child      the process, one start of its ranks, one rank
//	follow, reserve,           the ranks' output
//	stderr_buffer
//	local_files                the run's directory on this host
//	upload                     checkpoints to shared and s3
//	holder                     copies and shards for other hosts
//	scrub, scrub_repair        old files: read again, and repaired
//	processes, orphan          the end of ranks, and of the supervisor
//	evacuate_when              the command that says when to leave the host
package helper

import "time"

// PingEvery is how often supervisor and helpers check each other.
const PingEvery = 5 * time.Second

// Silence is how long a helper may hear nothing from its supervisor before it
// considers the supervisor lost.
const Silence = 60 * time.Second

// Environment of helpers that a launcher starts, see launcher.go of package
// supervise.
const (
	EnvSupervisor = "CAIRN_SUPERVISOR" // addresses, separated by commas
	EnvSecret     = "CAIRN_SECRET"     // in hexadecimal
	EnvShell      = "CAIRN_SHELL"      // process that started the helper, see spawn.go
)

// StreamMark is the first thing that a helper writes to its stdout. The
// supervisor skips what a login shell prints before.
const StreamMark = "\ncairn-host/1\n"

// EnvParent is the variable by which processes of Open MPI learn that they were
// spawned. It must be removed: the port that it names is empty, and they would
// wait for it.
const EnvParent = "OMPI_PARENT_PORT"

// EnvStay makes a helper wait for the end of all ranks and do nothing else. Its
// value is the launch, a colon, and the run directory.
const EnvStay = "CAIRN_STAY"
