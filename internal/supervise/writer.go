//go:build linux

package supervise

import (
	"context"
	"net"

	"github.com/cairnrun/cairn/internal/ckpt"
)

// serveWriter is the helper's side of a rank's writer.
func serveWriter(ctx context.Context, conn *net.UnixConn) error {
	return ckpt.Serve(ctx, conn, ckpt.ServeOptions{})
}
