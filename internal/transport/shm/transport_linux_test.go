package shm

import (
	"path/filepath"
	"testing"

	"github.com/cairnrun/cairn/internal/transport"
	"github.com/cairnrun/cairn/internal/transport/transporttest"
)

func TestTransport(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
	}{
		{"Plain", Options{}},
		{"Narrow", Options{Ring: minRing, NoPull: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			transporttest.Run(t, transporttest.Transport{
				New: func(n int, dir string) func(int) (transport.Driver, error) {
					return func(rank int) (transport.Driver, error) {
						o := c.o
						o.Rank, o.Size, o.Host, o.Run = rank, n, "here", filepath.Base(filepath.Dir(dir))
						return Open(o)
					}
				},
				Sizes: []int{inline, 4 << 10, 32 << 10, 256 << 10, 256<<10 - line},
			})
		})
	}
}
