//go:build !linux

package interconnects

import (
	"context"
	"errors"
)

// Travel needs Linux.
func Travel(context.Context, Options) ([]Phase, string, error) {
	return nil, "", errors.New("the journey needs network namespaces, and so Linux")
}
