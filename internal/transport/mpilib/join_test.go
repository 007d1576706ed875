//go:build linux && (amd64 || arm64) && !static

package mpilib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/transport"
)

const (
	rankEnv = "CAIRN_TEST_MPI_RANK" // rank of a process that comes later
	diesEnv = "CAIRN_TEST_MPI_DIES" // … and that dies early
)

func init() {
	bodies["join"] = joinBody
	bodies["spawn"] = joinBody
	bodies["port"] = portBody
}

// portBody is a world of one process that opens a port. It succeeds or says why
// not, and continues in both cases.
func portBody() error {
	d, err := Open(Options{})
	if err != nil {
		return err
	}
	old := d.Address()
	if err := d.OpenPort(); err != nil {
		fmt.Println("no port:", err)
		if !bytes.Equal(d.Address(), old) {
			return errors.New("the address has changed")
		}
	} else if err := d.OpenPort(); err != nil || bytes.Equal(d.Address(), old) {
		return fmt.Errorf("a port, but %w", err)
	}
	return d.Close()
}

// TestPort opens a port, which is then part of the address.
func TestPort(t *testing.T) { passes(t, "port", 1) }

// all is a handler that keeps frames by rank.
type all struct {
	transport.Link
	got [][][]byte
}

func (*all) Arriving(_ int, _ *transport.Header, n int) []byte { return make([]byte, n) }
func (*all) Sent(any)                                          {}
func (*all) Lost(int, error)                                   {}
func (a *all) Arrived(peer int, h *transport.Header, b []byte) {
	a.got[peer] = append(a.got[peer], append([]byte{h[0]}, b...))
}

var joinSizes = []int{0, 100, inlineMax, inlineMax + 1, 300000}

func joinFrame(from, to, i int) []byte {
	return bytes.Repeat([]byte{byte(1 + from*16 + to*4 + i)}, joinSizes[i])
}

// joinBody is a rank of four. Ranks 0 and 1 have a common launch; 2 and 3 are
// launched or spawned separately. The first two exchange frames, then the
// others join, and all exchange frames.
func joinBody() error {
	spawned := os.Getenv(bodyEnv) == "spawn"
	if os.Getenv(rankEnv) == "none" { // before or after MPI is initialised
		if dies := os.Getenv(diesEnv); dies != "early" {
			if _, err := Open(Options{}); err != nil {
				return err
			}
		}
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	d, err := Open(Options{})
	if err != nil {
		return err
	}
	rank, late := d.Rank(), false
	if s := os.Getenv(rankEnv); s != "" {
		late = true
		if rank, err = strconv.Atoi(s); err != nil {
			return err
		}
		if err := d.OpenPort(); err != nil {
			return err
		}
	}
	if spawned && !late {
		if err := spawnOthers(d); err != nil {
			return err
		}
	}
	const n = 4
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	file := func(r int) string { return filepath.Join(os.Getenv(dirEnv), fmt.Sprint("address", r)) }
	if err := errors.Join(os.WriteFile(file(rank)+".new", d.Address(), 0o600), os.Rename(file(rank)+".new", file(rank))); err != nil {
		return err
	}
	addresses := make([][]byte, n)
	for r := range addresses {
		for addresses[r] == nil {
			if addresses[r], err = os.ReadFile(file(r)); err != nil && ctx.Err() != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
	}
	talk := func(peers ...int) error {
		h := &all{got: make([][][]byte, n)}
		to := make([][]byte, n)
		for _, r := range peers {
			if r != rank {
				to[r] = addresses[r]
				if !d.Reaches(addresses[r]) {
					return fmt.Errorf("rank %d does not reach rank %d", rank, r)
				}
			}
		}
		if h.Link, err = d.Connect(ctx, to, h); err != nil {
			return err
		}
		for i := range joinSizes {
			for r := range to {
				if to[r] != nil {
					h.Send(r, &transport.Header{byte(i)}, joinFrame(rank, r, i), nil)
				}
			}
		}
		for r := range to {
			for to[r] != nil && len(h.got[r]) < len(joinSizes) {
				if h.Poll(); ctx.Err() != nil {
					return fmt.Errorf("rank %d has %d frames of rank %d", rank, len(h.got[r]), r)
				}
			}
			for i, b := range h.got[r] {
				if int(b[0]) != i || !bytes.Equal(b[1:], joinFrame(r, rank, i)) {
					return fmt.Errorf("rank %d: frame %d of rank %d is wrong", rank, i, r)
				}
			}
		}
		if err := d.Join(ctx, addresses, []int{2, 3}); err == nil || !strings.Contains(err.Error(), "close the link first") {
			return fmt.Errorf("joined with an open link: %w", err)
		}
		return h.Close(ctx)
	}
	if !late {
		if d.Reaches(addresses[2]) || d.Joins(addresses[:2], nil) {
			return errors.New("who is not there is reached")
		}
		if err := talk(0, 1); err != nil {
			return err
		}
	}
	if !d.Joins(addresses, []int{2, 3}) {
		return fmt.Errorf("rank %d does not join", rank)
	}
	if err := d.Join(ctx, addresses, []int{2, 3}); err != nil {
		return err
	}
	if d.Size() != n || d.Joins(addresses, []int{2, 3}) {
		return fmt.Errorf("rank %d sees %d", rank, d.Size())
	}
	for range 2 {
		if err := talk(0, 1, 2, 3); err != nil {
			return err
		}
	}
	if err := d.Close(); err != nil {
		return err
	}
	// If a process ends without ending MPI, mpirun ends all processes.
	if err := os.WriteFile(file(rank)+".ok", nil, 0o600); err != nil {
		return err
	}
	for r := range n {
		for ctx.Err() == nil {
			if _, err := os.Stat(file(r) + ".ok"); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	return ctx.Err()
}

// TestJoin joins processes of three launches.
func TestJoin(t *testing.T) {
	with := launchers[0]
	need(t, with.program, with.libraries)
	if _, err := exec.LookPath("ompi-server"); err != nil {
		t.Skipf("not tested: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	server := launch(t.Context(), "ompi-server", nil, 1, nil, nil)
	server.Args = []string{"ompi-server", "--no-daemonize", "--report-uri", "+"}
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	said, err := server.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	uri := make([]byte, 4096)
	n, err := said.Read(uri)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.TrimSpace(string(uri[:n]))
	var wg sync.WaitGroup
	outputs := make([][]byte, 3)
	for i, rank := range []string{"", "2", "3"} {
		n := 1
		if rank == "" {
			n = 2
		}
		args := append([]string{"--ompi-server", at}, with.args...)
		cmd := launch(t.Context(), with.program, args, n, []string{self}, []string{bodyEnv + "=join", dirEnv + "=" + dir, rankEnv + "=" + rank})
		wg.Go(func() { outputs[i], _ = cmd.CombinedOutput() }) // it always reports an error: MPI was not finalized
	}
	wg.Wait()
	for r := range 4 {
		if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("address%d.ok", r))); err != nil {
			t.Errorf("rank %d did not come to its end:\n%s", r, bytes.Join(outputs, []byte("\n")))
		}
	}
	server.Cancel()
	server.Wait()
}

// spawnOthers starts ranks 2 and 3 from one of the existing processes. It also
// starts some processes that die, and some that cannot be started.
func spawnOthers(d *Driver) error {
	if d.Rank() != 1 {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := d.Spawn(d.Host(0), nil, []string{"A=1"}); err == nil {
		return errors.New("nothing was started")
	}
	if err := d.Spawn(d.Host(0), []string{"/bin/true"}, []string{"A=" + strings.Repeat("x", 300)}); err == nil {
		return errors.New("more variables than the library takes")
	}
	// A process that mpirun has started must not fail, and must not end before
	// the others do. The script ends with the process that started it.
	const script = `unset OMPI_PARENT_PORT; "$@"
while [ -e "$0" ] && read -r pid name state parent rest </proc/$$/stat && [ "$parent" = $PPID ]; do sleep 0.1; done; exit 0`
	alive := filepath.Join(os.Getenv(dirEnv), "alive")
	if err := os.WriteFile(alive, nil, 0o600); err != nil {
		return err
	}
	for _, env := range [][]string{
		{rankEnv + "=none", diesEnv + "=early"}, {rankEnv + "=none", diesEnv + "=late"}, {rankEnv + "=2"}, {rankEnv + "=3"},
	} {
		if err := d.Spawn(d.Host(0), []string{"/bin/sh", "-c", script, alive, self}, env); err != nil {
			return err
		}
	}
	if err := d.Spawn(d.Host(0), []string{"/bin/sh", "-c", script, "/no/such/file", "/no/such/program"}, []string{"A=1"}); err != nil {
		return err
	}
	for range 2 { // mpirun crashes at the second one
		if err := d.Spawn("no-such-host", []string{"/bin/true"}, []string{"A=1"}); err == nil || !strings.Contains(err.Error(), "no-such-host") {
			return fmt.Errorf("started on a host that is not there: %w", err)
		}
	}
	return nil
}

// TestSpawn joins processes of which one started the others.
func TestSpawn(t *testing.T) {
	with := launchers[0]
	need(t, with.program, with.libraries)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := launch(ctx, with.program, with.args, 2, []string{self}, []string{bodyEnv + "=spawn", dirEnv + "=" + dir})
	cmd.WaitDelay = 5 * time.Second // for processes that keep its output open
	out, _ := cmd.CombinedOutput()  // it always reports an error: MPI was not finalized
	os.Remove(filepath.Join(dir, "alive"))
	for r := range 4 {
		if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("address%d.ok", r))); err != nil {
			t.Errorf("rank %d did not come to its end:\n%s", r, out)
		}
	}
}
