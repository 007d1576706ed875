// Package pool has a pool whose methods are those of an embedded field that
// other packages cannot name.
package pool

import (
	"fmt"
	"sync"

	"progs/govalues/pool/internal/future"
)

type common struct {
	wg   sync.WaitGroup
	jobs chan func()
	name string
}

func (c *common) Release() {
	close(c.jobs)
	c.wg.Wait()
	fmt.Println(c.name, "is released")
}

// Name is called with a copy.
func (c common) Name() string { return c.name }

type Pool struct{ *common }

func New(name string, n int) *Pool {
	p := &Pool{&common{jobs: make(chan func()), name: name}}
	for range n {
		p.wg.Add(1)
		go func() {
			defer p.wg.Done()
			for f := range p.jobs {
				f()
			}
		}()
	}
	return p
}

func (p *Pool) Submit(f func()) { p.jobs <- f }

type Task[R any] interface{ Wait() R }

// Later calls f in a goroutine.
func Later[R any](f func() R) Task[R] {
	value, set := future.New[R]()
	go func() { set(f()) }()
	return value
}
