//go:build !linux

package engine

import "syscall"

func ownSession() *syscall.SysProcAttr { return nil }
