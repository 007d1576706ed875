// Package transport says how frames move between the ranks of a run. A frame
// is a header of fixed size, whose content is the business of the layer
// above, and a payload of any length. The packages below this one are ways
// to move them: shared memory, TCP, a real MPI library, and plain memory for
// tests. All of them pass the suite in internal/transport/transporttest.
//
//	Driver                 before ranks know each other: makes this rank's address
//	  │ Connect(addresses)     … and, given everybody's addresses,
//	  ▼
//	Link                   moves frames to and from the peers it serves
//	  │ Poll               … when it is asked to, and only then,
//	  ▼
//	Handler                telling the layer above what came, what left, who died
//
// Nothing here starts a goroutine on the path of a message: a link moves
// frames only inside Send and Poll, which one goroutine calls at a time (the
// caller holds a lock). When nothing moves, the caller may sleep until a
// descriptor of the link becomes readable; see Link.Arm.
package transport

import "context"

// HeaderSize is the size of a frame's header.
const HeaderSize = 48

// Header is the head of a frame. Links move it and never look into it.
type Header [HeaderSize]byte

// Driver is a way to reach peers that is not connected yet.
type Driver interface {
	// Name is one word: "shm", "tcp", "mpi", "mem".
	Name() string
	// Address says how this rank is reached. It goes to all peers, as it
	// is. It stays the same for the life of the driver, and no other
	// driver's is the same, one of a later process with the same rank
	// neither.
	Address() []byte
	// Reaches reports whether the peer with that address can be reached, by
	// looking at the address alone. Both sides of a pair must answer alike.
	Reaches(address []byte) bool
	// Connect returns a link to the peers that have an address in
	// addresses, which is indexed by rank; ranks that this link does not
	// serve have nil, and so has the rank itself. All ranks concerned call
	// it at about the same time: it returns when every peer is connected,
	// or with an error that says which one is not when ctx ends. h is
	// called only during Poll, Send and Drop of the link returned.
	//
	// A Driver may be connected again, one call at a time: to other peers
	// while links are open, to the same ones after the link to them was
	// closed. A pair is connected when both call Connect with the address
	// of the other one; a process with another address is not taken for the
	// peer, whatever rank it says it has. (mpilib has one link at a time;
	// see Joiner.)
	Connect(ctx context.Context, addresses [][]byte, h Handler) (Link, error)
	// Close gives back what the driver holds, such as a listening socket.
	// Links are closed before their driver.
	Close() error
}

// Joiner is a Driver that reaches a process which comes later only after all
// its ranks have done something together: those of an MPI library.
type Joiner interface {
	Driver
	// Joins says that some ranks are new, and reports whether Join is to be
	// called, by this rank among others. addresses is indexed by rank and
	// has those of all ranks, its own too; nil where a rank has none. fresh
	// are the ranks that are new. All ranks call it with the same, and
	// those that are told so call Join.
	Joins(addresses [][]byte, fresh []int) bool
	// Join brings this rank together with the others. There is no link, and
	// nothing else is done with the driver meanwhile. After it Reaches
	// knows the new ranks. If it fails here, it may not have failed
	// elsewhere, and nobody can rely on this driver any more.
	Join(ctx context.Context, addresses [][]byte, fresh []int) error
}

// Link moves frames between this rank and the peers it serves. Frames from
// one rank to another arrive whole, once, and in the order of the calls to
// Send. Its methods are called by one goroutine at a time.
type Link interface {
	// EagerLimit is the longest payload, in bytes, that is better sent at
	// once than announced first: one that fits buffers of the link.
	EagerLimit() int
	// Send sends a frame and does not block. It returns true when payload
	// may be changed again; else payload belongs to the link until
	// Handler.Sent is called with token (by a later Poll), and no frame is
	// lost or overtaken meanwhile. A frame to a lost peer is dropped, with
	// true.
	Send(peer int, h *Header, payload []byte, token any) bool
	// Poll moves what can be moved without waiting, and reports whether
	// anything moved. Inside it the handler is called, which may call Send
	// but not Poll.
	Poll() bool
	// Arm prepares for sleep. It returns false if there is something to do
	// already: then the caller polls again. When it returns true, the
	// descriptor FD becomes readable as soon as there is something to do
	// for Poll, a peer that died included. Disarm ends that, and takes out
	// of FD what made it readable.
	Arm() bool
	Disarm()
	// Drop ends the connection with one peer, whose place another process
	// takes; it does not wait, and the handler does not call it. Frames for
	// it that have not left are dropped, and what Send kept of them is
	// given back by Sent meanwhile. After it nothing comes from this peer,
	// Lost neither, and nothing may be sent to it. What the link held for
	// it is given back.
	Drop(peer int)
	// FD is the descriptor to sleep on, or -1: then there is none, and the
	// caller polls again after a short while.
	FD() int
	// Close ends the link. What Send took before has left this process, or
	// the peer is lost; it waits for that, but no longer than ctx.
	Close(ctx context.Context) error
}

// Puller is a Link that can read a peer's memory by itself.
type Puller interface {
	Link
	// CanPull reports whether it can for this peer; it was tried.
	CanPull(peer int) bool
	// Pull fills buf with the peer's memory at addr, which the peer keeps
	// as it is until it is told. An error means that the peer has died.
	Pull(peer int, buf []byte, addr uint64) error
}

// Fragile is a Link that may ask to be closed before the state of the program
// is saved, and connected anew after that.
type Fragile interface {
	Link
	// MustClose reports whether it asks for that.
	MustClose() bool
}

// Handler is the layer above. Its methods are called with the lock held under
// which Poll was called; peer is a rank.
type Handler interface {
	// Arriving says that a frame's header is here and its payload of n
	// bytes follows. It returns where the payload is to go: n bytes, which
	// belong to the link until Arrived, or until Lost if the rest never
	// comes; nil if n is 0. h is valid during the call.
	Arriving(peer int, h *Header, n int) []byte
	// Arrived says that the frame is complete. buf is what Arriving
	// returned. h is valid during the call.
	Arrived(peer int, h *Header, buf []byte)
	// Sent gives back a payload that Send kept.
	Sent(token any)
	// Lost says that a peer is gone, and why. It comes once per peer, and
	// after it nothing more from or for that peer (payloads that Send
	// kept are given back by Sent first).
	Lost(peer int, err error)
}
