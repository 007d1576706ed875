//go:build race

package resume

import "sync/atomic"

// These are as in state.go, in a way that the race detector accepts.

const raceDetector = true

func get(p *uint32) uint32    { return atomic.LoadUint32(p) }
func set(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
