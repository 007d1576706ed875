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

// Local runs body on n ranks, each of which is a goroutine of this process with
// its own communicator. It returns when all have ended, with their errors. If a
// body returns an error or panics, the operations of the other ranks fail with
// ErrLost. Local is meant for tests and experiments.
func Local(n int, body func(c *Comm) error) error {
	if n < 1 {
		return fmt.Errorf("mpi: %w: %d ranks", ErrArgument, n)
	}
	return local(n, mem.Options{}, func(*p2p.Config) {}, body)
}

// local is Local with options. configure may change the configuration of each
// rank.
func local(n int, o mem.Options, configure func(*p2p.Config), body func(c *Comm) error) error {
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
			configure(&cfg)
			e, err := p2p.New(cfg)
			if err == nil {
				err = e.Connect(context.Background())
			}
			if err == nil {
				if err = body((*Comm)(e.World())); err == nil {
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

// exchange gives every rank's endpoint to every rank of one process.
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
