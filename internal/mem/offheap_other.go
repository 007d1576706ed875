//go:build !linux

package mem

func reserveOffHeap(int64) []byte { return nil }

func releaseOffHeap([]byte, int) {}

func freeOffHeap([]byte) {}
