package mem_test

import (
	"testing"

	"github.com/cairnrun/cairn/internal/transport"
	"github.com/cairnrun/cairn/internal/transport/mem"
	"github.com/cairnrun/cairn/internal/transport/transporttest"
)

func TestTransport(t *testing.T) {
	for _, c := range []struct {
		name string
		o    mem.Options
	}{
		{"Plain", mem.Options{Pull: true}},
		{"Narrow", mem.Options{Window: 1000, EagerLimit: 100}},
		{"Nothing fits", mem.Options{Window: -1}},
		{"NoFD", mem.Options{NoFD: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var f *mem.Fabric
			transporttest.Run(t, transporttest.Transport{
				New: func(n int, dir string) func(int) (transport.Driver, error) {
					f = mem.New(n)
					return func(rank int) (transport.Driver, error) { return f.Driver(rank, c.o), nil }
				},
				NoProcesses: true,
				Kill:        func(rank int) { f.Kill(rank) },
			})
		})
	}
}
