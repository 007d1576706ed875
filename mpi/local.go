package mpi

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/cairnrun/cairn/internal/p2p"
	"github.com/cairnrun/cairn/internal/transport"
	"github.com/cairnrun/cairn/internal/transport/mem"
)

// Local runs body on n ranks in this process, each in a goroutine with its
// own communicator, and returns when all have ended. It is for tests of
// programs, and for trying things out; when a body returns an error or
// panics, the others' operations end with ErrLost.
func Local(n int, body func(c *Comm) error) error {
	if n < 1 {
		return fmt.Errorf("mpi: %w: %d ranks", ErrArgument, n)
	}
	return local(n, mem.Options{}, func(*p2p.Config) {}, body)
}

// local is Local with ranks that differ, as vary says.
func local(n int, o mem.Options, vary func(*p2p.Config), body func(c *Comm) error) error {
	fabric := mem.New(n)
	exchange := newExchange(n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			failed := true
			defer func() {
				if failed {
					fabric.Kill(r)
				}
			}()
			cfg := p2p.Config{Rank: r, Size: n, Drivers: []transport.Driver{fabric.Driver(r, o)}, Oversubscribed: true, Exchange: exchange.put(r)}
			vary(&cfg)
			e, err := p2p.New(cfg)
			if err == nil {
				err = e.Connect(context.Background())
			}
			if err == nil {
				if err = body(World(e)); err == nil {
					failed = false
					_, err = e.Close(context.Background(), true)
				}
			}
			if err != nil {
				errs[r] = fmt.Errorf("rank %d: %w", r, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// exchange is a meeting place for the endpoints of ranks in one process.
type exchange struct {
	mu        sync.Mutex
	endpoints [][]byte
	n         int
	full      chan struct{}
}

func newExchange(n int) *exchange {
	return &exchange{endpoints: make([][]byte, n), full: make(chan struct{})}
}

func (x *exchange) put(rank int) func(context.Context, []byte) ([][]byte, error) {
	return func(ctx context.Context, endpoint []byte) ([][]byte, error) {
		x.mu.Lock()
		x.endpoints[rank] = endpoint
		if x.n++; x.n == len(x.endpoints) {
			close(x.full)
		}
		x.mu.Unlock()
		select {
		case <-x.full:
			return x.endpoints, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
