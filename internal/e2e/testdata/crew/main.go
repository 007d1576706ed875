// Command crew has workers on every rank, which compute while the main goroutine
// exchanges messages.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"sync"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/mpi"
)

type job struct{ step, part int }

type result struct {
	job
	sum uint64
}

// tally counts what workers have done, under a mutex.
type tally struct {
	sync.Mutex
	jobs  map[int]int
	steps uint64
}

func compute(j job, rank, size int) uint64 {
	x := uint64(j.step*31+j.part*7+rank) | 1
	for range size {
		x = mixed(x)
	}
	return x >> 16
}

// mixed does as much as a worker does in an iteration.
func mixed(x uint64) uint64 {
	for range 200 {
		x = x*6364136223846793005 + 1442695040888963407
		x ^= x >> 29
	}
	return x
}

func work(jobs <-chan job, results chan<- result, t *tally, rank, size int) {
	for j := range jobs {
		x := uint64(j.step*17+j.part*5+rank) | 1
		//cairn:point
		for range size {
			x = mixed(x)
		}
		sum := x >> 16
		t.Lock()
		t.jobs[j.step%3]++
		t.steps++
		t.Unlock()
		results <- result{j, sum}
	}
}

func main() {
	steps := flag.Int("steps", 150, "`number` of steps")
	size := flag.Int("size", 40, "`length` of a job")
	apart := flag.Int("apart", 0, "`how` many of three steps exchange messages in a goroutine of their own")
	flag.Parse()
	p, err := cairn.Open(context.Background(), cairn.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	world := p.World()
	const workers, parts = 3, 4
	jobs, results := make(chan job, parts), make(chan result, parts)
	t := &tally{jobs: map[int]int{}}
	var all sync.WaitGroup
	for range workers {
		all.Add(1)
		go func() {
			defer all.Done()
			work(jobs, results, t, world.Rank(), *size)
		}()
	}
	give := func(step int) {
		for part := range parts {
			jobs <- job{step, part}
		}
	}
	give(0)
	next := []uint64{0}
	var carried uint64
	for step := range *steps {
		sums := make([]uint64, parts)
		for range parts {
			r := <-results
			sums[r.part] = r.sum
		}
		if step+1 < *steps {
			give(step + 1) // the workers compute during the exchange
		}
		local := []uint64{0}
		for i, s := range sums {
			local[0] = local[0]*1000003 + s + uint64(i)
		}
		right, left := (world.Rank()+1)%world.Size(), (world.Rank()+world.Size()-1)%world.Size()
		if step%3 < *apart { // a goroutine exchanges, and this one computes
			exchanged := make(chan error, 1)
			go func() {
				_, err := mpi.Sendrecv(world, local, right, 0, next, left, 0)
				exchanged <- err
			}()
			carried += compute(job{step, parts}, world.Rank(), *size)
			if err := <-exchanged; err != nil {
				log.Fatal(err)
			}
		} else if _, err := mpi.Sendrecv(world, local, right, 0, next, left, 0); err != nil {
			log.Fatal(err)
		}
		total := []uint64{0}
		carried = carried*31 + next[0]
		if err := mpi.Allreduce(world, []uint64{carried}, total, mpi.Sum); err != nil {
			log.Fatal(err)
		}
		if step%10 == 9 {
			fmt.Printf("rank %d step %d: %016x %016x\n", world.Rank(), step, carried, total[0])
		}
	}
	close(jobs)
	all.Wait()
	fmt.Printf("rank %d: %v, %d jobs\n", world.Rank(), t.jobs, t.steps)
	p.Finish()
}
