// Package serve lets programs that are not written in Go use a run. libcairn,
// which is linked into such a program, starts a process that calls Serve, or
// finds one, and talks to it over a Unix socket:
//
//	program (C, Fortran, Python)                    helper (Serve)
//
//	variables ──copy──▶ mirror (shared memory) ──▶  engine.Run: plan, digest,
//	     ▲                 │                        write, publish, prune
//	     └─────copy────────┘ ◀── restore ─────────
//	points, requests ───▶ page (shared memory) ◀──  a checkpoint is due
//	          ◀────────── messages ──────────────▶
//
// The mirror holds a copy of every protected variable. At a point that saves,
// the program copies what changed to the mirror, sends Save and continues. The
// helper's run protects the copies as if they were its own variables, so that
// everything else is as in a Go program, and the file is the same.
//
// The helper digests and writes the mirror as it is, without another copy. So
// the program changes nothing in it from Save until it gets News of that
// checkpoint, or of a later one; its next save waits for the News. A program
// that has lost the connection waits for the end of the helper. While the
// helper still reads the mirror, it sends no News, whatever other ranks report.
// If the program dies, the helper still has the mirror, and publishes the
// checkpoint.
//
// Restore reads into the mirror, too, and checks every byte there. While the
// helper reads, the program exchanges the parts that are right (Checked) with
// its variables, and copies small variables at the end. If a later part turns
// out to be damaged, it exchanges them again, the last one first, because
// variables may share memory: after an error its variables have the values that
// they had.
//
// The program's files are shared, too: it sends their descriptors, and the run
// records, cuts back and positions them.
//
// With several ranks each has a helper. The programs exchange the addresses of
// the helpers (Gather), and the helpers agree on commits and restarts as Go
// ranks do. The programs agree among themselves at which point they save. It
// must be a safe point.
//
// # Messages
//
// A message is a kind and a length (32 bits each) and that many bytes. Numbers
// are little-endian, texts and lists have a 32-bit length in front.
//
//	program → helper                                          answer
//	Hello     magic version byteorder pid rank ranks release   Welcome
//	          dir every points mtbf keep bases memory
//	          compression tiers flags; descriptors of page, mirror
//	Extent    (from to)…           parts of the mirror         none
//	Vars      dropped names; (name offset dims type)…          Done
//	File      id path flags mode; descriptor                   Done claimed
//	Stored    index name           index 0: the newest         Done type dims
//	Restore   how claimed… unclaimed   how 1: load nothing     Done yes index points unclaimed
//	Save      points why closed-files (from to)…               Done index
//	Finish    status                                           Done
//	Bye                                                        the helper ends
//	Gathered  a text per rank; empty: to Checked 0 0           none
//	List                           checkpoints, newest first   Done indices
//	Read      index name offset dims type    into the mirror   Done
//	Variables index                index 0: the newest         Done (name type dims)…
//	Make      dir path flags       a file that must be new     Done again
//
//	helper → program
//	Welcome   version release rank ranks points index resuming
//	Done      see above
//	Failed    status text          in place of Welcome or Done
//	Gather    bytes                the program exchanges them with all ranks
//	News      index text           a checkpoint is durable, or was not saved
//	Checked   from to              this part of a variable in the mirror has what Restore
//	                               is to bring; 0 0: none has, exchange them again (Gathered)
//
// Unclaimed are the files of the restored checkpoint that the program has not
// opened again: a list of numbers and texts, or nothing. Claimed is the number
// of the one that it opens, plus 1. If the program loses its helper, it gives
// both to the next one.
//
// The descriptors of Hello must be sealed against shrinking (F_SEAL_SHRINK): a
// program that took memory away would end its helper.
//
// The page has seven numbers. The helper sets wake (32 bits), the program the
// others: step (32 bits), points, paused, copied and until (64 bits each), and
// filling (32 bits). Filling is 1 while the program still copies to the mirror
// after Save: the second half of its largest variable, or GPU memory. The
// helper writes the mirror meanwhile, but not what lies from the offset copied
// to the offset until. Filling is 0 at the end, and more than 1 if the copy
// failed. The helper waits on step, a futex, which changes after copied, until
// and filling. Paused says in nanoseconds for how long the program was paused.
package serve
