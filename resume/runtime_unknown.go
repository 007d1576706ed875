//go:build !(cairn_runtime && cairn_goroutines && go1.26 && !go1.27 && !race && !msan && !asan && (amd64 || arm64))

package resume

import "sync"

// Nothing is known of the Go runtime's channels and mutexes: bare waits select,
// and locks use TryLock.

const plainWaits = false

func tryPlainWaits() {}

// Lock stands for m.Lock().
func Lock(m *sync.Mutex) { lockMutex(m) }

// Barging reports that TryLock is not to be tried.
func Barging() bool { return false }

// TryLock stands for m.TryLock().
func TryLock(m *sync.Mutex) bool { return m.TryLock() }

// Unlock stands for m.Unlock().
func Unlock(m *sync.Mutex) { unlockMutex(m, false) }

// Signal stands for c.Signal().
func Signal(c *sync.Cond) { signalCond(c) }

// Broadcast stands for c.Broadcast().
func Broadcast(c *sync.Cond) { broadcastCond(c) }

type bareWaits struct{}

func (c *cutState) bareWaits() bareWaits { return bareWaits{} }

func (bareWaits) interrupt() {}

func (g *routine) inBareSelect() bool { return false }

func (g *routine) inBareReceive() bool { return false }

// awaitTicket waits until a ticket is called. It returns false if a cut is
// wanted.
func awaitTicket(g *routine, c *sync.Cond, ticket uint32) bool { return ticketFor(g, c, ticket) }

func creators() map[string]int { return nil }
