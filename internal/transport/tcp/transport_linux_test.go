package tcp

import (
	"testing"

	"github.com/cairnrun/cairn/internal/transport"
	"github.com/cairnrun/cairn/internal/transport/transporttest"
)

const noPull = "sockets cannot read the memory of a peer"

func TestTransport(t *testing.T) {
	transporttest.Run(t, transporttest.Transport{
		New: func(n int, dir string) func(int) (transport.Driver, error) {
			return func(rank int) (transport.Driver, error) {
				return Open(Options{Rank: rank, Size: n, Secret: testSecret})
			}
		},
		Sizes: []int{directSize, eagerLimit, bufferSize - frameHead, bufferSize, 4 << 20},
		Skip:  map[string]string{"Pull": noPull, "PullKilled": noPull},
	})
}
