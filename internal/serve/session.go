//go:build linux

package serve

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cairnrun/cairn/internal/engine"
)

// Why a checkpoint is taken, as bits; internal.h has the same.
const (
	whyTime = 1 << iota
	whyStop
	news // only in the page: there is a message
	whyPoints
	whyRequest
	whySignal
	whyCall
)

// Statuses of cairn.h.
const (
	statusError = -1 - iota
	statusArgument
	statusNotSaved
	statusMismatch
	statusCorrupt
	statusFinished
	statusInUse
)

var errOption = errors.New("cairn_options")

func statusOf(err error) int32 {
	for _, s := range []struct {
		err    error
		status int32
	}{
		{engine.ErrNotSaved, statusNotSaved}, {engine.ErrMismatch, statusMismatch}, {engine.ErrCorrupt, statusCorrupt},
		{engine.ErrFinished, statusFinished}, {engine.ErrInUse, statusInUse}, {errProtocol, statusArgument}, {errOption, statusArgument},
	} {
		if errors.Is(err, s.err) {
			return s.status
		}
	}
	return statusError
}

// page is memory shared with the program.
type page struct {
	wake    atomic.Uint32
	step    atomic.Uint32 // changes when copied, until or filling does
	points  atomic.Uint64
	paused  atomic.Int64  // nanoseconds
	copied  atomic.Uint64 // see ready
	until   atomic.Uint64 // see ready
	filling atomic.Uint32 // see ready
}

const pageBytes = 4096

// session is the connection to one program.
type session struct {
	wire    wire
	pid     int // of the program
	page    *page
	mirror  *os.File
	extents []extent // by ascending offset
	mapped  []extent // … by ascending address
	run     *engine.Run
	vars    map[string]bool
	files   map[uint32]*os.File
	written [][2]uint64 // parts of the mirror, since the last save that succeeded

	messages chan *message // from the program; closed at its end
	ended    error         // why
	gone     atomic.Bool   // the program has ended

	exchanged atomic.Bool   // the program has been told of parts of a checkpoint that is being restored
	noticed   chan struct{} // the run has news: see notice
	told      uint64        // the newest durable checkpoint that the program knows
	asked     uint64        // the newest one that was begun
}

// Serve serves the program at the other end of conn, until it says goodbye or
// is gone. A checkpoint that the program had begun is published before it
// returns.
func Serve(ctx context.Context, conn *net.UnixConn) error {
	defer conn.Close()
	s := &session{
		wire: wire{conn: conn}, vars: make(map[string]bool), files: make(map[uint32]*os.File),
		messages: make(chan *message), noticed: make(chan struct{}, 1),
	}
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	defer s.close()
	m, err := s.wire.receive()
	if err != nil {
		return quiet(err)
	}
	if err := s.greet(ctx, m); err != nil {
		return quiet(s.fail(err)) // the program reports the error
	}
	go s.listen()
	err = s.loop(ctx)
	return errors.Join(err, s.end())
}

// watch ends the session when the program ends. The socket alone does not show
// that: processes that the program has forked may have it open. The messages
// that the program has sent are handled first.
func (s *session) watch(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // an old kernel, or it is gone: then the socket tells
	}
	go func() {
		defer unix.Close(fd)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n > 0 || err != nil && err != unix.EINTR {
				break
			}
		}
		s.gone.Store(true)
		s.wire.conn.CloseRead()
	}()
}

// end ends the run, after a checkpoint that is being written.
func (s *session) end() error {
	if s.run == nil {
		return nil
	}
	run := s.run
	s.run = nil
	return run.Close()
}

// quiet returns nil for the errors of a program that has ended, which it may do
// at any time.
func quiet(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		return nil
	}
	return err
}

// listen passes the program's messages to the loop.
func (s *session) listen() {
	defer close(s.messages)
	for {
		m, err := s.wire.receive()
		if err != nil {
			s.ended = err
			return
		}
		s.messages <- m
	}
}

// loop does what the program asks for, until it is gone.
func (s *session) loop(ctx context.Context) error {
	for {
		select {
		case m, ok := <-s.messages:
			if !ok {
				s.run.Abandon()
				return quiet(s.ended)
			}
			bye := m.kind == msgBye
			err := s.handle(ctx, m)
			m.close()
			if err != nil || bye {
				return quiet(err)
			}
		case <-s.noticed:
			if err := s.attend(); err != nil {
				return quiet(err)
			}
		}
	}
}

// close ends the run, after a checkpoint that is being written.
func (s *session) close() {
	go func() { // so that listen does not block
		for m := range s.messages {
			m.close()
		}
	}()
	s.end()
	for _, f := range s.files {
		f.Close()
	}
	for _, e := range s.extents {
		unix.Munmap(e.mem)
	}
	if s.mirror != nil {
		s.mirror.Close()
	}
}

// fail answers a request with an error.
func (s *session) fail(err error) error {
	b := binary.LittleEndian.AppendUint32(nil, uint32(statusOf(err)))
	return s.wire.send(msgFailed, appendText(b, err.Error()))
}

// greet takes the first message, and opens the run.
func (s *session) greet(ctx context.Context, m *message) error {
	c := &m.body
	if m.kind != msgHello || c.U32() != magic || len(m.files) != 2 {
		m.close()
		return fmt.Errorf("%w: no greeting", errProtocol)
	}
	pageFile := m.files[0]
	s.mirror = m.files[1]
	defer pageFile.Close()
	version := c.U32()
	order := c.Take(4)
	pid, rank, ranks := c.U32(), int32(c.U32()), int32(c.U32())
	release, dir := c.text(), c.text()
	if c.Bad() {
		return c.end()
	}
	if version != Version || release != Release {
		return fmt.Errorf("the library is of version %s (messages %d), and the helper is cairn %s (messages %d): install both from the same release", release, version, Release, Version)
	}
	if binary.NativeEndian.Uint32(order) != byteOrder {
		return errors.New("the program and the helper have different byte orders")
	}
	every, points, mtbf := c.F64(), c.U64(), c.F64()
	keep, bases, memory := int32(c.U32()), int32(c.U32()), c.U64()
	compression, tiers, flags := c.text(), c.text(), c.U32()
	if err := c.end(); err != nil {
		return err
	}
	for _, o := range []struct {
		option string
		value  any
		ok     bool
		most   string
	}{
		{"every", every, every >= 0 && every < 1e9, "1e9 seconds"}, {"mtbf", mtbf, mtbf >= 0 && mtbf < 1e12, "1e12 seconds"},
		{"every_points", points, points <= 1<<40, "2^40"}, {"keep", keep, keep >= 0, "2^31"}, {"memory", memory, memory <= 1<<60, "2^60"},
		{"size of the communicator", ranks, ranks >= 0 && ranks <= 1<<20, "2^20"},
	} {
		if !o.ok {
			return fmt.Errorf("%w: %s is %v: give a value of at least 0 and less than %s", errOption, o.option, o.value, o.most)
		}
	}
	if c := engine.Compression(compression); compression != "" && compression != "none" && c != engine.Zstd && c != engine.Gzip {
		return fmt.Errorf("%w: compression is %q: give none, zstd or gzip", errOption, compression)
	}
	if st, err := pageFile.Stat(); err != nil || st.Size() < pageBytes {
		return fmt.Errorf("%w: no shared memory", errProtocol)
	}
	for _, f := range m.files { // else a program could end the helper
		if seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0); err != nil || seals&unix.F_SEAL_SHRINK == 0 {
			return fmt.Errorf("%w: shared memory that can become shorter", errProtocol)
		}
	}
	mem, err := unix.Mmap(int(pageFile.Fd()), 0, pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("%w: shared memory: %w", errProtocol, err)
	}
	s.page = (*page)(unsafe.Pointer(unsafe.SliceData(mem)))
	o := engine.Options{
		Dir: dir, Tiers: tiers, Every: seconds(every), EveryPoints: int(points), MTBF: seconds(mtbf), Keep: int(keep), MaxBases: int(bases), Memory: int64(memory),
		Compression: engine.Compression(compression), Fresh: flags&1 != 0, GroupReadable: flags&2 != 0, AnyOwner: flags&4 != 0,
		Signals: map[os.Signal]engine.SignalAction{}, OnDue: s.notice,
		Driver: &engine.Driver{Pid: int(pid), Rank: int(rank), Ranks: int(ranks), Exchange: s.exchange, Running: flags&8 != 0, Tracker: (*tracker)(s), Stable: s.inMirror, Loading: s.loading, Checked: s.checked, Ready: s.ready},
	}
	if compression == "none" {
		o.Compression = engine.None
	}
	if s.run, err = engine.Open(ctx, o); err != nil {
		return err
	}
	s.watch(int(pid))
	s.pid = int(pid)
	b := binary.LittleEndian.AppendUint32(nil, Version)
	b = appendText(b, Release)
	b = binary.LittleEndian.AppendUint32(b, uint32(s.run.Rank()))
	b = binary.LittleEndian.AppendUint32(b, uint32(s.run.Ranks()))
	b = binary.LittleEndian.AppendUint64(b, s.run.EveryPoints())
	b = binary.LittleEndian.AppendUint64(b, s.run.Committed())
	resuming := uint32(0)
	if s.run.Resuming() {
		resuming = 1
	}
	b = binary.LittleEndian.AppendUint32(b, resuming)
	return s.wire.send(msgWelcome, b)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// exchange sends a text of this helper to the helpers of all ranks, through the
// programs, and returns the texts of all.
func (s *session) exchange(_ context.Context, mine []byte) ([][]byte, error) {
	if err := s.wire.send(msgGather, mine); err != nil {
		return nil, err
	}
	m, err := s.wire.receive()
	if err != nil {
		return nil, err
	}
	defer m.close()
	if m.kind != msgGathered {
		return nil, fmt.Errorf("%w: kind %d instead of what the ranks exchange", errProtocol, m.kind)
	}
	var all [][]byte
	for m.body.Left() > 0 && !m.body.Bad() {
		all = append(all, []byte(m.body.text()))
	}
	return all, m.body.end()
}

// notice wakes the loop. The run calls it when a checkpoint is due, committed
// or not saved, in any goroutine.
func (s *session) notice() {
	select {
	case s.noticed <- struct{}{}:
	default:
	}
}

// attend finds out what has happened in the run, and tells the program.
func (s *session) attend() error {
	a := s.run.Attend()
	if a.Due {
		s.page.wake.Or(whyTime)
	}
	if a.Stop {
		s.page.wake.Or(whyStop)
	}
	if a.Err != nil {
		return s.news(max(s.asked, a.Committed), a.Err.Error())
	}
	if a.Committed > s.told {
		s.told = a.Committed
		return s.news(a.Committed, "")
	}
	return nil
}

func (s *session) news(index uint64, text string) error {
	return s.wire.send(msgNews, appendText(binary.LittleEndian.AppendUint64(nil, index), text))
}

// handle does what one message says. An error ends the session.
func (s *session) handle(ctx context.Context, m *message) error {
	var answer []byte
	var err error
	switch m.kind {
	case msgExtent:
		return s.extend(&m.body)
	case msgVars:
		err = s.setVars(&m.body)
	case msgFile:
		answer, err = s.addFile(m)
	case msgMake:
		answer, err = s.makeFile(&m.body)
	case msgStored:
		answer, err = s.stored(&m.body)
	case msgRestore:
		answer, err = s.restore(ctx, &m.body)
	case msgList:
		answer, err = s.list()
	case msgRead:
		err = s.read(ctx, &m.body)
	case msgVariables:
		answer, err = s.variables(&m.body)
	case msgSave:
		return s.save(ctx, &m.body)
	case msgFinish:
		s.run.FinishWith(int(int32(m.body.U32())))
	case msgBye:
		return nil
	default:
		err = fmt.Errorf("%w: kind %d", errProtocol, m.kind)
	}
	if err != nil {
		return s.fail(err)
	}
	return s.wire.send(msgDone, answer)
}

// setVars removes, changes and adds variables.
func (s *session) setVars(c *cursor) error {
	gone := make(map[string]bool) // or changed
	for range c.count(4) {
		name := c.text()
		if s.vars[name] {
			gone[name] = true
		}
	}
	type variable struct {
		name string
		ptr  reflect.Value
	}
	var list []variable
	for range c.count(20) {
		name, at := c.text(), c.U64()
		dims, err := readDims(c)
		if err != nil {
			return err
		}
		t, err := readType(c, 0)
		if err == nil && !c.Bad() {
			t, err = arrayOf(t, dims)
		}
		if err != nil {
			return fmt.Errorf("variable %q: %w", name, err)
		}
		if c.Bad() {
			break
		}
		p, err := s.memory(at, max(uint64(t.Size()), 1))
		if err != nil {
			return fmt.Errorf("variable %q: %w", name, err)
		}
		if s.vars[name] {
			gone[name] = true
		}
		list = append(list, variable{name, reflect.NewAt(t, p)})
	}
	if err := c.end(); err != nil {
		return err
	}
	s.run.Unprotect(gone) // only now: a message that is refused changes nothing
	for name := range gone {
		delete(s.vars, name)
	}
	for _, v := range list {
		if err := s.run.ProtectValue(v.name, v.ptr.Interface()); err != nil {
			return err
		}
		s.vars[v.name] = true
	}
	return nil
}

func (s *session) stored(c *cursor) ([]byte, error) {
	index, name := c.U64(), c.text()
	if err := c.end(); err != nil {
		return nil, err
	}
	elem, dims, err := s.run.Stored(index, name)
	if err != nil {
		return nil, err
	}
	return appendShape(nil, elem, dims), nil
}

// appendShape appends the code of a type, and dimensions.
func appendShape(b []byte, elem string, dims []uint64) []byte {
	code := uint32(codeStruct)
	for i, t := range basic[:codeBytes] {
		if t != nil && t.String() == elem {
			code = uint32(i)
		}
	}
	b = binary.LittleEndian.AppendUint32(b, code)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(dims)))
	for _, d := range dims {
		b = binary.LittleEndian.AppendUint64(b, d)
	}
	return b
}

// variables lists what a checkpoint holds.
func (s *session) variables(c *cursor) ([]byte, error) {
	index := c.U64()
	if err := c.end(); err != nil {
		return nil, err
	}
	list, err := s.run.StoredVariables(index)
	if err != nil {
		return nil, err
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(list)))
	for _, v := range list {
		b = appendShape(appendText(b, v.Name), v.Elem, v.Dims)
	}
	return b, nil
}

// list returns the checkpoints that read may take.
func (s *session) list() ([]byte, error) {
	list, err := s.run.Checkpoints()
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(list)))
	for _, n := range list {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b, err
}

// read loads one variable of a checkpoint into memory of the mirror.
func (s *session) read(ctx context.Context, c *cursor) error {
	index, name, at := c.U64(), c.text(), c.U64()
	dims, err := readDims(c)
	if err != nil {
		return err
	}
	t, err := readType(c, 0)
	if err == nil {
		err = c.end()
	}
	if err == nil {
		t, err = arrayOf(t, dims)
	}
	var p unsafe.Pointer
	if err == nil {
		p, err = s.memory(at, max(uint64(t.Size()), 1))
	}
	if err != nil {
		return fmt.Errorf("variable %q: %w", name, err)
	}
	return s.run.Read(ctx, index, name, reflect.NewAt(t, p).Interface())
}

func (s *session) restore(ctx context.Context, c *cursor) ([]byte, error) {
	restore := s.run.Restore
	if c.U32() != 0 {
		restore = s.run.Resume
	}
	unclaimed, err := readUnclaimed(c)
	if err == nil {
		err = c.end()
	}
	if err == nil {
		err = s.run.SetUnclaimed(unclaimed)
	}
	if err != nil {
		return nil, err
	}
	yes, err := restore(ctx)
	if err != nil {
		return nil, err
	}
	s.told = s.run.Committed()
	b := make([]byte, 4, 32)
	if yes {
		b[0] = 1
	}
	b = binary.LittleEndian.AppendUint64(b, s.told)
	b = binary.LittleEndian.AppendUint64(b, s.run.Points())
	return appendUnclaimed(b, s.run.Unclaimed())
}

// checked lets the program exchange a part of the mirror with its variables,
// while other parts are read.
func (s *session) checked(p []byte) {
	if at, ok := s.offset(p); ok {
		s.exchanged.Store(true)
		s.wire.send(msgChecked, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, at), at+uint64(len(p))))
	}
}

// loading makes the program exchange back what it has exchanged, before another
// checkpoint is read into the mirror.
func (s *session) loading(ctx context.Context) error {
	if !s.exchanged.Swap(false) {
		return nil
	}
	if err := s.wire.send(msgChecked, make([]byte, 16)); err != nil {
		return err
	}
	select {
	case m, ok := <-s.messages:
		if !ok {
			return s.ended
		}
		defer m.close()
		if m.kind != msgGathered {
			return fmt.Errorf("%w: kind %d instead of the answer to Checked", errProtocol, m.kind)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// save begins a checkpoint of what is in the mirror. It answers when the state
// of the program's files is recorded; then the program continues.
func (s *session) save(ctx context.Context, c *cursor) error {
	points, why := c.U64(), c.U32()
	for range c.count(4) {
		id := c.U32()
		if f := s.files[id]; f != nil {
			f.Close()
			delete(s.files, id)
		}
	}
	for range c.count(16) {
		s.written = append(s.written, [2]uint64{c.U64(), c.U64()})
	}
	if err := c.end(); err != nil {
		return errors.Join(s.fail(err), err)
	}
	s.written = union(s.written)
	s.page.wake.Store(0)
	answered := false
	err := s.run.Drive(ctx, engine.Drive{Points: points, Reason: reason(why), Stop: why&whyStop != 0, Pause: s.paused}, func(index uint64) {
		answered, s.asked = true, index
		s.wire.send(msgDone, binary.LittleEndian.AppendUint64(nil, index)) // a program that is gone has its checkpoint nevertheless
	})
	if err == nil {
		s.written = s.written[:0]
	}
	switch {
	case err != nil && answered:
		return s.news(s.asked, err.Error())
	case err != nil:
		return s.fail(err)
	case !answered:
		return s.fail(fmt.Errorf("%w: the ranks take no more checkpoints, because a rank has ended", engine.ErrNotSaved))
	}
	return s.attend()
}

// paused returns for how long the save has paused the program.
func (s *session) paused() time.Duration { return time.Duration(s.page.paused.Load()) }

// ready waits until the program has copied some memory to the mirror: it still
// copies after Save.
func (s *session) ready(p []byte) error {
	at, ok := s.offset(p)
	const failed = 2 // internal.h has the same
	for ok {
		step := s.page.step.Load()
		switch v := s.page.filling.Load(); {
		case v == 0:
			return nil
		case v >= failed:
			return fmt.Errorf("the program could not copy its GPU memory: CUDA error %d; if its next calls of CUDA fail too, end it and start it again: it resumes from the checkpoint before", v-failed)
		case s.page.copied.Load() >= at+uint64(len(p)) || s.page.until.Load() <= at:
			return nil
		case unix.Kill(s.pid, 0) == unix.ESRCH || s.gone.Load():
			return errors.New("the program ended while it copied its memory")
		}
		wait := unix.NsecToTimespec(int64(100 * time.Millisecond)) // then see whether the program is alive
		unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&s.page.step)), 0, uintptr(step), uintptr(unsafe.Pointer(&wait)), 0, 0)
	}
	return nil
}

func reason(why uint32) string {
	for _, r := range []struct {
		bit  uint32
		text string
	}{{whyCall, "call"}, {whySignal, "signal"}, {whyStop, "stop"}, {whyRequest, "request"}, {whyPoints, "points"}} {
		if why&r.bit != 0 {
			return r.text
		}
	}
	return "time"
}
