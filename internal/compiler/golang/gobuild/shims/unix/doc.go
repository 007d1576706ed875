// Package unix is the part of golang.org/x/sys/unix that Cairn's run time uses,
// built on package syscall. It replaces that package in programs that Cairn
// builds, which can rely on the standard library only.
package unix
