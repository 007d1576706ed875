// Package mpi is MPI's vocabulary for Go: communicators, point-to-point
// messages, wildcards, probes and collectives, straight on the caller's
// slices. A program gets its communicator from its run:
//
//	p, err := cairn.Open(ctx, cairn.Options{Dir: "ckpt"})
//	world := p.World()
//	right := (world.Rank() + 1) % world.Size()
//	left := (world.Rank() + world.Size() - 1) % world.Size()
//	_, err = mpi.Sendrecv(world, out, right, 0, in, left, 0)
//
// Elements may be of any type of fixed size without pointers: numbers, bools,
// arrays and structs of those. Nothing is encoded; between machines of
// different byte order the receiver turns values round.
//
// MPI's rules hold: messages from one rank to another with the same
// communicator and tag are received in the order in which they were sent; a
// blocking send may or may not wait for its receive; a rank may use its
// communicators from several goroutines. When a rank of the run dies, all
// operations end with an error that wraps ErrLost.
//
// Messages in flight, and receives that are pending at a checkpoint, are part
// of it: protect the *Request like any other variable.
package mpi
