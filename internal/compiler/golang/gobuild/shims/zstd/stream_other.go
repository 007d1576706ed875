//go:build !cairnrt

package zstd

import "io"

// newStream is set by this package's tests. Built programs have that of
// stream_shim.go.
var newStream func(io.Reader) stream
