package transporttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/cairnrun/cairn/internal/transport"
)

// Rank is one rank of a test. In tests of replaced ranks, several processes
// have the same ID, one after the other. They are numbered from 0 to N-1.
type Rank struct {
	ID, N int

	process int  // number of the process; the same as ID in other tests
	single  bool // it is a process, not a goroutine

	tr       Transport
	dir      string
	ctx      context.Context
	cancel   context.CancelFunc
	open     func(int) (transport.Driver, error)
	die      func()
	driver   transport.Driver
	link     transport.Link
	box      *box
	more     []*box // handlers of further links
	sleeper  bool   // sleep whenever nothing moves
	exchange int
}

func newRank(tr Transport, c test, dir string, id int, open func(int) (transport.Driver, error)) *Rank {
	r := &Rank{ID: id, N: c.n, process: id, tr: tr, dir: dir, open: open}
	r.ctx, r.cancel = context.WithTimeout(context.Background(), cmp.Or(tr.limit, limit))
	return r
}

// Fatalf ends the rank with an error.
func (r *Rank) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// skipf ends the rank and skips the test. All ranks must do the same.
func (r *Rank) skipf(format string, args ...any) {
	panic(failure{fmt.Errorf("%w: %s", errSkip, fmt.Sprintf(format, args...))})
}

func (r *Rank) must(err error) {
	if err != nil {
		r.Fatalf("%w", err)
	}
}

// check ends the rank if another one has failed, or if the test takes too long.
func (r *Rank) check(what string) {
	if r.ctx.Err() != nil {
		r.Fatalf("%s: it takes more than %v", what, cmp.Or(r.tr.limit, limit))
	}
	if notes, _ := filepath.Glob(filepath.Join(r.dir, "failed-*")); len(notes) > 0 {
		r.Fatalf("%w while this one was at: %s", errOther, what)
	}
}

// swap gives data to the other ranks and returns theirs. All ranks call it, in
// the same order, except those named in without.
func (r *Rank) swap(data []byte, without ...int) [][]byte {
	r.exchange++
	name := func(id int) string {
		return filepath.Join(r.dir, "swap-"+strconv.Itoa(r.exchange)+"-"+strconv.Itoa(id))
	}
	tmp := name(r.process) + ".new"
	r.must(os.WriteFile(tmp, data, 0o600))
	r.must(os.Rename(tmp, name(r.process)))
	all := make([][]byte, r.N)
	for id := range all {
		if slices.Contains(without, id) {
			continue
		}
		for {
			b, err := os.ReadFile(name(id))
			if err == nil {
				all[id] = b
				break
			}
			if !errors.Is(err, fs.ErrNotExist) {
				r.Fatalf("%w", err)
			}
			r.check(fmt.Sprintf("waiting for rank %d outside of the transport", id))
			time.Sleep(time.Millisecond)
		}
	}
	return all
}

// barrier waits for the other ranks, without the transport.
func (r *Rank) barrier(without ...int) { r.swap(nil, without...) }

// openDriver opens the driver, or a new one.
func (r *Rank) openDriver() {
	d, err := r.open(r.ID)
	r.must(err)
	r.driver = d
}

// connect connects all ranks for which serve returns true; nil means all. It
// opens the driver if necessary.
func (r *Rank) connect(serve func(peer int) bool) {
	if r.driver == nil {
		r.openDriver()
	}
	addresses := r.swap(r.driver.Address())
	for id, c := range addresses {
		if id == r.ID || serve != nil && !serve(id) {
			addresses[id] = nil
		} else if !r.driver.Reaches(c) {
			r.Fatalf("rank %d is not reached, says its address", id)
		}
	}
	r.box = r.connectTo(addresses)
	r.link = r.box.link
}

// connectTo returns the handler of a new link.
func (r *Rank) connectTo(addresses [][]byte) *box {
	b := newBox(r)
	link, err := r.driver.Connect(r.ctx, addresses, b)
	r.must(err)
	b.link = link
	return b
}

// close closes the link.
func (r *Rank) close() {
	l := r.link
	r.link = nil
	if err := l.Close(r.ctx); err != nil {
		r.Fatalf("Close: %w", err)
	}
}

// cleanUp closes what the body left open.
func (r *Rank) cleanUp() error {
	defer r.cancel()
	var err error
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, b := range r.more {
		err = errors.Join(err, b.link.Close(ctx))
	}
	if r.link != nil {
		err = errors.Join(err, r.link.Close(ctx))
	}
	if r.driver != nil {
		err = errors.Join(err, r.driver.Close())
	}
	return err
}

// poll polls once.
func (r *Rank) poll() bool {
	moved := r.box.poll(r.link)
	for _, b := range r.more {
		moved = b.poll(b.link) || moved
	}
	return moved
}

func (b *box) poll(l transport.Link) bool {
	b.inside = true
	moved := l.Poll()
	b.inside = false
	if b.err != nil {
		b.r.Fatalf("%w", b.err)
	}
	return moved
}

// drive polls until done returns true, and sleeps when nothing moves for a
// while.
func (r *Rank) drive(what string, done func() bool) {
	idle := 0
	for !done() {
		if r.poll() {
			idle = 0
			continue
		}
		idle++
		if !r.sleeper && idle < 50 {
			runtime.Gosched()
			continue
		}
		r.sleep(what)
	}
}

// sleep sleeps until a link has something to do.
func (r *Rank) sleep(what string) {
	links := []transport.Link{r.link}
	for _, b := range r.more {
		links = append(links, b.link)
	}
	var fds []int
	for _, l := range links {
		if !l.Arm() {
			return
		}
		defer l.Disarm()
		if fd := l.FD(); fd >= 0 {
			fds = append(fds, fd)
		}
	}
	if len(fds) < len(links) {
		time.Sleep(50 * time.Microsecond)
		r.check(what)
		return
	}
	// Only the descriptor ends this loop. A rank that misses its wake-up sleeps
	// until the test reports that it hangs.
	for !waitFD(100*time.Millisecond, fds...) {
		r.check(what + " (asleep: " + r.box.state() + ")")
	}
}

// spread returns the sizes, and each one plus and minus 1, without negative
// ones.
func spread(sizes ...int) []int {
	var all []int
	seen := make(map[int]bool)
	for _, n := range sizes {
		for _, m := range []int{n - 1, n, n + 1} {
			if m >= 0 && !seen[m] {
				seen[m] = true
				all = append(all, m)
			}
		}
	}
	return all
}
