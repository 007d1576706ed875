//go:build !linux

package control

import "time"

type systemTimer struct{}

func newSystemTimer(func()) *systemTimer { return nil }

func (*systemTimer) set(time.Duration) bool { return false }

func (*systemTimer) close() {}
