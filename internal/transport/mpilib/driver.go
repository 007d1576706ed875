package mpilib

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unsafe"

	"github.com/cairnrun/cairn/internal/transport"
)

// Driver is MPI, initialised. Its methods, and those of its link, are
// called by one goroutine at a time, on any thread.
type Driver struct {
	lib     *library
	comm    uintptr // a copy of the world's communicator, or the one that Join made
	rank    int     // rank in comm
	size    int
	hosts   []string
	members []identity       // by rank in comm
	rankOf  map[identity]int // the inverse of members
	address address
	round   uint32 // number of connects
	piece   int    // longest message
	open    bool   // a link is open
	ours    bool   // MPI was initialised here
	loose   bool   // processes have joined the original world or left it
	last    []int  // the ranks that the last closed link said farewell to
	stuck   bool   // a call of Join is still waiting in MPI
	refused bool   // the launcher has refused to spawn, and would crash at another attempt
	closed  bool
	kept    []any // memory that MPI may still use
}

var _ transport.Driver = (*Driver)(nil)

// Open opens the library and initialises MPI. All processes of the world
// must call it; it blocks until they do.
func Open(o Options) (*Driver, error) {
	if o.getenv == nil {
		o.getenv = os.Getenv
	}
	c := choose(o.Library, o.getenv)
	old := saveHandlers()
	var failed []string
	var last error
	for _, names := range c.libraries {
		l, err := openLibrary(names)
		if err != nil {
			old.restore()
			failed = append(failed, err.Error())
			last = err
			continue
		}
		d, err := start(l, c)
		old.restore()
		if err == nil {
			if d.piece = pieceSize; o.piece > 0 {
				d.piece = o.piece
			}
			return d, nil
		}
		if !errors.Is(err, errSize) {
			return nil, fmt.Errorf("mpi: %s: %w", l.Name(), err)
		}
		failed = append(failed, fmt.Sprintf("%s: %v", l.Name(), err))
		last = err
	}
	if errors.Is(last, ErrUnsupported) {
		return nil, fmt.Errorf("mpi: %w", last)
	}
	return nil, fmt.Errorf("mpi: %w fits (this process was started by %s): %s; install Open MPI or MPICH, or name the library in %s",
		ErrNoLibrary, c.launcher, strings.Join(failed, "; "), EnvLibrary)
}

// errSize reports a library that does not know the launcher: it starts a world
// of one process.
var errSize = errors.New("the library sees another world than the launcher made")

// start initialises MPI.
func start(l *library, c choice) (*Driver, error) {
	d := &Driver{lib: l}
	if over, err := l.number("MPI_Finalized", l.finalized); err != nil || over != 0 {
		return nil, errors.Join(ErrFinished, err)
	}
	begun, err := l.number("MPI_Initialized", l.initialized)
	if err != nil {
		return nil, err
	}
	if begun == 0 {
		level := new(int32)
		if err := l.call("MPI_Init_thread", l.initThread, 0, 0, threadSerialized, uintptr(unsafe.Pointer(level))); err != nil {
			return nil, err
		}
		d.ours = true
		if *level < threadSerialized {
			d.finish()
			return nil, errors.New("the library was built without support for threads; use one that has MPI_THREAD_SERIALIZED")
		}
	}
	if err := d.meet(c); err != nil {
		if errors.Is(err, errSize) {
			d.finish()
		}
		return nil, err
	}
	return d, nil
}

// meet exchanges identities and host names with the other processes of the
// world.
func (d *Driver) meet(c choice) (err error) {
	l := d.lib
	if d.size, err = l.number("MPI_Comm_size", l.commSize, l.world); err != nil {
		return err
	}
	if c.size > 0 && d.size != c.size {
		return fmt.Errorf("%w (%s) that %s started: %d, not %d", errSize, l.kind, c.launcher, d.size, c.size)
	}
	if d.rank, err = l.number("MPI_Comm_rank", l.commRank, l.world); err != nil {
		return err
	}
	comm := new(uint64)
	if err := l.call("MPI_Comm_dup", l.commDup, l.world, uintptr(unsafe.Pointer(comm))); err != nil {
		return err
	}
	d.comm = uintptr(*comm)
	if err := l.call("MPI_Comm_set_errhandler", l.setErrhandler, d.comm, l.errorsReturn); err != nil {
		return err
	}
	host, err := l.host()
	if err != nil {
		return err
	}
	var world [16]byte
	rand.Read(world[:])
	all, err := d.Allgather(append(world[:], host...))
	if err != nil {
		return err
	}
	copy(world[:], all[0])
	d.address = address{who: identify(d.rank, world), library: l.digest()}
	d.rankOf = make(map[identity]int)
	for rank, b := range all {
		who := identify(rank, world)
		d.hosts, d.members = append(d.hosts, string(b[len(world):])), append(d.members, who)
		d.rankOf[who] = rank
	}
	return nil
}

// introduce exchanges identities in a communicator that Join made.
func (d *Driver) introduce(comm uintptr) (members []identity, err error) {
	l := d.lib
	if d.size, err = l.number("MPI_Comm_size", l.commSize, comm); err != nil {
		return nil, err
	}
	if d.rank, err = l.number("MPI_Comm_rank", l.commRank, comm); err != nil {
		return nil, err
	}
	host, err := l.host()
	if err != nil {
		return nil, err
	}
	all, err := l.gatherAll(comm, append(d.address.who[:], host...), d.size)
	if err != nil {
		return nil, err
	}
	d.hosts, d.members, d.rankOf = nil, nil, make(map[identity]int)
	for rank, b := range all {
		var who identity
		if len(b) < len(who) {
			return nil, errors.New("a process did not say who it is")
		}
		copy(who[:], b)
		d.hosts, d.members = append(d.hosts, string(b[len(who):])), append(d.members, who)
		d.rankOf[who] = rank
	}
	return d.members, nil
}

// Library names the library that was opened, and its kind.
func (d *Driver) Library() string { return d.lib.Name() + " (" + d.lib.kind + ")" }

// Rank is this process's rank in the MPI world.
func (d *Driver) Rank() int { return d.rank }

// Size is the size of the MPI world.
func (d *Driver) Size() int { return d.size }

// Host is the name of the host of a rank, as MPI says it.
func (d *Driver) Host(rank int) string { return d.hosts[rank] }

// Allgather gives address to all ranks of the world and returns theirs, by
// rank. All call it; it blocks until they do.
func (d *Driver) Allgather(address []byte) ([][]byte, error) {
	all, err := d.lib.gatherAll(d.comm, address, d.size)
	if err != nil {
		return nil, fmt.Errorf("mpi: rank %d: %w", d.rank, err)
	}
	return all, nil
}

// Name is "mpi".
func (*Driver) Name() string { return "mpi" }

// Address says which rank of which world this is, and where it is reached if it
// has come later.
func (d *Driver) Address() []byte { return d.address.encode() }

// parse returns the rank in comm that an address names.
func (d *Driver) parse(b []byte) (int, bool) {
	c, ok := decode(b)
	if !ok {
		return 0, false
	}
	rank, ok := d.rankOf[c.who]
	return rank, ok
}

// Reaches reports whether the address is one of this MPI world, or of one that
// has joined it.
func (d *Driver) Reaches(address []byte) bool {
	_, ok := d.parse(address)
	return ok
}

// Connect greets all peers that have an address, and waits for their greetings.
func (d *Driver) Connect(ctx context.Context, addresses [][]byte, h transport.Handler) (transport.Link, error) {
	fail := func(err error) (transport.Link, error) {
		return nil, fmt.Errorf("mpi: rank %d: %w", d.rank, err)
	}
	if d.closed {
		return fail(ErrFinished)
	}
	if d.stuck {
		return fail(errStuck)
	}
	if d.open {
		return fail(errors.New("connected already; close the link first"))
	}
	l := newLink(d, h)
	for rank, address := range addresses {
		if address == nil {
			continue
		}
		world, ok := d.parse(address)
		if !ok {
			return fail(fmt.Errorf("the address of rank %d is not one of this MPI world", rank))
		}
		if world != d.rank {
			l.add(rank, world)
		}
	}
	d.round++
	d.open = true
	err := l.receive()
	if err == nil {
		err = l.greet(ctx)
	}
	if err != nil {
		l.abandon()
		d.open = false
		return fail(err)
	}
	return l, nil
}

// Close ends MPI in this process, unless it was there before Open. Other
// ranks should do so too: MPI may wait for them. If processes have left their
// world or joined it, MPI is not ended, because it would wait for those that
// are not there; this rank waits only until nobody has anything to say to it.
func (d *Driver) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	return d.finish()
}

func (d *Driver) finish() error {
	switch {
	case !d.ours || d.stuck:
		return nil
	case d.loose:
		d.farewell()
		return nil
	}
	return d.lib.call("MPI_Finalize", d.lib.finalize)
}

// pause waits a little. The wait grows with idle.
func pause(idle int) {
	if idle > 100 {
		time.Sleep(min(time.Duration(idle)*time.Microsecond, time.Millisecond))
	}
}
