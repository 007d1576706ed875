//go:build !linux

package interconnects

import (
	"context"
	"errors"
)

// Run needs Linux.
func Run(context.Context, Options) ([]Phase, string, error) {
	return nil, "", errors.New("the experiment needs network namespaces, and so Linux")
}
