package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/web"
)

// defaultHTTP is where 'cairn web' serves its page.
const defaultHTTP = "localhost:8077"

func init() { runCommands = append(runCommands, webCommand) }

func webCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "web [flags] [RUN]",
		Short: "show a run in a browser",
		Long: `Serves one page that shows a run live: its timeline with checkpoints, failures and
lost work, ranks and hosts, storage, output and log. The run may be running, here
or on a host that shares its run directory, or over. RUN is the run directory that
'cairn run' made; if left out, the only *.cairn directory here. 'cairn run --http'
serves the same page as long as the run lasts.

The address that the command prints has a token in it. With this token, the page
has buttons for a checkpoint, a migration, and to save and stop; others can only
look. Everyone who can connect to the address can look, at the output, too. So the
command listens on this machine only, unless --http names another address; from
elsewhere use 'ssh -L 8077:localhost:8077 HOST'. http://localhost:8077/metrics has
metrics for Prometheus (docs/watching.md).`,
		Example: `  cairn web                         # the run in this directory, at http://localhost:8077
  cairn web --http :0 sim.cairn     # at any free port`,
		Args:              takes(0, 1),
		ValidArgsFunction: completeRuns,
	}
	at := cmd.Flags().String("http", defaultHTTP, "listen on `ADDRESS`; without a host, on this machine only")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error {
		if c.json {
			return usagef("web: output is text; 'cairn status --json' has the state as JSON")
		}
		run, err := c.theRun()
		if err != nil {
			return err
		}
		if _, err := client.Read(ctx, run); err != nil {
			return err
		}
		if run, err = filepath.Abs(run); err != nil {
			return err
		}
		l, err := listenHTTP("web", *at)
		if err != nil {
			return err
		}
		s, address := newWeb(l, run)
		defer context.AfterFunc(ctx, s.Close)()
		c.printf("%s\n", address)
		return web.Serve(l, s)
	})
	return cmd
}

// serveWeb shows the run at the address of --http, until stop is called. say
// gets the page's address.
func serveWeb(l net.Listener, run string, say func(string)) (stop func()) {
	s, address := newWeb(l, run)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := web.Serve(l, s); err != nil {
			say(fmt.Sprintf("the page is not served any more: %v; the run continues", err))
		}
	}()
	say("watch this run at " + address)
	return func() {
		s.Close()
		<-ended
	}
}

// newWeb returns a server for a listener, and the address of its page.
func newWeb(l net.Listener, run string) (*web.Server, string) {
	token := rand.Text()
	host, port, _ := net.SplitHostPort(l.Addr().String())
	a, err := netip.ParseAddr(host)
	local := err == nil && a.IsLoopback()
	return web.New(run, token, local), fmt.Sprintf("http://%s/#token=%s", net.JoinHostPort(host, port), token)
}

// listenHTTP listens on an address of --http, on loopback unless it names a
// host.
func listenHTTP(command, at string) (net.Listener, error) {
	if !strings.Contains(at, ":") {
		at = ":" + at
	}
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return nil, usagef("%s: --http %s: %v; write HOST:PORT, such as %s", command, at, err, defaultHTTP)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(host, "localhost"), port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, usagef("%s: --http %s: another program listens there; choose another port, or 0 for a free one", command, at)
	}
	if err != nil {
		return nil, usagef("%s: --http %s: %v", command, at, err)
	}
	return l, nil
}
