// Package p2p is the point-to-point layer. It matches messages with receives by
// MPI's rules, over any mixture of transports, and counts messages per peer, so
// that a checkpoint knows when nothing is in flight.
//
// A message is sent in one of three ways:
//
//	eager       sender ── Eager(payload) ──▶ receiver
//	rendezvous  sender ── Announce ───▶ receiver        large, or too large for the link
//	            sender ◀── Ready ────── receiver        … when a receive matches
//	            sender ── Data(payload) ──▶ receiver    straight into the receive's buffer
//	            … in several Data frames if either side is no ordinary memory: see flow.go
//	pull        sender ── Announce(address) ──▶ receiver
//	            receiver reads the sender's memory by itself
//	            sender ◀── Done ─────── receiver
//
// Nothing runs in the background. The caller of a blocking operation polls all
// links (see Engine.until), spins for a while, and then sleeps until a
// descriptor becomes readable.
//
// The frame header, in little-endian order:
//
//	 0 kind
//	 1 byte order of the payload (bit 0: little, bit 1: an int has 32 bits)
//	 2 –
//	 4 context u32   8 tag i32 (Rollback: the rank that began it)
//	12 epoch u32
//	16 number of the message in its pair, of the Detach or Rollback; offset of
//	   the part (Ready, Data) u64
//	24 length (Ready: of the part, 0: all) u64
//	32 request of the sender (Announce, Ready, Done) or receiver (Data) u64
//	40 address (Announce) or request of the receiver (Ready) u64
//
// # Checkpoints
//
// While a rank is paused at a point (Pause), messages keep coming in until the
// totals that its peers have announced are reached. Announced messages are
// fetched. The messages that the program has not received then are part of the
// checkpoint (Capture), and are put back after a restart (RestoreInflight).
// Every message carries the number of checkpoints that its sender has taken
// (the epoch). A peer that continues earlier than this rank sends messages of
// the next epoch. They are deferred until this rank has copied its state, too.
//
// # Migration
//
// Another process can replace a rank (see migrate.go). All ranks detach from it
// (Detach), and it hands over its counters (Counters). Then they connect with
// the destination (Relink), or use the old links again (Reattach).
//
// # Rollback
//
// All ranks can return to a checkpoint without new processes and new links (see
// rollback.go). Every rank sends a Rollback frame to every other one. Frames
// that come before it are dropped.
//
// # Files
//
//	engine.go       an engine: its state, and the frames that links deliver
//	connect.go      endpoints, the choice of transports, links
//	request.go      sends, receives and probes
//	flow.go         messages of memory that links cannot reach
//	match.go        posted receives and unexpected messages
//	wait.go         polling and blocking; sleep_*.go: sleeping
//	checkpoint.go   messages and receives in a checkpoint
//	migrate.go      links when a rank moves
//	rollback.go     the same links after all ranks have rolled back
//	replay.go       messages that a destination's program gets again
//	frame.go        the frame header
package p2p
