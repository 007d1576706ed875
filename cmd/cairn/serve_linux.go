package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/serve"
)

func init() { extra = append(extra, serveCommand) }

// serveCommand is the helper process of libcairn. It is in no list.
func serveCommand(c *call) *cobra.Command {
	return &cobra.Command{
		Use:     "serve DESCRIPTOR",
		Short:   "write the checkpoints of a program that uses libcairn",
		Long:    `libcairn starts one of these for every process. Users do not need it.`,
		Example: `  ./sim  # a program that uses libcairn starts one`,
		Args:    takes(1, 1),
		Hidden:  true,
		RunE: c.does(func(ctx context.Context, c *call) error {
			// Batch systems signal every process of a job. The program decides
			// what a signal means, and its end ends this process.
			signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2)
			fd, err := strconv.ParseUint(c.args[0], 10, 31)
			if err != nil {
				return fmt.Errorf("%q is no descriptor: 'cairn serve' is started by libcairn", c.args[0])
			}
			f := os.NewFile(uintptr(fd), "program")
			conn, err := net.FileConn(f)
			f.Close()
			if err != nil {
				return fmt.Errorf("descriptor %d is no socket: 'cairn serve' is started by libcairn: %w", fd, err)
			}
			program, ok := conn.(*net.UnixConn)
			if !ok {
				conn.Close()
				return fmt.Errorf("descriptor %d is no Unix socket: 'cairn serve' is started by libcairn", fd)
			}
			serve.Unbind()
			return serve.Serve(context.WithoutCancel(ctx), program)
		}),
	}
}
