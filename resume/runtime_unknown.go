//go:build !(cairn_runtime && cairn_goroutines && go1.26 && !go1.27 && !race && !msan && !asan && (amd64 || arm64))

package resume

import "sync"

// Nothing is known of the Go runtime's channels and mutexes: bare waits select,
// and locks use TryLock.

const plainWaits = false

func tryPlainWaits() {}

// BareLock stands for m.Lock().
func BareLock(m *sync.Mutex) { bareLockMutex(m) }

// Unlock stands for m.Unlock().
func Unlock(m *sync.Mutex) { unlockMutex(m, false) }

func (c *cutState) interruptBareWaits() {}

func (g *routine) inBareSelect() bool { return false }
