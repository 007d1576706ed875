package engine

import "syscall"

// ownSession starts a process in a session of its own: a signal to the
// program's process group is not for it.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
