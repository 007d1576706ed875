//go:build linux && (amd64 || arm64) && !static

package mpilib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/transport"
)

const (
	bodyEnv = "CAIRN_TEST_MPI_BODY"
	dirEnv  = "CAIRN_TEST_MPI_DIR" // a directory for this test alone
)

// bodies are the programs of processes under a launcher. launched runs them.
var bodies = map[string]func() error{
	"world":    worldBody,
	"signals":  signalsBody,
	"crash":    crashBody,
	"panic":    panicBody,
	"finished": finishedBody,
	"slurm":    slurmBody,
	"leaves":   leavesBody,
	"pingpong": pingPongBody,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(bodyEnv); name != "" {
		if err := bodies[name](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// worldBody checks what the driver reports about the world.
func worldBody() error {
	d, err := Open(Options{})
	if err != nil {
		return err
	}
	if d.Size() != 3 || d.Host(2) == "" || d.Host(d.Rank()) == "" {
		return fmt.Errorf("rank %d of %d on %q", d.Rank(), d.Size(), d.hosts)
	}
	for _, base := range []int{0, 1, 5000} {
		mine := bytes.Repeat([]byte{byte('a' + d.Rank())}, base*d.Rank())
		all, err := d.Allgather(mine)
		if err != nil {
			return err
		}
		for i, b := range all {
			if want := bytes.Repeat([]byte{byte('a' + i)}, base*i); !bytes.Equal(b, want) {
				return fmt.Errorf("rank %d: rank %d said %d bytes, not %d", d.Rank(), i, len(b), len(want))
			}
		}
	}
	addresses, err := d.Allgather(d.Address())
	if err != nil {
		return err
	}
	for i, c := range addresses {
		if !d.Reaches(c) || d.Reaches(c[1:]) {
			return fmt.Errorf("the address of rank %d", i)
		}
		c[whoAt+len(identity{})-1]++
		if d.Reaches(c) {
			return errors.New("another world is reached")
		}
	}
	if d.Rank() == 0 {
		fmt.Println("library", d.Library())
	}
	return d.Close()
}

// signalsBody checks that Go still receives signals after MPI has started, on
// any thread.
func signalsBody() error {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGTERM, syscall.SIGUSR1)
	d, err := Open(Options{})
	if err != nil {
		return err
	}
	late := make(chan os.Signal, 1)
	signal.Notify(late, syscall.SIGUSR2)
	for range 20 {
		for sig, c := range map[syscall.Signal]chan os.Signal{syscall.SIGTERM: heard, syscall.SIGUSR1: heard, syscall.SIGUSR2: late} {
			if err := syscall.Kill(os.Getpid(), sig); err != nil {
				return err
			}
			select {
			case got := <-c:
				if got != sig {
					return fmt.Errorf("%v came as %v", sig, got)
				}
			case <-time.After(10 * time.Second):
				return fmt.Errorf("%v was not heard", sig)
			}
			if _, err := d.Allgather([]byte("x")); err != nil {
				return err
			}
		}
	}
	// A fault in Go code is a panic that can be recovered.
	if err := fault(); err == nil || !strings.Contains(err.Error(), "nil pointer") {
		return fmt.Errorf("a nil pointer gave %v", err)
	}
	return d.Close()
}

func fault() (err error) {
	defer func() { err, _ = recover().(error) }()
	var p *[8]int
	_ = p[time.Now().Unix()&7]
	return nil
}

// onlyZero returns for rank 0 only. The launcher ends the other rank when rank
// 0 dies. If both died at once, their output would be mixed.
func onlyZero() error {
	d, err := Open(Options{})
	if err != nil {
		return err
	}
	if d.Rank() != 0 {
		time.Sleep(time.Minute)
		return errors.New("outlived rank 0 by a minute")
	}
	return nil
}

func crashBody() error {
	if err := onlyZero(); err != nil {
		return err
	}
	var p *[8]int
	fmt.Println(p[time.Now().Unix()&7])
	return nil
}

func panicBody() error {
	if err := onlyZero(); err != nil {
		return err
	}
	panic("as it should be")
}

func finishedBody() error {
	d, err := Open(Options{})
	if err != nil {
		return err
	}
	second, err := Open(Options{}) // uses the MPI that is initialised already, and does not end it
	if err != nil {
		return err
	}
	if err := second.Close(); err != nil {
		return err
	}
	if _, err := d.Allgather([]byte("still here")); err != nil {
		return err
	}
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		return err
	}
	if _, err := d.Connect(context.Background(), nil, discard{}); !errors.Is(err, ErrFinished) {
		return fmt.Errorf("connected after the end: %v", err)
	}
	if _, err := Open(Options{}); !errors.Is(err, ErrFinished) {
		return fmt.Errorf("opened after the end: %v", err)
	}
	return nil
}

// slurmBody hides which launcher started it, except for the size. The right
// library must be found by trying.
func slurmBody() error {
	size := os.Getenv("PMI_SIZE") + os.Getenv("OMPI_COMM_WORLD_SIZE")
	d, err := Open(Options{getenv: func(name string) string {
		switch name {
		case "SLURM_PROCID":
			return "0"
		case "SLURM_NTASKS":
			return size
		}
		return ""
	}})
	if err != nil {
		return err
	}
	if fmt.Sprint(d.Size()) != size {
		return fmt.Errorf("size %d, not %s", d.Size(), size)
	}
	if d.Rank() == 0 {
		fmt.Println("library", d.Library())
	}
	return d.Close()
}

// leavesBody makes rank 0 send short frames, and stop polling when the link has
// returned all of them. No frame may be left behind.
func leavesBody() error {
	d, err := Open(Options{})
	if err != nil {
		return err
	}
	addresses, err := d.Allgather(d.Address())
	if err != nil {
		return err
	}
	e := &echo{buf: make([]byte, inlineMax)}
	if e.Link, err = d.Connect(context.Background(), addresses, e); err != nil {
		return err
	}
	note := func(name string) string { return filepath.Join(os.Getenv(dirEnv), name) }
	await := func(name string, meanwhile func()) error {
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); meanwhile() {
			if _, err := os.Stat(note(name)); err == nil {
				return nil
			}
		}
		return fmt.Errorf("rank %d waited in vain until rank %d %s; %d frames are here", d.Rank(), 1-d.Rank(), name, e.n)
	}
	rest := func() { time.Sleep(time.Millisecond) }
	const frames = 120
	if d.Rank() == 0 {
		kept := 0
		for range frames {
			if !e.Send(1, &transport.Header{}, e.buf, nil) {
				kept++
			}
		}
		if err := os.WriteFile(note("sent"), nil, 0o600); err != nil {
			return err
		}
		for e.sent < kept {
			e.Poll()
		}
		if err := await("has all", rest); err != nil {
			return err
		}
	} else {
		if err := await("sent", rest); err != nil {
			return err
		}
		for end := time.Now().Add(20 * time.Second); e.n < frames; e.Poll() {
			if time.Now().After(end) {
				return fmt.Errorf("%d of %d frames left rank 0, which was told that all did", e.n, frames)
			}
		}
		if err := os.WriteFile(note("has all"), nil, 0o600); err != nil {
			return err
		}
	}
	return errors.Join(e.Close(context.Background()), d.Close())
}

// echo sends frames back, or counts them.
type echo struct {
	transport.Link
	buf  []byte
	n    int
	sent int
	gone bool
	back bool
}

func (e *echo) Arriving(_ int, _ *transport.Header, n int) []byte { return e.buf[:n] }
func (e *echo) Sent(any)                                          { e.sent++ }
func (e *echo) Lost(int, error)                                   { e.gone = true }
func (e *echo) Arrived(peer int, h *transport.Header, b []byte) {
	e.n++
	if e.back {
		e.Send(peer, h, b, nil)
	}
}

// pingPongBody measures half a round trip.
func pingPongBody() error {
	d, err := Open(Options{})
	if err != nil {
		return err
	}
	addresses, err := d.Allgather(d.Address())
	if err != nil {
		return err
	}
	e := &echo{buf: make([]byte, 16<<20), back: d.Rank() == 1}
	if e.Link, err = d.Connect(context.Background(), addresses, e); err != nil {
		return err
	}
	defer d.Close()
	defer e.Close(context.Background())
	if d.Rank() == 1 {
		for !e.gone {
			e.Poll()
		}
		return nil
	}
	payload := make([]byte, 16<<20)
	var h transport.Header
	for _, size := range []int{1, 4096, 8192, 8193, 65536, 1 << 20, 4 << 20, 16 << 20} {
		rounds := max(20, min(20000, (256<<20)/(size+10000)))
		var begin time.Time
		for i := -rounds / 10; i < rounds; i++ {
			if i == 0 {
				begin = time.Now()
			}
			want := e.n + 1
			e.Send(1, &h, payload[:size], nil)
			for e.n < want {
				e.Poll()
			}
		}
		way := time.Since(begin).Seconds() / float64(2*rounds)
		fmt.Printf("%9d %9.2f us %9.1f MB/s\n", size, way*1e6, float64(size)/way/1e6)
	}
	return nil
}
