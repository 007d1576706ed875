// Package oracle tests Cairn's compiler on programs that were not written for
// it: the test programs of the Go installation, GOROOT/test, about 1,000 of
// which begin with "// run" or "// rundir".
//
// Each is built by the go command and by Cairn's compiler, with a point in
// every loop and every function (InstrumentOptions.Everywhere), and run
//
//   - plain, twice: what differs between these runs is not compared;
//   - as Cairn built it, without checkpoints;
//   - killed at points, with growing distances, and restarted each time;
//   - with a checkpoint at every point, or at 200 of them if there are more.
//
// Output, exit status and files must be equal. testdata/without.txt lists the
// programs that Cairn refuses, those that reach no point where a checkpoint can
// be taken, and those that detect that their process has changed, each with the
// reason. The list may only shrink: a program that is refused and not listed
// fails the test, and so does one that is listed and no longer refused.
// CAIRN_GOROOT_LIST=FILE writes the list of the programs that were tried to
// FILE.
//
// The daily suite takes a fixed sample. CAIRN_LONG=1 takes all programs (about
// an hour on two cores); CAIRN_GOROOT=REGEXP takes those whose names match.
// CAIRN_GOROOT_RESULTS=FILE keeps results: a run that was stopped continues
// there, as long as the test binary is the same. CAIRN_ORACLE_KEEP=1 keeps what
// was built.
package oracle
