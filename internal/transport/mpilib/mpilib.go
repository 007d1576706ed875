// Package mpilib moves frames through a real MPI library, which is opened at
// run time: one binary runs with Open MPI 4 (libmpi.so.40) and with MPICH and
// its relatives (libmpich.so.12, libmpi.so.12), and without any.
//
// A program that mpirun or srun started finds the library that belongs to its
// launcher; see Options. MPI can be initialised once in the life of a process:
// Open does it and Close of the driver ends it, after which no driver can be
// opened again in that process. All processes of the world call Open, and
// Close, at about the same time: MPI may wait for them.
//
// MPI is initialised for calls from any thread, one at a time
// (MPI_THREAD_SERIALIZED): whoever uses a driver and its link holds one lock
// for both.
//
// # An address
//
//	"cnMp" version=2 | rank in the MPI world, 4 bytes little | identity of the world, 16 |
//	digest of the library's version, 8 bytes little | name of the port, to the end
//
// Those of version 1 end with the identity. Only a process that came later has
// a port.
//
// # Connecting
//
// Both ranks of a pair send "hello, I am in round g" and answer the other's
// with "I saw your g": two words of 4 bytes, kind and g, little byte order,
// under tag 1. A rank counts its rounds by itself. Frames for it carry tags
// made of its g, so that nothing left over from before a Close is taken for
// something new.
//
// A driver has one link at a time.
//
// # Joining
//
// The processes of an MPI world are those that it began with. One that takes
// another one's place has a world of its own; see Driver.OpenPort and
// Driver.Join, which bring both together with MPI_Comm_connect and
// MPI_Comm_accept. Open MPI 4 needs an ompi-server for that, which both
// launches are told of, and can do it on one host only: its mpirun crashes when
// the processes that connect are on several. Those that it has started itself
// it can connect anywhere, without a server: Driver.Spawn has it start one. Of
// MPICH, builds with UCX cannot, which OpenPort finds out. What cannot be
// joined is reached by other transports.
//
// MPI_Finalize waits for all processes of the world that one began in. Once one
// of them has left, or others have joined, it is not called any more.
//
// # Frames
//
// Frames are MPI messages of bytes on a communicator of their own:
//
//	tag 16+2g   kind, 2 bytes | length of payload, 6 bytes | header, 48 |
//	            payload, if it is short
//	tag 17+2g   payload, if it is long, in pieces of at most 1 GiB
//
// Short messages go through buffers of the link; long payloads lie where the
// sender has them and arrive where they are to be. MPI keeps the order of each
// tag, and a frame that overtakes a long payload waits for it. The last message
// of a rank that closes its link has a kind of its own.
//
// # Progress
//
// MPI works only while it is called, and some of that work is for others: a
// rank that has received a long payload may owe its sender a last message. If
// it neither polls nor calls Driver.Progress, that sender waits, and its
// payload is not given back, however often it polls itself. So a rank that
// waits for others by other means than this link, or computes for long, calls
// Driver.Progress from time to time.
//
// # Death
//
// A peer is lost when it closed its link, or when MPI returns an error for it.
// Most libraries and launchers end all processes when one dies.
package mpilib

import (
	"errors"

	"github.com/cairnrun/cairn/internal/dl"
)

// EnvLibrary is the environment variable that names the library to open,
// before anything else is considered.
const EnvLibrary = "CAIRN_LIBMPI"

var (
	// ErrNoLibrary is the error of Open when no MPI library can be opened.
	ErrNoLibrary = errors.New("no MPI library")
	// ErrFinished is the error of Open after MPI was ended in this process.
	ErrFinished = errors.New("MPI was ended in this process and cannot be started again")
	// ErrNotConnected is the error of a Connect that did not reach all
	// peers.
	ErrNotConnected = errors.New("not connected")
	// ErrUnsupported is the error of Open in a build without libraries.
	ErrUnsupported = dl.ErrUnsupported
)

// Options says how to open a driver. The zero value is right for a program
// that a launcher started.
type Options struct {
	// Library is the path or the name of the library to open. The default
	// is the environment variable CAIRN_LIBMPI, then the library that
	// belongs to the launcher that started this process, then any that is
	// installed.
	Library string

	// Tests replace these.
	getenv func(string) string
	piece  int
}
