// Faults is the fault campaign: programs are disturbed in all ways that a
// machine, a network, a disk and a user can disturb them, and must end with
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
// A run that ended before it could be disturbed is no case, and is not counted.
//
// Kinds whose name begins with "sim-" run inside this process on a simulated
// file system (internal/vfs); all others are real processes, signals, disks
// and networks. They are counted apart.
//
// Each case is a line of JSON in a state directory. A campaign that was ended
// is continued by the same command, and skips the cases that are there. "faults
// -case N -v" repeats one.
package main
