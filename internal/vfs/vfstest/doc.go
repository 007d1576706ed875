// Package vfstest has file systems for tests and measurements: one in memory
// that can lose what a power cut would take, one that fails on request, and one
// that keeps nothing. Rot damages a file on disk.
package vfstest
