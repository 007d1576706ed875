package mpilib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cairnrun/cairn/internal/dl"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/transport"
)

// A process that replaces another has an MPI world of its own. It opens a port,
// whose name is part of its address. All processes that stay connect to it
// together. The resulting communicator replaces the old one. If there are
// several new processes, they join one after the other, in order of rank; each
// takes part in the following joins. A process that did not have to join when
// it came, because it shared memory with all others, joins when another new
// process does.
//
//	those that stay               destination                     next destination
//	MPI_Comm_create_group         MPI_Comm_accept              MPI_Comm_accept
//	  without those that left       │                            │
//	MPI_Comm_connect ───────────────┤                            │
//	MPI_Intercomm_merge          MPI_Intercomm_merge             │
//	MPI_Comm_connect             MPI_Comm_connect ───────────────┤
//	MPI_Intercomm_merge          MPI_Intercomm_merge          MPI_Intercomm_merge
//
// If mpirun cannot connect separate launches, it must start the destination
// itself: see Spawn.
//
// MPI keeps track of communicators that span two worlds. Join uses a copy and
// frees the original, so that MPI does not wait for processes that have been
// killed since.

// joining holds the MPI functions that joining needs.
type joining struct {
	accept, commGroup, connect, createGroup, groupFree uintptr
	groupIncl, merge, openPort, self, infoNull         uintptr
}

// findJoining looks up these functions. A library may lack some.
func (l *library) findJoining() (*joining, error) {
	j := new(joining)
	for name, fn := range map[string]*uintptr{
		"MPI_Comm_accept": &j.accept, "MPI_Comm_connect": &j.connect,
		"MPI_Comm_create_group": &j.createGroup, "MPI_Comm_group": &j.commGroup, "MPI_Group_free": &j.groupFree,
		"MPI_Group_incl": &j.groupIncl, "MPI_Intercomm_merge": &j.merge, "MPI_Open_port": &j.openPort,
	} {
		var err error
		if *fn, err = l.Lookup(name); err != nil {
			return nil, err
		}
	}
	if l.kind == "MPICH" {
		j.self, j.infoNull = 0x44000001, 0x1c000000
		return j, nil
	}
	var err error
	if j.self, err = l.Lookup("ompi_mpi_comm_self"); err == nil {
		j.infoNull, err = l.Lookup("ompi_mpi_info_null")
	}
	return j, err
}

// version returns the library's version text.
func (l *library) version() string {
	fn, err := l.Lookup("MPI_Get_library_version")
	if err != nil {
		return ""
	}
	text := make([]byte, 16<<10) // longer than MPI_MAX_LIBRARY_VERSION_STRING
	n := new(int32)
	if err := l.call("MPI_Get_library_version", fn, uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(n))); err != nil {
		return ""
	}
	text, _, _ = bytes.Cut(text, []byte{0})
	return string(text)
}

// OpenPort makes this process, which is a world by itself, one that others can
// take into theirs: its address says where. It must be called before the
// address is given to anybody. An error means that this library cannot do that,
// and nothing else.
func (d *Driver) OpenPort() error {
	fail := func(err error) error { return fmt.Errorf("mpi: it cannot be joined with others: %w", err) }
	switch {
	case d.closed:
		return fail(ErrFinished)
	case d.size != 1:
		return fail(fmt.Errorf("it is one of %d processes", d.size))
	case !d.ours:
		return fail(errors.New("MPI was initialised by the program"))
	case d.address.library == 0:
		return fail(errors.New("the library does not tell its version"))
	case d.address.port != "":
		return nil
	}
	j, err := d.lib.findJoining()
	if err != nil {
		return fail(err)
	}
	// Errors of these calls belong to no communicator of ours.
	for _, comm := range []uintptr{d.lib.world, j.self} {
		if err := d.lib.call("MPI_Comm_set_errhandler", d.lib.setErrhandler, comm, d.lib.errorsReturn); err != nil {
			return fail(err)
		}
	}
	name := make([]byte, maxPort+1)
	if err := d.lib.call("MPI_Open_port", j.openPort, j.infoNull, uintptr(unsafe.Pointer(&name[0]))); err != nil {
		return fail(err)
	}
	name, _, _ = bytes.Cut(name, []byte{0})
	if len(name) == 0 || len(name) > maxPort {
		return fail(fmt.Errorf("MPI_Open_port gave a name of %d bytes", len(name)))
	}
	d.address.port = string(name)
	return nil
}

var _ transport.Joiner = (*Driver)(nil)

// gathering describes which processes come together.
type gathering struct {
	inside bool       // this process belongs to the world that the others join
	stay   []identity // members of that world, without those that left
	order  []address  // processes that can join, in order; some may have joined already
}

// gathering decides from the addresses of all ranks which processes come
// together, and whether this process is among them. All ranks reach the same
// decision. The others join the world of the first rank that has always been
// there; if there is none, of the first rank that is not new; otherwise of the
// first rank.
func (d *Driver) gathering(addresses [][]byte, fresh []int) (g gathering, mine bool) {
	var all []address
	var base *address
	best := 3
	for rank, b := range addresses {
		c, ok := decode(b)
		if b == nil || !ok {
			continue
		}
		all = append(all, c)
		worth := 2
		if c.port == "" {
			worth = 0
		} else if !slices.Contains(fresh, rank) {
			worth = 1
		}
		if worth < best {
			best, base = worth, &c
		}
	}
	if base == nil {
		return g, false
	}
	for _, c := range all {
		if c.port != "" && c.library == base.library && c.library != 0 && c.who != base.who {
			g.order = append(g.order, c)
		}
	}
	me := func(c address) bool { return c.who == d.address.who }
	if _, g.inside = d.rankOf[base.who]; !g.inside {
		return g, slices.ContainsFunc(g.order, me)
	}
	for _, who := range d.members {
		if slices.ContainsFunc(all, func(c address) bool { return c.who == who }) {
			g.stay = append(g.stay, who)
		}
	}
	outside := func(c address) bool { _, ok := d.rankOf[c.who]; return !ok }
	return g, slices.ContainsFunc(all, me) && slices.ContainsFunc(g.order, outside)
}

// Joins reports whether the ranks in fresh, which are new, can be taken into
// this rank's world, or this one into that of the others.
func (d *Driver) Joins(addresses [][]byte, fresh []int) bool {
	if d.closed || d.stuck {
		return false
	}
	g, mine := d.gathering(addresses, fresh)
	if !g.inside || len(g.stay) < d.size {
		d.loose = true
	}
	return mine
}

// Join brings the processes together. The link must be closed. When ctx ends
// before that is done, the driver is of no use any more.
func (d *Driver) Join(ctx context.Context, addresses [][]byte, fresh []int) error {
	fail := func(err error) error { return fmt.Errorf("mpi: joining the world of other processes: %w", err) }
	switch {
	case d.closed:
		return fail(ErrFinished)
	case d.open:
		return fail(errors.New("it is connected; close the link first"))
	case d.stuck:
		return fail(errStuck)
	}
	g, mine := d.gathering(addresses, fresh)
	if !mine {
		return fail(errors.New("this process is not among them"))
	}
	if err := ctx.Err(); err != nil {
		return fail(context.Cause(ctx))
	}
	d.loose, d.last = true, nil
	// MPI waits indefinitely for processes that may have died.
	d.stuck = true
	done := make(chan error, 1)
	next := *d
	go func() { done <- next.join(&g) }()
	select {
	case err := <-done:
		d.stuck = false
		if err != nil {
			return fail(err)
		}
		d.comm, d.rank, d.size, d.hosts, d.members, d.rankOf = next.comm, next.rank, next.size, next.hosts, next.members, next.rankOf
		return nil
	case <-ctx.Done():
		return fail(fmt.Errorf("not all came: %w", context.Cause(ctx)))
	}
}

var errStuck = errors.New("MPI still waits for processes to join, which did not come")

func (d *Driver) join(g *gathering) error {
	j, err := d.lib.findJoining()
	if err != nil {
		return err
	}
	comm, temporary, inside, members := d.comm, false, g.inside, g.stay
	if inside && len(g.stay) < d.size {
		if comm, err = d.without(j, g.stay); err != nil {
			return err
		}
		temporary = true
	}
	for _, c := range g.order {
		mine := c.who == d.address.who && !inside
		if slices.Contains(members, c.who) || !inside && !mine {
			continue // it has joined already, or this process joins later
		}
		if mine {
			comm = j.self
		}
		all, err := d.meetOne(j, comm, &c, mine)
		if temporary {
			d.drop(comm)
		}
		if err != nil {
			return err
		}
		comm, temporary, inside = all, true, true
		if members, err = d.introduce(comm); err != nil {
			return err
		}
	}
	for _, c := range g.order {
		if !slices.Contains(members, c.who) {
			return errors.New("the processes do not agree on who takes part")
		}
	}
	// See above why comm itself is not used.
	own := new(uint64)
	if err := d.lib.call("MPI_Comm_dup", d.lib.commDup, comm, uintptr(unsafe.Pointer(own))); err != nil {
		return err
	}
	d.drop(comm)
	d.comm = uintptr(*own)
	return d.lib.call("MPI_Comm_set_errhandler", d.lib.setErrhandler, d.comm, d.lib.errorsReturn)
}

// without returns the communicator without the processes that have left.
func (d *Driver) without(j *joining, stay []identity) (uintptr, error) {
	l := d.lib
	ranks := make([]int32, 0, len(stay))
	for _, who := range stay {
		ranks = append(ranks, int32(d.rankOf[who]))
	}
	slices.Sort(ranks)
	group, some, comm := new(uint64), new(uint64), new(uint64)
	if err := l.call("MPI_Comm_group", j.commGroup, d.comm, uintptr(unsafe.Pointer(group))); err != nil {
		return 0, err
	}
	if err := l.call("MPI_Group_incl", j.groupIncl, uintptr(*group), uintptr(len(ranks)), uintptr(unsafe.Pointer(&ranks[0])), uintptr(unsafe.Pointer(some))); err != nil {
		return 0, err
	}
	if err := l.call("MPI_Comm_create_group", j.createGroup, d.comm, uintptr(*some), joinTag, uintptr(unsafe.Pointer(comm))); err != nil {
		return 0, err
	}
	for _, g := range []*uint64{group, some} {
		if err := l.call("MPI_Group_free", j.groupFree, uintptr(unsafe.Pointer(g))); err != nil {
			return 0, err
		}
	}
	return uintptr(*comm), l.call("MPI_Comm_set_errhandler", l.setErrhandler, uintptr(*comm), l.errorsReturn)
}

// meetOne adds the process with address c to a communicator. In the process
// itself, mine is set.
func (d *Driver) meetOne(j *joining, comm uintptr, c *address, mine bool) (uintptr, error) {
	l := d.lib
	name := append([]byte(c.port), make([]byte, maxPort+1-len(c.port))...)
	inter, all := new(uint64), new(uint64)
	what, fn, last := "MPI_Comm_connect", j.connect, uintptr(0)
	if mine {
		what, fn, last = "MPI_Comm_accept", j.accept, 1
		step.At("mpi.accept")
	}
	if err := l.call(what, fn, uintptr(unsafe.Pointer(&name[0])), j.infoNull, 0, comm, uintptr(unsafe.Pointer(inter))); err != nil {
		return 0, err
	}
	if err := l.call("MPI_Comm_set_errhandler", l.setErrhandler, uintptr(*inter), l.errorsReturn); err != nil {
		return 0, err
	}
	if err := l.call("MPI_Intercomm_merge", j.merge, uintptr(*inter), last, uintptr(unsafe.Pointer(all))); err != nil {
		return 0, err
	}
	d.drop(uintptr(*inter))
	return uintptr(*all), l.call("MPI_Comm_set_errhandler", l.setErrhandler, uintptr(*all), l.errorsReturn)
}

// drop frees a communicator.
func (d *Driver) drop(comm uintptr) {
	handle := new(uint64)
	*handle = uint64(comm)
	dl.Call(d.lib.commFree, uintptr(unsafe.Pointer(handle))) // if this fails, the communicator exists until the end
}
