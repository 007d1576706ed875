//go:build !race

package resume

import "unsafe"

// raceDetector says that the program is built with the race detector.
const raceDetector = false

// get and set access a word that one goroutine writes and others sometimes
// read. All processors that Go supports read and write it as a whole; the order
// does not matter.
func get(p *uint32) uint32    { return *p }
func set(p *uint32, v uint32) { *p = v }

// getPointer and setPointer do the same for pointers.
func getPointer(p *unsafe.Pointer) unsafe.Pointer    { return *p }
func setPointer(p *unsafe.Pointer, v unsafe.Pointer) { *p = v }
