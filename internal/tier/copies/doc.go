// Package copies is the protocol by which the helpers of a run's hosts copy
// objects of checkpoints to each other. It has no I/O, clock or goroutines.
// Each helper has a Node. It takes events (a checkpoint is to be kept, a
// message has come, bytes are on disk) and returns actions (send this, transfer
// these bytes, remove that object). The caller, here called the driver, carries
// the actions out.
//
// The owner of a part is the host whose rank has saved it. A holder is a host
// that gets copies or shards of the part's objects. Package recovery explains
// the other words.
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
// A connection that breaks loses what was on its way. The owner offers again
// what was not stored, and asks whether the parts that were stored are still
// there. The holder forgets what it was about to get. A new connection to a
// host replaces the old one: the driver calls Down, then Up. When a host is
// lost, the supervisor makes a View without it: other hosts become holders, and
// get what they do not have. A holder that finds an object damaged sends Gone.
//
// # Removing
//
// The supervisor says which checkpoints each tier retains. A host removes an
// object if no retained part on its disk needs it, and no owner has offered it
// for a retained checkpoint: the part of such an object is still to come. The
// supervisor must retain a checkpoint until a newer one is stored.
package copies
