//go:build race

package resume

import (
	"sync/atomic"
	"unsafe"
)

// These are as in state.go, in a way that the race detector accepts.

const raceDetector = true

func get(p *uint32) uint32    { return atomic.LoadUint32(p) }
func set(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

func getPointer(p *unsafe.Pointer) unsafe.Pointer    { return atomic.LoadPointer(p) }
func setPointer(p *unsafe.Pointer, v unsafe.Pointer) { atomic.StorePointer(p, v) }
