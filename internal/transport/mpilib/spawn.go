package mpilib

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"
)

// spawnMax is the maximum length of a value for MPI_Info_set. Open MPI accepts
// less than 256 bytes.
const spawnMax = 250

// Spawn makes the launcher of the other processes start a process on one of its
// hosts, by MPI_Comm_spawn. The new process is a world of its own: the library
// assumes that it does not use MPI, and does not wait for it. Spawn returns
// when the process has been started, not when it has initialised MPI; if it
// never does, that is harmless. After it has, OpenPort and Join connect it with
// the others, also across hosts.
//
// env holds variables for the new process. They must be short: the library
// accepts few bytes. The environment of the new process contains
// OMPI_PARENT_PORT, which it must remove before it initialises MPI. Open MPI
// ends all processes of its launcher if the command cannot be executed, if it
// exits with a status other than zero, or if it ends after MPI was initialised
// in it and not finalized. Open MPI refuses an unknown host with an error. It
// would crash at the next attempt to start a process, so Spawn makes none.
//
// Spawn usually blocks for less than a second, and the library does nothing
// else meanwhile. It is made for Open MPI 4.
func (d *Driver) Spawn(host string, command, env []string) error {
	fail := func(err error) error { return fmt.Errorf("mpi: starting a process on %s: %w", host, err) }
	switch {
	case d.closed:
		return fail(ErrFinished)
	case d.stuck:
		return fail(errStuck)
	case !d.ours:
		return fail(errors.New("MPI was initialised by the program"))
	case d.refused:
		return fail(errors.New("the launcher has refused to start another one before"))
	case len(command) == 0:
		return fail(errors.New("there is no command"))
	}
	if err := d.spawns(); err != nil {
		return fail(err)
	}
	hints := [][2]string{
		{"host", host}, {"wdir", "/"}, {"env", strings.Join(env, "\n")},
		{"ompi_non_mpi", "true"},
		{"map_by", "node:OVERSUBSCRIBE"}, // the slot of the replaced process will be free soon
		{"bind_to", "none"},              // by default, to one processor
	}
	for _, h := range hints {
		if h[1] == "" || len(h[1]) > spawnMax || strings.ContainsRune(h[1], 0) {
			return fail(fmt.Errorf("%s of %d bytes cannot be given to the library", h[0], len(h[1])))
		}
	}
	return d.spawn(command, hints, fail)
}

// spawns checks whether Spawn supports the library.
func (d *Driver) spawns() error {
	if text := d.lib.version(); d.lib.kind != "Open MPI" || !strings.Contains(text, "Open MPI v4.") {
		return fmt.Errorf("that is known to work with Open MPI 4 only, and this is %s", strings.TrimSpace(strings.SplitN(text, ",", 2)[0]))
	}
	return nil
}

func (d *Driver) spawn(command []string, hints [][2]string, fail func(error) error) error {
	l := d.lib
	var create, set, free, spawn uintptr
	for name, fn := range map[string]*uintptr{
		"MPI_Info_create": &create, "MPI_Info_set": &set, "MPI_Info_free": &free, "MPI_Comm_spawn": &spawn,
	} {
		var err error
		if *fn, err = l.Lookup(name); err != nil {
			return fail(err)
		}
	}
	j, err := l.findJoining()
	if err != nil {
		return fail(err)
	}
	// Errors of these calls belong to no communicator of ours.
	for _, comm := range []uintptr{l.world, j.self} {
		if err := l.call("MPI_Comm_set_errhandler", l.setErrhandler, comm, l.errorsReturn); err != nil {
			return fail(err)
		}
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	text := func(s string) uintptr {
		b := append([]byte(s), 0)
		pin.Pin(&b[0])
		return uintptr(unsafe.Pointer(&b[0]))
	}
	info := new(uint64)
	if err := l.call("MPI_Info_create", create, uintptr(unsafe.Pointer(info))); err != nil {
		return fail(err)
	}
	defer func() { l.call("MPI_Info_free", free, uintptr(unsafe.Pointer(info))) }() // if this fails, the object exists until the end
	for _, h := range hints {
		if err := l.call("MPI_Info_set", set, uintptr(*info), text(h[0]), text(h[1])); err != nil {
			return fail(err)
		}
	}
	argv := make([]uintptr, 0, len(command))
	for _, s := range command[1:] {
		argv = append(argv, text(s))
	}
	argv = append(argv, 0)
	inter, code := new(uint64), new(int32)
	if err := l.call("MPI_Comm_spawn", spawn, text(command[0]), uintptr(unsafe.Pointer(&argv[0])), 1, uintptr(*info), 0, j.self,
		uintptr(unsafe.Pointer(inter)), uintptr(unsafe.Pointer(code))); err != nil {
		d.refused = true
		return fail(err)
	}
	return nil
}
