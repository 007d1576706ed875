package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/supervise"
)

func init() { extra = append(extra, tiersCommand, proxyCommand) }

// tiersCommand is the tier helper of a program. It is in no list.
func tiersCommand(c *call) *cobra.Command {
	return &cobra.Command{
		Use:     "_tiers",
		Short:   "keep the checkpoints of a program on its tiers",
		Long:    `A program with Options.Tiers starts one of these. Users do not need it.`,
		Example: `  ./sim  # a program with Options.Tiers starts one`,
		Args:    takes(0, 0),
		Hidden:  true,
		RunE: c.does(func(ctx context.Context, _ *call) error {
			// Batch systems signal every process of a job. The program decides
			// what a signal means, and its end ends this process.
			signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2)
			conn, err := net.FileConn(os.Stdin)
			if err != nil {
				return err
			}
			program, ok := conn.(*net.UnixConn)
			if !ok {
				conn.Close()
				return errors.New("stdin is no Unix socket: a program with Options.Tiers starts 'cairn _tiers'")
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			return supervise.ServeProgram(context.WithoutCancel(ctx), program, self)
		}),
	}
}

// proxyCommand takes the place of a program that runs already. It is in no
// list.
func proxyCommand(c *call) *cobra.Command {
	return &cobra.Command{
		Use:     "_proxy",
		Short:   "stand for a program with tiers among the processes of a host",
		Long:    `The tier helper of a program starts one of these. Users do not need it.`,
		Example: `  ./sim  # a program with Options.Tiers starts one`,
		Args:    takes(0, 0),
		Hidden:  true,
		RunE:    c.does(func(context.Context, *call) error { return supervise.RunProxy() }),
	}
}
