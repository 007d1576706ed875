// Package shm is the transport between processes of one host: shared memory,
// on Linux. Nothing on the way of a small frame is a system call, an
// allocation or another goroutine.
//
// Every link has an inbox, a file that its rank makes in Connect, and a bell,
// a FIFO beside it. Every peer finds the inbox under a name that is for it
// alone, a hard link. All of these are unlinked when all peers have mapped the
// inbox.
//
//	cairn-RUN-NS-PID-START-NONCE.INBOX         inbox
//	cairn-RUN-NS-PID-START-NONCE.INBOX.bell    bell
//	cairn-RUN-NS-PID-START-NONCE.PEER          name for a peer
//
// NONCE is that of the driver and PEER that of the peer's, which are in their
// addresses; INBOX is a new one for every link. NS is the PID namespace and
// START the time at which the process was started, as the kernel counts: a file
// whose process is gone is removed by the next Open.
//
//	inbox   0     head page   ready u64, NONCE [16], rings u64, ring size u64,
//	                          INBOX [16], at 1024 sleeping u64 (alone in its
//	                          line), at 2048 rank of each ring's writer, u32
//	                          each
//	        4096  ring 0      control page: at 0 read u64 (by the reader), at 64
//	                          blocked u64 and gone u64, at 128 attached u64 and
//	                          the writer's INBOX [16] (by the writer); then the
//	                          ring itself
//	        …     ring 1 …    (the head takes more pages if there are more than
//	                          512 rings)
//
// A pair is connected when each has attached itself to the inbox that the other
// one has written into its own: a Connect that was given up and another one
// after it are not taken for each other.
//
// All is in the byte order of the host. A ring has one writer, a peer, and
// one reader, the rank. In it are records that begin at multiples of 64 bytes
// with a word: the number of bytes in the record, times 256, plus the kind.
// Data may continue at the ring's beginning.
//
//	short    word  header [48]  payload, at most 8                one line of the cache
//	first    word  header [48]  length u64  │ at 64: the first bytes of the payload
//	more     word                           │ at 64: further bytes
//	bye      word                                                 the writer closed
//
// The reader looks at the word where the next record will be, and nothing
// else: for a short frame one line travels from one cache to another. The
// writer sees to it that this word is 0 before it completes the record
// before it, and keeps a few more zero in advance. The reader tells its
// place, read, only every quarter of a ring.
//
// To sleep, a rank sets sleeping in its own inbox and looks once more; who
// writes a word then finds sleeping 1, sets it to 2 and rings the bell. A
// writer that waits for space sets blocked as well. The death of a process
// is seen through its pidfd, which is in the same epoll set as the bell.
package shm

import "errors"

var (
	// ErrDied is the reason of a loss when the peer's process has ended.
	ErrDied = errors.New("its process has died")
	// ErrClosed is the reason of a loss when the peer closed its link.
	ErrClosed = errors.New("it closed its link")
	// ErrCorrupt is the reason of a loss when there is nonsense in the
	// ring.
	ErrCorrupt = errors.New("the shared memory holds what no peer writes")
)

// Options say who a rank is. Host and Run must be the same for all ranks
// that are to reach each other.
type Options struct {
	// Rank is this rank, and Size the number of all; 0 means not known.
	Rank, Size int
	// Host identifies the machine. Ranks with different values do not reach
	// each other.
	Host string
	// Run is part of the files' names, so that those that a crash of the
	// same run left can be removed. It must not contain a slash.
	Run string
	// Dir is where the files are; "" means /dev/shm, or the directory for
	// temporary files where that is missing. It is the same for all ranks.
	Dir string
	// Ring is the size of the ring per peer, a power of two from 4 KiB on;
	// 0 means between 64 and 256 KiB, depending on the number of peers.
	Ring int
	// NoPull turns off reading of the peers' memory.
	NoPull bool
}
