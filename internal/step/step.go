// Package step names the places of Cairn's own work at which a test may stop
// or kill the process. At does nothing unless the environment says so:
//
//	CAIRN_STEP=NAME=ACTION      act when the step NAME is reached,
//	CAIRN_STEP=NAME#3=ACTION    when it is reached for the third time
//	CAIRN_STEP_LOG=FILE         append a line "NAME PID" for each step reached
//
// ACTION is "kill" (SIGKILL for the process itself) or "stop" (SIGSTOP: it
// waits until somebody continues or kills it). Several NAME=ACTION are
// separated by commas; NAME may end in "*".
//
// With a log, steps are counted over all processes that share it, so that an
// action is taken once, whatever is started again; without one, each process
// counts for itself. The line is in the log before the action is taken. A test
// that waits for a step waits for its line; one that wants to know which steps
// there are runs once with a log and no action.
package step

// At says that the process has reached the step of that name, such as
// "finish.begin".
func At(name string) {
	if active {
		at(name)
	}
}
