// Package transport defines how frames move between the ranks of a run. A frame
// is a header of fixed size, which only the layer above reads, and a payload of
// any length. The packages below this one move frames through shared memory,
// TCP, a real MPI library, and, for tests, plain memory. All of them pass the
// tests in internal/transport/transporttest.
//
//	Driver                 before ranks know each other: has this rank's address
//	  │ Connect            … and, given the addresses of all ranks,
//	  ▼
//	Link                   moves frames to and from the peers it serves
//	  │ Poll               … only when it is called,
//	  ▼
//	Handler                and reports frames that came or left, and lost peers
//
// No goroutine is started on the path of a message. A link moves frames only
// inside Send and Poll, which one goroutine at a time calls, under the caller's
// lock. When nothing moves, the caller may sleep until a descriptor of the link
// becomes readable; see Link.Arm.
package transport

import "context"

// HeaderSize is the size of a frame's header.
const HeaderSize = 48

// Header is the head of a frame. Links move it without reading it.
type Header [HeaderSize]byte

// Driver is a way to reach peers. It is not connected yet.
type Driver interface {
	// Name is one word: "shm", "tcp", "mpi", "mem".
	Name() string
	// Address returns how peers reach this rank. All peers get it
	// unchanged. It stays the same for the life of the driver, and no other
	// driver has the same one, not even that of a later process with the
	// same rank.
	Address() []byte
	// Reaches reports whether the peer with this address can be reached,
	// judging by the address alone. Both sides of a pair must get the same
	// result.
	Reaches(address []byte) bool
	// Connect returns a link to the peers that have an address in
	// addresses, which is indexed by rank. Ranks that the link does not
	// serve have nil, and so has the rank itself. All ranks concerned call
	// Connect at about the same time. It returns when every peer is
	// connected, or when ctx ends, with an error that names a missing peer.
	// The link calls h only during its Poll, Send and Drop.
	//
	// A Driver may connect again, one call at a time: to other peers while
	// links are open, or to the same peers after the link to them was
	// closed. A pair is connected when each calls Connect with the address
	// of the other. A process with another address is not accepted as the
	// peer, whatever rank it claims. (mpilib has one link at a time; see
	// Joiner.)
	Connect(ctx context.Context, addresses [][]byte, h Handler) (Link, error)
	// Close gives back what the driver holds, such as a listening socket.
	// Links are closed before their driver.
	Close() error
}

// Joiner is a Driver that reaches a process which started later only after all
// its ranks have called Join together. MPI libraries need this.
type Joiner interface {
	Driver
	// Joins reports whether this rank must call Join, because some ranks
	// are new. addresses is indexed by rank, and has the addresses of all
	// ranks including this one, or nil where a rank has none. fresh are the
	// new ranks. All ranks call Joins with the same arguments.
	Joins(addresses [][]byte, fresh []int) bool
	// Join connects this rank's process with the new ones. There is no
	// link, and the driver is not used otherwise meanwhile. After Join,
	// Reaches accepts the new ranks. If Join fails on this rank, it may
	// have succeeded on others, so nobody can use this driver any more.
	Join(ctx context.Context, addresses [][]byte, fresh []int) error
}

// Link moves frames between this rank and the peers it serves. Frames from one
// rank to another arrive complete, once, and in the order of the calls of Send.
// One goroutine at a time calls its methods.
type Link interface {
	// EagerLimit returns the longest payload, in bytes, that is better sent
	// at once than announced first, because it fits in buffers of the link.
	EagerLimit() int
	// Send sends a frame and does not block. If it returns true, payload
	// may be changed. Else payload belongs to the link until a later Poll
	// calls Handler.Sent with token. No frame is lost or overtaken
	// meanwhile. A frame to a lost peer is dropped, and Send returns true.
	Send(peer int, h *Header, payload []byte, token any) bool
	// Poll moves what can be moved without waiting, and reports whether
	// anything moved. It calls the handler, which may call Send but not
	// Poll.
	Poll() bool
	// Arm prepares for sleep. It returns false if there is something to do:
	// then the caller polls again. If it returns true, the descriptor FD
	// becomes readable as soon as there is something to do for Poll,
	// including the death of a peer. Disarm ends that, and resets FD.
	Arm() bool
	Disarm()
	// Drop ends the connection with one peer, which another process
	// replaces. It does not wait, and the handler must not call it. Frames
	// for the peer that were not sent are dropped, and their payloads are
	// returned by Sent meanwhile. After Drop nothing comes from this peer,
	// not even Lost, and nothing may be sent to it. The link frees what it
	// held for the peer.
	Drop(peer int)
	// FD returns the descriptor to sleep on. If it is -1, there is none,
	// and the caller polls again after a short while.
	FD() int
	// Close ends the link. It waits until everything that Send accepted has
	// left this process or the peer is lost, but no longer than ctx.
	Close(ctx context.Context) error
}

// Puller is a Link that can read a peer's memory.
type Puller interface {
	Link
	// CanPull reports whether this works for a peer. The link has tried it.
	CanPull(peer int) bool
	// Pull fills buf with the peer's memory at addr. The peer does not
	// change the memory until it is told. An error means that the peer has
	// died.
	Pull(peer int, buf []byte, addr uint64) error
}

// Fragile is a Link that may have to be closed before the program's state is
// saved, and connected again afterwards.
type Fragile interface {
	Link
	// MustClose reports whether that is so.
	MustClose() bool
}

// Handler is the layer above. Its methods are called under the lock under which
// Poll was called. peer is a rank.
type Handler interface {
	// Arriving says that a frame's header has come and that its payload of
	// n bytes follows. It returns the buffer for the payload: n bytes,
	// which belong to the link until Arrived, or until Lost if the rest
	// never comes; nil if n is 0. h is valid during the call.
	Arriving(peer int, h *Header, n int) []byte
	// Arrived says that the frame is complete. buf is the result of
	// Arriving. h is valid during the call.
	Arrived(peer int, h *Header, buf []byte)
	// Sent returns a payload that Send kept.
	Sent(token any)
	// Lost says that a peer is lost, and why. It is called once per peer.
	// After it, nothing more concerns this peer: payloads that Send kept
	// are returned by Sent before.
	Lost(peer int, err error)
}
