//go:build cairnrt

package zstd

import (
	"internal/zstd"
	"io"
)

func newStream(r io.Reader) stream { return zstd.NewReader(r) }
