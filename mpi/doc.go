// Package mpi passes messages between the ranks of a run. It has MPI's
// operations: communicators, sends and receives, wildcards, probes and
// collectives. They work on the caller's slices, without encoding or copying.
//
// A program gets its first communicator, which holds all ranks, from its run.
// Each rank then knows its number and the number of ranks:
//
//	func main() {
//		run, err := cairn.Open(context.Background(), cairn.Options{Dir: "ckpt"})
//		if err != nil {
//			log.Fatal(err)
//		}
//		defer run.Close()
//		world := run.World()
//		part := []float64{float64(world.Rank())}
//		total := make([]float64, 1)
//		if err := mpi.Allreduce(world, part, total, mpi.Sum); err != nil {
//			log.Fatal(err)
//		}
//		fmt.Println("the sum of all ranks is", total[0])
//	}
//
// Local starts ranks as goroutines of one process, for tests and experiments.
//
// # Elements
//
// The elements of a message may have any type of fixed size without pointers:
// numbers, bools, and arrays and structs of them. Between machines of different
// byte order, the receiver swaps the bytes.
//
// # Messages
//
// MPI's rules hold:
//
//   - Messages from one rank to another with the same communicator and tag are
//     received in the order in which they were sent.
//   - A blocking send may wait for its receive, or may not.
//   - A rank may use its communicators from several goroutines.
//
// When a rank of the run dies, all operations fail with an error that wraps
// ErrLost. When one rolls back, they fail with ErrRollback until this rank
// does, too.
//
// A checkpoint holds the messages in flight and the pending receives. To have a
// pending receive restored, protect its *Request like any other variable.
//
// # Arrays on devices
//
// The functions that end in Array send and receive arrays of package device,
// and views of them. They behave like those for slices, and match with them: a
// rank may receive into a slice what another one sends from an array.
//
// # Collectives
//
// All ranks of a communicator call a collective, in the same order on every
// rank, and from one goroutine of a rank at a time. A collective returns when
// this rank's part is done. The caller may then use the buffers again, but
// other ranks may still be at work. Only Barrier guarantees that all ranks have
// called it.
//
// A rank checks its arguments before it sends anything. A wrong length, count
// or root gives ErrArgument. This rank then takes no part in the collective,
// and the others wait for it until it ends or dies.
//
// Ranks notice only by their messages that their arguments do not match. A
// message that is shorter or longer than expected gives ErrMismatch or
// ErrTruncated on the rank that receives it. Ranks may wait for each other
// forever, as in every MPI, if they disagree about the root or the order of
// their calls, or if their lengths differ so much that they choose different
// algorithms. After such an error the buffers may still be written to, and the
// results are invalid: end the run.
//
// Reductions give the same bits in every run, on every rank and over every
// transport; see Op.
//
// # Files
//
//	comm.go                communicators, errors, constants
//	send_receive.go        blocking messages and probes
//	request.go             messages that complete later
//	collective.go          what all collectives share; Barrier and Bcast
//	collective_gather.go   Gather, Scatter, Allgather, Alltoall
//	collective_reduce.go   Reduce, Allreduce, ReduceScatter, Scan
//	array.go               messages of arrays on devices; array_collective.go
//	vector.go              slices and arrays as arguments of collectives
//	op.go                  operations for reductions
//	byteorder.go           messages between different machines
//	local.go               ranks in one process
package mpi
