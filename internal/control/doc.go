// Package control is the protocol of a supervised run: the messages that its
// processes exchange, and the connections that carry them.
//
//	cairn run ── supervisor ──── cairn status, checkpoint, stop, migrate   (control.sock)
//	   │ socketpair, a remote shell's stdin and stdout, or TCP
//	   └─ helper, one per host
//	         │ socketpair, descriptor CAIRN_CONTROL of the rank
//	         └─ rank
//
// There is one Go type per kind of message. On the wire a message is
//
//	┌────────────┬───────────────────────────────┐
//	│ length u32 │ {"kind":"saved","body":{…}}   │   big-endian; length counts the JSON
//	└────────────┴───────────────────────────────┘
//
// A receiver refuses a message of an unknown kind, and one with impossible
// values (ErrMalformed). A TCP connection begins with a handshake, in which
// both sides prove that they know the run's secret (see Client and Server).
//
// A rank and its helper:
//
//	rank                              helper
//	  Hello                      →
//	                             ←    Welcome
//	  Endpoint                   →         when the endpoints of all ranks are there
//	                             ←    Endpoints
//	  Restored                   →         or it found nothing to restore
//	  Progress                   →         about twice a second
//	                             ←    Checkpoint   to rank 0, or to any rank
//	  Saved, or SaveFailed       →
//	  Committed                  →         every rank has saved it
//	  RolledBack                 →         all ranks have, after one lost a device
//	                             ←    Lost         another rank is gone
//	  Stopped, or Finished       →
//
// A rank that moves to another host (docs/migration.md): the source is the
// process that the rank leaves, the destination the process that takes over.
//
//	destination   source      others       supervisor
//	  Listening ─────────────────────────▶   it waits for the state
//	                ◀──────────────────────  Precopy: send state while the program computes
//	               Precopied ────────────▶   little is left to send
//	                ◀───────────◀──────────  Pause: pause at one common point
//	               Paused ───────────────▶
//	               Sent ─────────────────▶   the destination has all of the state
//	  Received ──────────────────────────▶   … and could continue
//	                ◀──────────────────────  Switch{OK}
//	               HandedOver ───────────▶   the helper kills the source
//	  ◀─────────────────────────◀──────────  Switch{OK, Endpoints}
//	  Linked ──────────────── Linked ────▶   all ranks continue
//
// A helper forwards what a rank says to the supervisor in a FromRank, and what
// the supervisor says to a rank comes in a ToRank.
package control
