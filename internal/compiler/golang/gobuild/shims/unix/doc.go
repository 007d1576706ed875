// Package unix is the part of golang.org/x/sys/unix that Cairn's run time uses,
// made of package syscall. It takes that package's place in programs that
// Cairn builds: there, nothing outside the standard library can be counted on.
package unix
