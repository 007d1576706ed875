package main

import (
	"fmt"
	"time"

	"github.com/cairnrun/cairn/mpi"
)

// IS, integer sort: find the ranks of small integer keys in their order, by a
// parallel bucket sort. Every process has the same number of keys at first.
// Then it gets the keys of some consecutive buckets, and ranks these.

const (
	isIterations = 10
	isTests      = 5
)

// offsetRule says how the rank of a test key changes from one iteration to the
// next: each iteration changes two keys.
type offsetRule func(test, iteration int) int

var isClasses = map[byte]struct {
	logKeys, logMax, logBuckets int
	index, rank                 [isTests]int // test keys and their ranks
	offset                      offsetRule
}{
	'S': {16, 11, 9, [isTests]int{48427, 17148, 23627, 62548, 4431}, [isTests]int{0, 18, 346, 64917, 65463}, upTo(2, 0, 0)},
	'W': {20, 16, 10, [isTests]int{357773, 934767, 875723, 898999, 404505}, [isTests]int{1249, 11698, 1039987, 1043896, 1048018}, upTo(1, -2, 0)},
	'A': {23, 19, 10, [isTests]int{2112377, 662041, 5336171, 3642833, 4250760}, [isTests]int{104, 17523, 123928, 8288932, 8388264}, upTo(2, -1, -1)},
	'B': {25, 21, 10, [isTests]int{41869, 812306, 5102857, 18232239, 26860214}, [isTests]int{33422937, 10244, 59149, 33135281, 99}, func(test, iteration int) int {
		if test == 1 || test == 2 || test == 4 {
			return iteration
		}
		return -iteration
	}},
}

// upTo returns the rule by which the ranks of the tests up to last rise, from
// one after rise on, and those of the others fall, from one after fall on.
func upTo(last, rise, fall int) offsetRule {
	return func(test, iteration int) int {
		if test <= last {
			return iteration + rise
		}
		return -(iteration + fall)
	}
}

func is(c *mpi.Comm, class byte, g guard) (*report, error) {
	p, ok := isClasses[class]
	if !ok {
		return nil, errClass(class)
	}
	if err := powerOfTwo(c); err != nil {
		return nil, err
	}
	rank := c.Rank()
	maxKey := 1 << p.logMax
	own := 1 << p.logKeys / c.Size() // keys of this rank
	if own <= 2*isIterations {
		return nil, fmt.Errorf("class %c has too few keys for %d ranks: use fewer", class, c.Size())
	}
	s := newSorter(c, maxKey, 1<<p.logBuckets)

	var (
		iteration = 1
		passed    int // tests
		keys      = isKeys(own, rank, maxKey)
	)
	resumed, err := g.restore(named("iteration", &iteration), named("passed", &passed), named("keys", &keys))
	if err != nil {
		return nil, err
	}
	start := time.Now()
	for ; iteration <= isIterations; iteration++ {
		if err := g.point(); err != nil {
			return nil, err
		}
		if rank == 0 {
			keys[iteration] = int32(iteration)
			keys[iteration+isIterations] = int32(maxKey - iteration)
		}
		if err := s.sort(keys); err != nil {
			return nil, err
		}
		for t, index := range p.index {
			key := []int32{0}
			if index/own == rank {
				key[0] = keys[index%own]
			}
			if err := mpi.Bcast(c, key, index/own); err != nil {
				return nil, err
			}
			if r, ours := s.rank(key[0]); ours && r == p.rank[t]+p.offset(t, iteration) {
				passed++
			}
		}
	}
	took := time.Since(start)

	sorted, digest, err := s.check(int64(own) * int64(c.Size()))
	if err != nil {
		return nil, err
	}
	total := []int{passed}
	if err := mpi.Allreduce(c, total, total, mpi.Sum); err != nil {
		return nil, err
	}
	r := &report{
		size: fmt.Sprint(1 << p.logKeys), iterations: isIterations, operation: "keys ranked",
		mop:      1e-6 * isIterations * float64(int(1)<<p.logKeys),
		verified: sorted && total[0] == isTests*isIterations, resumed: resumed, took: took,
		values: []float64{float64(total[0]), float64(digest >> 32), float64(uint32(digest))},
	}
	r.note("tests of ranks passed: %d of %d", total[0], isTests*isIterations)
	r.note("keys are sorted: %v", sorted)
	r.note("weighted sum of sorted keys: %d", digest)
	return r, nil
}

// isKeys returns a rank's keys: each is the mean of four random numbers.
func isKeys(n, rank, maxKey int) []int32 {
	random := newRandom(seed, 4*n*rank)
	keys := make([]int32, n)
	for i := range keys {
		x := random.next()
		x += random.next()
		x += random.next()
		x += random.next()
		keys[i] = int32(float64(maxKey/4) * x)
	}
	return keys
}

// sorter sorts keys that are spread over the ranks of c.
type sorter struct {
	c         *mpi.Comm
	shift     int // the bucket of a key is key >> shift
	counts    []int64
	totals    []int64
	next      []int
	outgoing  []int32
	incoming  []int32 // the keys of our buckets
	sendCount []int
	sendAt    []int
	recvCount []int
	recvAt    []int
	first     int     // the first key that could be in our buckets
	before    []int64 // keys less than first+i, of all ranks
}

func newSorter(c *mpi.Comm, maxKey, buckets int) *sorter {
	s := &sorter{
		c: c, counts: make([]int64, buckets), totals: make([]int64, buckets), next: make([]int, buckets),
		sendCount: make([]int, c.Size()), sendAt: make([]int, c.Size()),
		recvCount: make([]int, c.Size()), recvAt: make([]int, c.Size()),
	}
	for maxKey>>s.shift > buckets {
		s.shift++
	}
	return s
}

// sort sends every key to the rank that has its bucket. There it counts, for
// each possible key, the keys that are smaller.
func (s *sorter) sort(keys []int32) error {
	// How many keys has each bucket, here and everywhere?
	clear(s.counts)
	for _, k := range keys {
		s.counts[k>>s.shift]++
	}
	if err := mpi.Allreduce(s.c, s.counts, s.totals, mpi.Sum); err != nil {
		return err
	}

	// Give successive buckets to each rank, so that all have about the same
	// number of keys.
	rank, size := s.c.Rank(), s.c.Size()
	clear(s.sendCount)
	var smaller, ours int64 // keys in earlier ranks' buckets, and in ours
	firstBucket, endBucket := -1, -1
	sum, at := int64(0), 0
	for b, total := range s.totals {
		owner := min(int(sum/int64(len(keys))), size-1)
		s.next[b] = at
		at += int(s.counts[b])
		s.sendCount[owner] += int(s.counts[b])
		switch {
		case owner < rank:
			smaller += total
		case owner == rank:
			if firstBucket < 0 {
				firstBucket = b
			}
			endBucket = b + 1
			ours += total
		}
		sum += total
	}

	// Put the keys in the order of their buckets, and exchange them.
	s.outgoing = resize(s.outgoing, len(keys))
	for _, k := range keys {
		b := k >> s.shift
		s.outgoing[s.next[b]] = k
		s.next[b]++
	}
	if err := mpi.Alltoall(s.c, s.sendCount, s.recvCount); err != nil {
		return err
	}
	sendAt, recvAt := 0, 0
	for r := range size {
		s.sendAt[r], s.recvAt[r] = sendAt, recvAt
		sendAt += s.sendCount[r]
		recvAt += s.recvCount[r]
	}
	if int64(recvAt) != ours {
		return fmt.Errorf("rank %d is sent %d keys, and its buckets have %d: a message was lost or altered", rank, recvAt, ours)
	}
	s.incoming = resize(s.incoming, recvAt)
	err := mpi.Alltoallv(s.c, s.outgoing, s.sendCount, s.sendAt, s.incoming, s.recvCount, s.recvAt)
	if err != nil {
		return err
	}

	// Count the keys that are less than each key.
	s.first = max(firstBucket, 0) << s.shift
	s.before = resize(s.before, max(endBucket-max(firstBucket, 0), 0)<<s.shift)
	clear(s.before)
	for _, k := range s.incoming {
		s.before[int(k)-s.first]++
	}
	for i, n := range s.before {
		s.before[i] = smaller
		smaller += n
	}
	return nil
}

// rank returns how many keys are less than key, if key is in our buckets.
func (s *sorter) rank(key int32) (int, bool) {
	i := int(key) - s.first
	if i < 0 || i >= len(s.before) {
		return 0, false
	}
	return int(s.before[i]), true
}

// check puts the keys in order, and reports whether all are there and in order,
// also from one process to the next. The digest is the sum of all keys, each
// multiplied by its rank in the order.
func (s *sorter) check(total int64) (sorted bool, digest uint64, err error) {
	place := resize([]int64(nil), len(s.before))
	copy(place, s.before)
	base := int64(0)
	if len(place) > 0 {
		base = place[0]
	}
	order := make([]int32, len(s.incoming))
	for _, k := range s.incoming {
		i := int(k) - s.first
		order[place[i]-base] = k
		place[i]++
	}

	bad := uint64(0)
	previous := []int32{-1} // the largest key of the processes before this one
	if s.c.Rank() > 0 {
		if _, err := mpi.Recv(s.c, previous, s.c.Rank()-1, 0); err != nil {
			return false, 0, err
		}
	}
	for i, k := range order {
		if k < previous[0] {
			bad++
		}
		previous[0] = k
		digest += uint64(k) * uint64(base+int64(i))
	}
	if s.c.Rank() < s.c.Size()-1 {
		if err := mpi.Send(s.c, previous, s.c.Rank()+1, 0); err != nil {
			return false, 0, err
		}
	}
	sums := []uint64{bad, digest, uint64(len(order))}
	if err := mpi.Allreduce(s.c, sums, sums, mpi.Sum); err != nil {
		return false, 0, err
	}
	return sums[0] == 0 && sums[2] == uint64(total), sums[1], nil
}

// resize returns a slice of n elements, in the memory of s if it has room.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
