// Package journal records the changes that a program makes to files and
// directories, so that a restart can undo those made after a checkpoint.
//
// # What is recorded
//
// The journal of a rank is in the checkpoint directory: a log with one line of
// JSON for each change, and a directory of kept files with what was overwritten
// or removed. Both are written before the program makes its change. A process
// that is killed loses nothing of them: the operating system has them already.
//
//	journal.json   the log
//	journal.head   how many lines of it count
//	journal.kept/  what was overwritten or removed
//	journal.lost   in place of journal.json: a change could not be recorded
//	journal.lock   several ranks: whose turn it is to change a file
//
// With several ranks the names have the rank's number: journal-0001.json.
//
// Changes reach the journal in two ways. The methods of Journal stand for
// functions of package os, such as Remove. Writes to open files are reported by
// package os itself, into which 'cairn build' puts the calls.
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
// In a segment only the first change of a name and of each block of a file is
// recorded: what was there before it was there when the segment began.
//
// # Undo
//
// Open undoes lines from the last to the first, down to the epoch of the newest
// checkpoint. Before it changes anything it verifies the digests of the log and
// of all kept files that it needs; a damaged journal is an error. Each line is
// cut off the log when it is undone, and each can be undone twice, so an undo
// may be killed and repeated.
//
// Several ranks may change one file: ranks.go says how their lines are ordered.
//
// # What is durable when
//
// What a program changes survives a power cut as it survives a kill:
//
//	a line of the log, and the kept file of it    before the change is made
//	files that were changed before a checkpoint   before it is committed
//	files of a run that has finished              before that is recorded
//
// So whatever the program changes later can be undone, even if it reached the
// disk. This costs time where a program changes very many files. CAIRN_SYNC=off
// leaves the first line of the table to the operating system: a kill loses
// nothing then, a power cut may.
package journal
