package mpilib

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/cairnrun/cairn/internal/dl"
)

// library is an MPI library: its functions, and its constants, which differ
// between the two kinds. A handle is the address of an object in Open MPI and a
// 32-bit number in MPICH. Both fit into a word, and can be treated alike as
// parameters and in the memory of a little-endian machine.
type library struct {
	*dl.Library
	kind string

	world, bytes, errorsReturn uintptr
	anySource                  int32
	ignore                     uintptr // MPI_STATUS_IGNORE
	source                     int     // index of MPI_SOURCE in a status
	mpichStatus                bool    // the status has MPICH's layout

	allgather, cancel, commDup, commRank, commSize            uintptr
	errorString, finalize, finalized, initThread, initialized uintptr
	iprobe, irecv, isend, processorName, recv                 uintptr
	setErrhandler, test, commFree                             uintptr

	// Results of calls. Memory that C writes to must be on the heap.
	out *results
	// Arguments of the next call. They are reused, so that calls do not
	// allocate.
	args []uintptr
}

// status is an MPI_Status. It is large enough for both kinds, and the fields of
// interest are 32-bit words.
type status [16]int32

type results struct {
	request uint64
	flag    int32
	status  status
}

const (
	threadSerialized = 2
	maxText          = 1024 // more than MPI_MAX_ERROR_STRING and MPI_MAX_PROCESSOR_NAME
)

// openLibrary opens the first library that has one of these names, and finds
// out its kind.
func openLibrary(names []string) (*library, error) {
	// Plug-ins of Open MPI need the symbols of the library that loads them.
	d, err := dl.OpenGlobal(names...)
	if err != nil {
		return nil, err
	}
	l := &library{Library: d, out: new(results), args: make([]uintptr, 8)}
	for name, fn := range map[string]*uintptr{
		"MPI_Allgather": &l.allgather, "MPI_Cancel": &l.cancel, "MPI_Comm_dup": &l.commDup, "MPI_Comm_free": &l.commFree,
		"MPI_Comm_rank": &l.commRank, "MPI_Comm_size": &l.commSize, "MPI_Error_string": &l.errorString,
		"MPI_Finalize": &l.finalize, "MPI_Finalized": &l.finalized, "MPI_Init_thread": &l.initThread,
		"MPI_Initialized": &l.initialized, "MPI_Iprobe": &l.iprobe, "MPI_Irecv": &l.irecv, "MPI_Isend": &l.isend,
		"MPI_Get_processor_name": &l.processorName, "MPI_Recv": &l.recv,
		"MPI_Comm_set_errhandler": &l.setErrhandler, "MPI_Test": &l.test,
	} {
		if *fn, err = d.Lookup(name); err != nil {
			return nil, fmt.Errorf("this is not an MPI library: %w", err)
		}
	}
	if l.world, err = d.Lookup("ompi_mpi_comm_world"); err != nil {
		// MPICH and compatible libraries share this binary interface.
		l.kind = "MPICH"
		l.world, l.bytes, l.errorsReturn = 0x44000000, 0x4c00010d, 0x54000001
		l.anySource, l.ignore, l.source, l.mpichStatus = -2, 1, 2, true
		return l, nil
	}
	l.kind = "Open MPI"
	l.anySource, l.ignore, l.source = -1, 0, 0
	if l.bytes, err = d.Lookup("ompi_mpi_byte"); err == nil {
		l.errorsReturn, err = d.Lookup("ompi_mpi_errors_return")
	}
	return l, err
}

// call calls a function and converts its result to an error.
//
//go:uintptrescapes
func (l *library) call(what string, fn uintptr, args ...uintptr) error {
	return l.check(what, dl.Call(fn, args...))
}

func (l *library) check(what string, code uintptr) error {
	if int32(code) == 0 {
		return nil
	}
	text := make([]byte, maxText)
	n := new(int32)
	said := "unknown error"
	if dl.Call(l.errorString, code, uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(n))) == 0 {
		said = string(text[:max(0, min(int(*n), maxText))])
	}
	return fmt.Errorf("%s: %s (%s)", what, strings.TrimSpace(said), l.kind)
}

// number calls a function that returns a number or a flag through a pointer.
func (l *library) number(what string, fn uintptr, before ...uintptr) (int, error) {
	n := new(int32)
	var err error
	if len(before) == 0 {
		err = l.call(what, fn, uintptr(unsafe.Pointer(n)))
	} else {
		err = l.call(what, fn, before[0], uintptr(unsafe.Pointer(n)))
	}
	return int(*n), err
}

// startIsend and the functions below are on the path of messages. They do not
// allocate; arguments and results are in memory that is reused. The memory at p
// must be on the heap and stay allocated until the request is complete.
func (l *library) startIsend(p unsafe.Pointer, n, to, tag int, comm uintptr) (uint64, error) {
	a := l.args[:7]
	a[0], a[1], a[2], a[3], a[4], a[5] = uintptr(p), uintptr(n), l.bytes, uintptr(to), uintptr(tag), comm
	l.out.request = 0
	a[6] = uintptr(unsafe.Pointer(&l.out.request))
	if code := dl.Call(l.isend, a...); int32(code) != 0 {
		return 0, l.check("MPI_Isend", code)
	}
	return l.out.request, nil
}

func (l *library) startIrecv(p unsafe.Pointer, n, from, tag int, comm uintptr) (uint64, error) {
	a := l.args[:7]
	a[0], a[1], a[2], a[3], a[4], a[5] = uintptr(p), uintptr(n), l.bytes, uintptr(uint32(from)), uintptr(tag), comm
	l.out.request = 0
	a[6] = uintptr(unsafe.Pointer(&l.out.request))
	if code := dl.Call(l.irecv, a...); int32(code) != 0 {
		return 0, l.check("MPI_Irecv", code)
	}
	return l.out.request, nil
}

// done tests a request. Its status is then in l.out.status.
func (l *library) done(request uint64) (bool, error) {
	a := l.args[:3]
	l.out.request, l.out.flag = request, 0
	a[0], a[1], a[2] = uintptr(unsafe.Pointer(&l.out.request)), uintptr(unsafe.Pointer(&l.out.flag)), uintptr(unsafe.Pointer(&l.out.status))
	if code := dl.Call(l.test, a...); int32(code) != 0 {
		return true, l.check("MPI_Test", code)
	}
	return l.out.flag != 0, nil
}

// cancelRequest cancels a receive. The caller must test the request afterwards.
func (l *library) cancelRequest(request uint64) {
	l.out.request = request
	l.args[0] = uintptr(unsafe.Pointer(&l.out.request))
	dl.Call(l.cancel, l.args[:1]...)
}

// probe reports whether a message with that tag has arrived, and its sender.
func (l *library) probe(tag int, comm uintptr) (from int, ok bool, err error) {
	l.out.flag = 0
	err = l.call("MPI_Iprobe", l.iprobe, uintptr(uint32(l.anySource)), uintptr(tag), comm,
		uintptr(unsafe.Pointer(&l.out.flag)), uintptr(unsafe.Pointer(&l.out.status)))
	return int(l.out.status[l.source]), err == nil && l.out.flag != 0, err
}

// received returns the sender and the length of the message that the last test
// completed.
func (l *library) received() (from, n int) {
	s := &l.out.status
	if l.mpichStatus {
		return int(s[l.source]), int(uint32(s[0])) | int(s[1]>>1)<<32
	}
	return int(s[l.source]), int(uint32(s[4])) | int(s[5])<<32
}

// host returns the name that MPI has for this host.
func (l *library) host() (string, error) {
	text := make([]byte, maxText)
	n := new(int32)
	err := l.call("MPI_Get_processor_name", l.processorName, uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(n)))
	text, _, _ = bytes.Cut(text, []byte{0})
	return string(text), err
}

// gather collects data of equal length from all ranks.
func (l *library) gather(comm uintptr, mine []byte, size int) ([]byte, error) {
	all := make([]byte, len(mine)*size)
	if len(all) == 0 {
		return nil, nil
	}
	err := l.call("MPI_Allgather", l.allgather, uintptr(unsafe.Pointer(&mine[0])), uintptr(len(mine)), l.bytes,
		uintptr(unsafe.Pointer(&all[0])), uintptr(len(mine)), l.bytes, comm)
	return all, err
}

// gatherAll collects data of any length from all ranks.
func (l *library) gatherAll(comm uintptr, mine []byte, size int) ([][]byte, error) {
	if len(mine) >= 1<<30/size {
		return nil, errors.New("too much data for one exchange")
	}
	lengths, err := l.gather(comm, binary.LittleEndian.AppendUint32(nil, uint32(len(mine))), size)
	if err != nil {
		return nil, err
	}
	longest := 0
	for i := range size {
		longest = max(longest, int(binary.LittleEndian.Uint32(lengths[4*i:])))
	}
	padded := make([]byte, longest)
	copy(padded, mine)
	data, err := l.gather(comm, padded, size)
	if err != nil {
		return nil, err
	}
	all := make([][]byte, size)
	for i := range all {
		all[i] = data[i*longest:][:binary.LittleEndian.Uint32(lengths[4*i:])]
	}
	return all, nil
}
