package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/migrate"
)

// This file measures each stage of a move alone: bench -as stages, and at the
// other end of the link bench -as sink.

// stages are the times of the stages.
type stages struct {
	Bytes                 int64 // bytes that were sent
	Write, Transfer, Read int64 // ns
}

// slowest returns the time of the slowest stage.
func (s *stages) slowest() int64 { return max(s.Write, s.Transfer, s.Read) }

// tape is the source's end of a connection. It records what is written.
type tape struct {
	net.Conn
	mu     sync.Mutex
	parts  [][]byte
	size   int64
	answer []byte
}

const tapePart = 16 << 20

func (t *tape) Write(p []byte) (int, error) {
	t.mu.Lock()
	for q := p; len(q) > 0; {
		last := len(t.parts) - 1
		if last < 0 || len(t.parts[last]) == tapePart {
			t.parts = append(t.parts, make([]byte, 0, tapePart))
			last++
		}
		n := min(len(q), tapePart-len(t.parts[last]))
		t.parts[last] = append(t.parts[last], q[:n]...)
		q = q[n:]
	}
	t.size += int64(len(p))
	t.mu.Unlock()
	return t.Conn.Write(p)
}

func (t *tape) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	t.answer = append(t.answer, p[:n]...)
	return n, err
}

// still has the methods that all fake connections share.
type still struct{ closed chan struct{} }

func (s *still) Close() error {
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}
func (*still) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*still) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*still) SetDeadline(time.Time) error      { return nil }
func (*still) SetReadDeadline(time.Time) error  { return nil }
func (*still) SetWriteDeadline(time.Time) error { return nil }

// nowhere discards what a source writes, and gives it the destination's answer.
type nowhere struct {
	still
	left   int64
	all    chan struct{} // closed when all was written
	answer []byte
}

func (n *nowhere) Write(p []byte) (int, error) {
	if n.left -= int64(len(p)); n.left == 0 {
		close(n.all)
	}
	return len(p), nil
}

func (n *nowhere) Read(p []byte) (int, error) {
	select {
	case <-n.all:
	case <-n.closed:
	}
	if len(n.answer) == 0 {
		<-n.closed
		return 0, net.ErrClosed
	}
	k := copy(p, n.answer)
	n.answer = n.answer[k:]
	return k, nil
}

// replay gives a destination the recorded bytes of a source.
type replay struct {
	still
	parts [][]byte
}

func (r *replay) Write(p []byte) (int, error) { return len(p), nil }

func (r *replay) Read(p []byte) (int, error) {
	for len(r.parts) > 0 && len(r.parts[0]) == 0 {
		r.parts = r.parts[1:]
	}
	if len(r.parts) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.parts[0])
	r.parts[0] = r.parts[0][n:]
	return n, nil
}

// runStages measures the stages of a rank of a given size.
func runStages(ctx context.Context, size int64, to string, out io.Writer) error {
	c := newContent(size)
	c.write(0, len(c.versions), 0)
	o := migrate.Options{Ranks: 1, BatchSize: usual}
	roots := func(c *content) []graph.Root {
		return []graph.Root{{Name: "words", Ptr: &c.words}, {Name: "versions", Ptr: &c.versions}, {Name: "step", Ptr: &c.step}}
	}
	write := func(conn net.Conn) error {
		img, err := graph.Collect(roots(c), nil)
		if err != nil {
			return err
		}
		g := migrate.NewSource(conn, o)
		defer g.Close()
		_, err = g.Finish(ctx, img, nil, ckpt.Note{}, nil)
		return err
	}
	into := newContent(size)
	read := func(conn net.Conn) error {
		_, err := migrate.Receive(ctx, conn, o, migrate.Receiver{Fit: func(*graph.Image) ([]graph.Root, *graph.Env, []string, error) {
			return roots(into), nil, nil, nil
		}})
		return err
	}
	x, y := net.Pipe()
	t := &tape{Conn: x}
	came := make(chan error, 1)
	go func() { came <- read(y) }()
	if err := errors.Join(write(t), <-came); err != nil {
		return err
	}
	var s stages
	s.Bytes = t.size
	debug.FreeOSMemory()
	began := time.Now()
	if err := write(&nowhere{still: still{make(chan struct{})}, left: t.size, all: make(chan struct{}), answer: t.answer}); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	s.Write = int64(time.Since(began))
	var err error
	if s.Transfer, err = transfer(ctx, to, t.size, t.parts); err != nil {
		return fmt.Errorf("transfer: %w", err)
	}
	debug.FreeOSMemory()
	began = time.Now()
	if err := read(&replay{still: still{make(chan struct{})}, parts: append([][]byte(nil), t.parts...)}); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	s.Read = int64(time.Since(began))
	return json.NewEncoder(out).Encode(&s)
}

// transfer sends bytes to a sink and returns how long it took.
func transfer(ctx context.Context, to string, size int64, parts [][]byte) (int64, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", to)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], uint64(size))
	if _, err := conn.Write(word[:]); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(conn, word[:1]); err != nil { // the sink has allocated its memory
		return 0, err
	}
	began := time.Now()
	bufs := append(net.Buffers(nil), parts...)
	if _, err := bufs.WriteTo(conn); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(conn, word[:1]); err != nil {
		return 0, err
	}
	return int64(time.Since(began)), nil
}

// runSend measures a transfer alone.
func runSend(ctx context.Context, size int64, to string, out io.Writer) error {
	c := newContent(size)
	c.write(0, len(c.versions), 0)
	var parts [][]byte
	for left, at := size, 0; left > 0; {
		n := min(left, tapePart)
		p := make([]byte, 0, n)
		for ; int64(len(p)) < n; at++ {
			p = binary.LittleEndian.AppendUint64(p, c.words[at%len(c.words)])
		}
		parts = append(parts, p[:n])
		left -= n
	}
	ns, err := transfer(ctx, to, size, parts)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(&stages{Bytes: size, Transfer: ns})
}

// runSink receives what senders send, into memory.
func runSink(out io.Writer) error {
	ln, err := net.Listen("tcp", ":0")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, ln.Addr().(*net.TCPAddr).Port); err != nil {
		return err
	}
	go func() { // the process that started it is gone
		io.Copy(io.Discard, os.Stdin)
		ln.Close()
	}()
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := sink(conn); err != nil {
			return err
		}
		debug.FreeOSMemory()
	}
}

func sink(conn net.Conn) error {
	defer conn.Close()
	var word [8]byte
	if _, err := io.ReadFull(conn, word[:]); err != nil {
		return err
	}
	p := make([]byte, binary.LittleEndian.Uint64(word[:]))
	for i := 0; i < len(p); i += 4096 { // touch the memory now, so that only the link is measured
		p[i] = 1
	}
	if _, err := conn.Write(word[:1]); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, p); err != nil {
		return err
	}
	_, err := conn.Write(word[:1])
	return err
}
