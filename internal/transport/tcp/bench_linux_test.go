package tcp

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/transport"
)

const echoEnv = "CAIRN_TEST_TCP_ECHO"

func TestMain(m *testing.M) {
	for env, run := range map[string]func() error{echoEnv: echoMain, vanishEnv: vanishMain} {
		if os.Getenv(env) == "" {
			continue
		}
		if err := run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// echo is a handler that sends every frame back, from the same memory, until a
// peer is lost.
type echo struct {
	transport.Link
	buf  []byte
	n    int
	gone bool
	back bool
}

func (e *echo) Arriving(_ int, _ *transport.Header, n int) []byte { return e.buf[:n] }
func (e *echo) Sent(any)                                          {}
func (e *echo) Lost(int, error)                                   { e.gone = true }
func (e *echo) Arrived(peer int, h *transport.Header, b []byte) {
	e.n++
	if e.back {
		e.Send(peer, h, b, nil)
	}
}

// echoMain is rank 1, in a process of its own. Addresses are exchanged through
// its standard input and output.
func echoMain() error {
	d, err := Open(Options{Rank: 1, Size: 2, Secret: testSecret, Listen: "127.0.0.1"})
	if err != nil {
		return err
	}
	fmt.Println(hex.EncodeToString(d.Address()))
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return err
	}
	address, err := hex.DecodeString(strings.TrimSpace(line))
	if err != nil {
		return err
	}
	e := &echo{buf: make([]byte, 64<<20), back: true}
	if e.Link, err = d.Connect(context.Background(), [][]byte{address, nil}, e); err != nil {
		return err
	}
	for !e.gone {
		e.Poll()
	}
	return nil
}

func startEcho(b *testing.B) (*echo, func()) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), echoEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	address, err := hex.DecodeString(strings.TrimSpace(line))
	if err != nil {
		b.Fatal(err)
	}
	d, err := Open(Options{Size: 2, Secret: testSecret, Listen: "127.0.0.1"})
	if err != nil {
		b.Fatal(err)
	}
	io.WriteString(in, hex.EncodeToString(d.Address())+"\n")
	e := &echo{buf: make([]byte, 64<<20)}
	if e.Link, err = d.Connect(context.Background(), [][]byte{nil, address}, e); err != nil {
		b.Fatal(err)
	}
	return e, func() {
		e.Close(context.Background())
		d.Close()
		cmd.Wait()
	}
}

// BenchmarkPingPong measures half a round trip between two processes.
func BenchmarkPingPong(b *testing.B) {
	for _, size := range []int{1, 4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			e, end := startEcho(b)
			defer end()
			payload := make([]byte, size)
			var h transport.Header
			b.SetBytes(2 * int64(size))
			for b.Loop() {
				want := e.n + 1
				e.Send(1, &h, payload, nil)
				for e.n < want {
					e.Poll()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(2*b.N), "µs/way")
		})
	}
}
