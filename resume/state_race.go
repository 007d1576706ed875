//go:build race

package resume

import "sync/atomic"

// As in state.go, such that the race detector does not mind.
func get(p *uint32) uint32    { return atomic.LoadUint32(p) }
func set(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// Unwinding is as in state.go.
func Leaving() bool { return get(&state) == leaving }
