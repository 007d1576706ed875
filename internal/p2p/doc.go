// Package p2p is the point-to-point layer: it matches messages with receives
// by MPI's rules, above any mixture of transports, and counts them per peer,
// so that a checkpoint can tell when nothing is in flight.
//
// A message travels in one of three ways:
//
//	eager       sender ── Eager(payload) ──▶ receiver
//	rendezvous  sender ── Announce ───▶ receiver        large, or too large for the link
//	            sender ◀── Ready ────── receiver        … when a receive matches
//	            sender ── Data(payload) ──▶ receiver    straight into the receive's buffer
//	pull        sender ── Announce(address) ──▶ receiver
//	            receiver reads the sender's memory by itself
//	            sender ◀── Done ─────── receiver
//
// Nothing runs in the background: the caller of a blocking operation drives
// all links (see Engine.step), spins for a while, and then sleeps until a
// descriptor says that there is something to do.
//
// The frame header, in little-endian order:
//
//	 0 kind   1 byte order of the payload (bit 0: little, bit 1: an int has 32 bits)   2 –
//	 4 context u32   8 tag i32
//	12 epoch u32   16 number of the message in its pair, or of the leave (Pause, Reattach) u64   24 length u64
//	32 request of the sender (Announce, Ready, Done) or receiver (Data) u64
//	40 address (Announce) or request of the receiver (Ready) u64
//
// # Checkpoints
//
// While a rank is held at a point (Pause), whole messages keep coming in until
// the totals that its peers name are reached; announced ones are fetched. What
// then lies here unreceived is part of the set (Capture), and is put back
// after a restart (RestoreInflight). Every message carries the number of sets its
// sender has taken (the epoch): a peer that goes on earlier than this rank
// sends messages of the next epoch, which are kept aside until this rank has
// copied its state, too.
//
// # Moves
//
// Another process can take a rank's place (see move.go): all ranks take leave
// of it (Detach), it hands over its counts (Counters), and they connect with its
// successor (Relink), or go on with it (Reattach).
package p2p
