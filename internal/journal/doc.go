// Package journal records the changes that a program makes to files and
// directories, so that a restart can undo those made after a checkpoint.
//
// # What is recorded
//
// The journal of a rank is in the checkpoint directory. It has a log with one
// line of JSON for each change, and a directory of kept files, which hold the
// content that was overwritten or removed. Both are written before the program
// makes its change. If the process is killed, nothing of them is lost: the
// operating system has them already.
//
//	journal.json   the log
//	journal.head   how many lines of it count
//	journal.kept/  what was overwritten or removed
//	journal.lost   in place of journal.json: a change could not be recorded
//	journal.names  files that were changed in epochs that are not in the log any
//	               more
//	journal.lock   several ranks: whose turn it is to change a file
//
// With several ranks the names have the rank's number: journal-0001.json.
//
// The journal learns of changes in two ways. The program calls methods of
// Journal in place of functions of package os, such as Remove. Package os
// itself reports writes to open files: 'cairn build' puts the calls into it.
//
// An epoch is the time from one checkpoint to the next. A segment is a piece of
// an epoch in which no existing file got another name:
//
//	checkpoint 7               checkpoint 8
//	 │ epoch 12                  │ epoch 13
//	 │ segment 0  │ segment 1    │ segment 0
//	 │ name data  │ size         │ data data      ✗ kill
//	              └ a file was renamed
//
// In a segment, only the first change of each name and of each block of a file
// is recorded. Before that change, the name or block was as it was when the
// segment began, and an undo needs nothing else.
//
// # Undo
//
// Open undoes lines from the last to the first, down to the epoch of the newest
// checkpoint. Before it changes anything, it verifies the digests of the log
// and of all kept files that it needs; a damaged journal is an error. When a
// line is undone, it is removed from the log. A line may be undone twice, so a
// process may be killed during an undo, and the next one repeats it.
//
// Several ranks may change one file: ranks.go says how their lines are ordered.
//
// # Snapshots
//
// If the host is lost with its disk, another host needs the files as they were
// at the checkpoint. Snapshot finds them while the program runs: it reads the
// files, then the journal, and undoes the changes in what it has read. See
// snapshots.go.
//
// # What is durable when
//
// What a program changes survives a power cut as it survives a kill:
//
//	a line of the log, and the kept file of it    before the change is made
//	files that were changed before a checkpoint   before it is committed
//	files of a run that has finished              before that is recorded
//
// So every later change can be undone, even if it reached the disk. This makes
// a program slower that changes very many files. With CAIRN_SYNC=off, the
// operating system decides when the first line of the table is durable. Then a
// kill still loses nothing, but a power cut may.
package journal
