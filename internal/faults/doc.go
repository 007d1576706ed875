// Faults is the fault campaign. It disturbs programs in all ways in which a
// machine, a network, a disk and a user can disturb them. They must end with
// the results of an undisturbed run, or be refused clearly with nothing lost.
// "make faults" runs it.
//
// A case is one disturbed run. What happens in it is a function of a seed and
// the case's number:
//
//	seed, number ─▶ kind of fault, program, moments ─▶ disturbed run ─▶ outcome
//	                                                        │
//	              undisturbed run of the plain program ─────┘ compared: stdout,
//	                                                          exit status, files
//
// Outcomes are:
//
//	same      the results are those of the undisturbed run
//	refused   Cairn ended with an error that says what is wrong; when the
//	          fault was undone, the same command completed with the right results
//	WRONG     it ended as if all were well, with other results
//	LOST      work that was safe is gone, or the run cannot be completed
//	HANG      nothing moved for a minute
//
// A run that ended before it could be disturbed does not count as a case.
//
// Kinds whose name begins with "sim-" run inside this process on a simulated
// file system (internal/vfs). All others use real processes, signals, disks and
// networks. The two are counted separately.
//
// Each case is a line of JSON in a state directory. The same command continues
// a campaign that was interrupted, and skips the cases that are recorded.
// "faults -case N -v" repeats a case.
package main
