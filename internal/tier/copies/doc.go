// Package copies is the protocol by which the helpers of a run's hosts copy
// objects of checkpoints to each other. It has no I/O, clock or goroutines.
// Each helper has a Node. It takes events (a checkpoint is to be kept, a
// message has come, bytes are on disk) and returns actions (send this, transfer
// these bytes, remove that object). The caller, here called the driver, carries
// the actions out.
//
// Words: the owner of a part is the host whose rank has saved it; a holder is a
// host that gets copies or shards of its objects. Package recovery has the
// others.
//
// # One object
//
//	owner                             holder
//	  Offer ──────────────────────────▶   it has none, and room for one more
//	    ◀────────────────────── Want ──   (or Have: nothing to send)
//	  the bytes ══════════════════════▶   to disk, digest compared, durable
//	    ◀──────────────────── Stored ──   (or Failed: no room; offered again later)
//
// # One part
//
// A part tells which objects a rank needs, so it comes last:
//
//	Part ───────────────────────────▶   all objects that the owner believes
//	                                    to be there are there
//	  ◀──────────────── PartStored ──   (or Lacks: these are not; they are
//	                                    offered again)
//
// The owner reports a checkpoint as stored when all holders have said
// PartStored for all its parts.
//
// # Losses
//
// A connection that breaks loses what was on its way: the owner offers again
// what was not stored, and asks again for the parts that were; the holder
// forgets what it was about to get. A new connection to a host replaces the old
// one: the driver calls Down, then Up. A host that
// is lost leaves the View, which the supervisor makes; then other hosts are
// holders, and get what they do not have. A holder that finds an object damaged
// says Gone.
//
// # Removing
//
// The supervisor says which checkpoints each tier retains. A host removes
// objects that no retained part of its own disk needs, and that nobody has
// offered for a retained checkpoint: the latter are on their way to have a part.
// A checkpoint must be retained until a newer one is stored.
package copies
