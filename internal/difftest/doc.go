// Package difftest tests Cairn's compiler from the outside, on programs that do
// not use Cairn.
//
// testdata/progs has small programs, each for some part of the language or of
// the standard library. Each is built by the go command and by "cairn build".
// The second program is killed at its points, and must leave the same output,
// exit status and files as the first. testdata/refused has programs whose state
// cannot be saved in principle: the tool must say so, or choose another place.
// Lines that the tests read:
//
//	//difftest:args -n 5 x    arguments of the program
//	//difftest:exit 3         its exit status
//	//difftest:stdin FILE     its standard input, from the directory "in"
//	//difftest:refuse REGEXP  what the tool says about it
//	//difftest:supervised     without a supervisor, its output before main is
//	                          repeated
//	//difftest:killed 5       it can be saved at point 5 and at some before, and
//	                          is killed there
//	//difftest:daily          the program is tried every day, not only by
//	                          CAIRN_LONG=1
//	for … { //difftest:loop   a loop that gets a point; others get none
//	for … { //difftest:loop unsaved   a loop that asks for one, and gets none
//
// A program that calls moment.Pass is also killed there: between points, when
// it has read and changed files since the last checkpoint.
//
// The files of a program's directory "in" are in its working directory when it
// starts.
//
// The tests also generate random programs (Generate), some with goroutines
// (GenerateConcurrent), which are compared in the same way, and shrink those
// that fail (Shrink).
//
// The daily suite tries few programs: together they execute nearly every
// statement of the rewriter that any program executes. CAIRN_LONG=1 tries all
// of them; CAIRN_DIFFTEST_PROGRAMS=REGEXP tries those whose names match.
//
// If a program has few points, tests kill it at all of them, otherwise at some;
// and at a random moment. With -short, they kill at some points only.
// CAIRN_LONG=1: at many more, and at random moments that are spread over the
// whole run (TestRandomMoments_Killed; CAIRN_SEED=N draws the same again,
// CAIRN_MOMENTS=N draws that many). CAIRN_DIFFTEST_AUTO=1: the unchanged
// source, so that Cairn chooses the loops. CAIRN_DIFFTEST_SEEDS=FROM-TO: random
// programs of these seeds. CAIRN_DIFFTEST_COMMAND=PATH: a cairn command to use
// instead of one built here. CAIRN_DIFFTEST_KEEP=1: keep what was built.
// CAIRN_DIFFTEST_REPORT=FILE: write results there as they come.
package difftest
