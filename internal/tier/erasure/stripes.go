package erasure

import (
	"sync"

	"github.com/zeebo/xxh3"
)

// stripe is a stripe in memory.
type stripe struct {
	number int64
	units  [][]byte // by shard; of length 0: not there, or not needed
	digest []Digest // by shard, of those that are written
	room   [][]byte // by shard: memory for a unit and its digest
	data   []byte   // encoder: memory for the data units, one after the other
	err    error
	done   chan struct{}
}

// inOrder makes stripes 0 … n-1 with make1, several at the same time, and
// passes them to use, one after the other. Memory is that of a few stripes.
// inOrder ends with the first error of either. When it returns, make1 is not
// running.
func inOrder(n int64, make1 func(*stripe) error, use func(*stripe) error) error {
	todo := make(chan *stripe, workers+1)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer close(todo)
	for range min(workers, n) {
		wait.Go(func() {
			for s := range todo {
				s.err = make1(s)
				s.done <- struct{}{}
			}
		})
	}
	var queue []*stripe
	for i := range min(workers+1, n) {
		s := &stripe{number: i, done: make(chan struct{}, 1)}
		queue = append(queue, s)
		todo <- s
	}
	for i := range n {
		s := queue[i%int64(len(queue))]
		<-s.done
		if s.err == nil {
			s.err = use(s)
		}
		if s.err != nil {
			return s.err
		}
		if s.number += int64(len(queue)); s.number < n {
			todo <- s
		}
	}
	return nil
}

// wholeDigest digests an object while several goroutines code its stripes. Each
// adds its stripe while that is in its processor's cache.
type wholeDigest struct {
	mu   sync.Mutex
	turn sync.Cond
	next int64
	hash *xxh3.Hasher
	off  bool // an error: nobody waits any more
}

func newWholeDigest() *wholeDigest {
	d := &wholeDigest{hash: xxh3.New()}
	d.turn.L = &d.mu
	return d
}

// add waits for the stripes before, and adds one.
func (d *wholeDigest) add(number int64, write func(*xxh3.Hasher)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.next != number && !d.off {
		d.turn.Wait()
	}
	if !d.off {
		write(d.hash)
		d.next++
		d.turn.Broadcast()
	}
}

// giveUp says that a stripe will not come.
func (d *wholeDigest) giveUp() {
	d.mu.Lock()
	d.off = true
	d.mu.Unlock()
	d.turn.Broadcast()
}
