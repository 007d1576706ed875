//go:build unix

package resume

import "syscall"

func killSelf() { syscall.Kill(syscall.Getpid(), syscall.SIGKILL) }
