//go:build !linux

package p2p

import "time"

// sleeper does nothing on systems where runs have one rank.
type sleeper struct{}

func (s *sleeper) init() error { return nil }
func (s *sleeper) close()      {}
func (s *sleeper) wake()       {}
func (s *sleeper) broadcast()  {}

func (s *sleeper) sleep(e *Engine) {
	e.mu.Unlock()
	time.Sleep(time.Millisecond)
	e.lock()
}
