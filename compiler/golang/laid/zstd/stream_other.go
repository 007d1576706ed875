//go:build !cairnrt

package zstd

import "io"

// newStream is the other package's Reset and Read in this package's tests. In a
// built program it is stream_laid.go's.
var newStream func(io.Reader) stream
