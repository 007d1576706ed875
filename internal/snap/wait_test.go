package snap

import (
	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/mem"
)

// digests starts Digests and waits.
func digests(e interface {
	Digests([]mem.Extent) (func() ([]xxh3.Uint128, error), error)
}, at []mem.Extent) ([]xxh3.Uint128, error) {
	wait, err := e.Digests(at)
	if err != nil {
		return nil, err
	}
	return wait()
}
