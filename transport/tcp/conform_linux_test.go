package tcp

import (
	"testing"

	"github.com/cairnrun/cairn/transport"
	"github.com/cairnrun/cairn/transport/conform"
)

const noPull = "sockets cannot read the memory of a peer"

func TestConform(t *testing.T) {
	conform.Run(t, conform.Transport{
		New: func(n int, dir string) func(int) (transport.Driver, error) {
			return func(rank int) (transport.Driver, error) {
				return Open(Options{Rank: rank, Size: n, Secret: testSecret})
			}
		},
		Sizes: []int{directSize, eagerLimit, bufferSize - frameHead, bufferSize, 4 << 20},
		Skip:  map[string]string{"Pull": noPull, "PullKilled": noPull},
	})
}
