package mpi_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/p2p"
	"github.com/cairnrun/cairn/internal/transport"
	"github.com/cairnrun/cairn/internal/transport/tcp"
	"github.com/cairnrun/cairn/mpi"
)

const (
	machineRank = "CAIRN_MACHINE_RANK"
	machineDir  = "CAIRN_MACHINE_DIR"
	machines    = 4
)

// TestScenes_ByteOrders runs all scenes in a world where every other rank runs
// on a big-endian machine.
func TestScenes_ByteOrders(t *testing.T) {
	const emulator = "qemu-s390x-static"
	if os.Getenv("CAIRN_LONG") == "" {
		t.Skip("it compiles a standard library: set CAIRN_LONG=1")
	}
	if _, err := exec.LookPath(emulator); err != nil || testing.Short() {
		t.Skip("not tested: it builds a program for another machine, which needs " + emulator)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	other := filepath.Join(dir, "mpi.s390x")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", other, ".")
	build.Env = append(os.Environ(), "GOARCH=s390x", "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("not tested: go test -c: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmds := make([]*exec.Cmd, machines)
	outs := make([]bytes.Buffer, machines)
	for r := range cmds {
		argv := []string{self}
		if r%2 == 1 {
			argv = []string{emulator, other}
		}
		cmds[r] = exec.CommandContext(ctx, argv[0], append(argv[1:], "-test.run=^TestScenes_ByteOrdersRank$", "-test.v")...)
		cmds[r].Env = append(os.Environ(), machineRank+"="+strconv.Itoa(r), machineDir+"="+dir)
		cmds[r].Stdout, cmds[r].Stderr = &outs[r], &outs[r]
		if err := cmds[r].Start(); err != nil {
			cancel()
			t.Fatal(err)
		}
	}
	for r, cmd := range cmds {
		if err := cmd.Wait(); err != nil || !bytes.Contains(outs[r].Bytes(), []byte("--- PASS: TestScenes_ByteOrdersRank ")) {
			t.Errorf("rank %d: %v\n%s", r, err, outs[r].Bytes())
		}
	}
}

// TestScenes_ByteOrdersRank is one rank of that world.
func TestScenes_ByteOrdersRank(t *testing.T) {
	r, err := strconv.Atoi(os.Getenv(machineRank))
	if err != nil {
		t.Skip("it is a part of TestScenes_ByteOrders")
	}
	dir := os.Getenv(machineDir)
	d, err := tcp.Open(tcp.Options{Rank: r, Size: machines, Host: "here", Listen: "127.0.0.1", Secret: []byte("of no use to anybody")})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	e, err := p2p.New(p2p.Config{Rank: r, Size: machines, Oversubscribed: true, Drivers: []transport.Driver{d}, Exchange: func(ctx context.Context, endpoint []byte) ([][]byte, error) {
		return meetIn(ctx, dir, r, endpoint)
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	if err := e.Connect(ctx); err != nil {
		t.Fatal(err)
	}
	for _, s := range slices.Concat(messageScenes, requestScenes, commScenes, collectiveScenes, reductionScenes) {
		if !slices.Contains(s.sizes, machines) {
			continue
		}
		if err := s.body((*mpi.Comm)(e.World())); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
	if _, err := e.Close(ctx, true); err != nil {
		t.Fatal(err)
	}
}

// meetIn exchanges endpoints through a directory.
func meetIn(ctx context.Context, dir string, rank int, endpoint []byte) ([][]byte, error) {
	name := func(r int) string { return filepath.Join(dir, fmt.Sprint("endpoint", r)) }
	if err := os.WriteFile(name(rank)+".new", endpoint, 0o600); err != nil {
		return nil, err
	}
	if err := os.Rename(name(rank)+".new", name(rank)); err != nil {
		return nil, err
	}
	all := make([][]byte, machines)
	for r := range all {
		for all[r] == nil {
			b, err := os.ReadFile(name(r))
			if err == nil {
				all[r] = b
			} else if ctx.Err() != nil {
				return nil, ctx.Err()
			} else {
				time.Sleep(time.Millisecond)
			}
		}
	}
	return all, nil
}
