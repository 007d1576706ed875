package ckpt

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt/ckpttest"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// Moments at which a process is killed.
const (
	beforeBegin = "before begin"
	amidPuts    = "amid puts"
	afterCommit = "after commit"
)

// pausing is a Writer that calls a function at a given moment of the second
// checkpoint.
type pausing struct {
	*helperWriter
	place  string
	reach  func()
	begins int
	puts   atomic.Int32
}

func (p *pausing) Begin(j Job) {
	if p.begins++; p.begins == 2 && p.place == beforeBegin {
		p.reach()
	}
	p.helperWriter.Begin(j)
}

func (p *pausing) Put(s Segment) {
	if p.begins == 2 {
		if p.puts.Add(1) == 2 && p.place == amidPuts {
			p.reach()
		}
	}
	p.helperWriter.Put(s)
}

func (p *pausing) Commit(t Tail) <-chan Result {
	done := p.helperWriter.Commit(t)
	if p.begins == 2 && p.place == afterCommit {
		p.reach()
	}
	return done
}

// pause makes b call reach at a given moment of its second save.
func (b *bench) pause(place string, reach func()) {
	b.writer = &pausing{helperWriter: b.writer.(*helperWriter), place: place, reach: reach}
}

// withConn is a home whose helper has the other end of conn.
func withConn(conn *net.UnixConn) home {
	return home{"", func(_ testing.TB, _ vfs.FS, opts *Options) { opts.Helper = conn }}
}

// second returns the state of the second checkpoint, which is larger than one
// segment.
func second() *ckpttest.Values {
	v := ckpttest.Sample(3 << 20)
	for i := range v.Grid {
		v.Grid[i] = float64(i + 1)
	}
	return v
}

// TestChild is not a test: it is the program of the child processes of the
// tests below.
func TestChild(t *testing.T) {
	role, dir, place := os.Getenv("CAIRN_CHILD"), os.Getenv("CAIRN_CHILD_DIR"), os.Getenv("CAIRN_CHILD_PLACE")
	if role == "" {
		t.Skip("only in a child process")
	}
	conn := unixConn(t, os.NewFile(3, "conn"))
	stop := func() {
		fmt.Println("reached")
		select {}
	}
	switch role {
	case "rank":
		b := newBench(t, withConn(conn), vfs.OS(), dir, 0, nil, Options{NoTracking: true})
		b.pause(place, stop)
		b.save()
		b.v = second()
		b.save()
	case "helper":
		syncs := 0
		err := Serve(ctx, conn, ServeOptions{fs: vfstest.Hook(vfs.OS(), func(op, name string) error {
			if op == "sync" && strings.HasSuffix(name, ".tmp") {
				if syncs++; syncs == 2 && place == afterCommit {
					stop()
				}
			}
			return nil
		})})
		fmt.Println("served:", err)
	}
}

// child is a process of a test.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Scanner
}

// start runs this program again in a role, with conn as descriptor 3.
func start(t *testing.T, role, dir, place string, conn *net.UnixConn) *child {
	t.Helper()
	f, err := conn.File()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	defer f.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(os.Environ(), "CAIRN_CHILD="+role, "CAIRN_CHILD_DIR="+dir, "CAIRN_CHILD_PLACE="+place)
	cmd.ExtraFiles = []*os.File{f}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return &child{t, cmd, bufio.NewScanner(out)}
}

// says waits for a line with this prefix.
func (c *child) says(prefix string) string {
	c.t.Helper()
	var seen []string
	for c.out.Scan() {
		if strings.HasPrefix(c.out.Text(), prefix) {
			return c.out.Text()
		}
		seen = append(seen, c.out.Text())
	}
	c.t.Fatalf("the process ended without saying %q:\n%s", prefix, strings.Join(seen, "\n"))
	return ""
}

func (c *child) kill() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
}

// TestHelper_RankKilled kills a rank with SIGKILL. Its helper must publish what
// the rank had committed, and remove the rest.
func TestHelper_RankKilled(t *testing.T) {
	for place, want := range map[string][]uint64{beforeBegin: {1}, amidPuts: {1}, afterCommit: {2, 1}} {
		t.Run(place, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ckpt")
			a, b := pair(t)
			helper := start(t, "helper", path, "", b)
			rank := start(t, "rank", path, place, a)
			rank.says("reached")
			rank.kill()
			if got := helper.says("served:"); got != "served: <nil>" {
				t.Error(got)
			}
			dir, err := store.Create(vfs.OS(), path, 0) // the lock is free now
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			if indices, err := dir.Committed(); err != nil || !slices.Equal(indices, want) {
				t.Fatalf("sets %v, %v; want %v", indices, err, want)
			}
			checkFile(t, dir, 1, ckpttest.Sample(100_000))
			if len(want) == 2 {
				checkFile(t, dir, 2, second())
			} else if _, err := os.Stat(filepath.Join(path, "ckpt-00000002")); err == nil {
				t.Error("what was begun of checkpoint 2 is still there")
			}
		})
	}
}

// TestHelper_Killed kills a helper. The rank must get an error, continue, and
// be able to save again after a restart. Older checkpoints must be intact.
func TestHelper_Killed(t *testing.T) {
	for _, place := range []string{beforeBegin, amidPuts, afterCommit} {
		t.Run(place, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ckpt")
			conn, theirs := pair(t)
			helper := start(t, "helper", path, place, theirs)
			b := newBench(t, withConn(conn), vfs.OS(), path, 0, nil, Options{NoTracking: true})
			b.pause(place, func() {
				if place == afterCommit {
					helper.says("reached") // it is about to publish
				}
				helper.kill()
			})
			b.save()
			first := clone(b.v)
			b.v = second()
			if r := b.try(); !errors.Is(r.Err, ErrHelperGone) {
				t.Fatalf("the checkpoint under way: %v", r.Err)
			}
			if r := b.try(); !errors.Is(r.Err, ErrHelperGone) || b.Busy() {
				t.Fatalf("the next checkpoint: %v", r.Err)
			}
			b.Line(1)
			b.close()
			checkFile(t, b.dir, 1, first)
			b = newBench(t, homes[0], vfs.OS(), path, 0, nil, Options{})
			b.save()
			b.close()
			if indices, err := b.dir.Committed(); err != nil || len(indices) != 2 || indices[1] != 1 {
				t.Fatalf("sets %v, %v", indices, err)
			}
		})
	}
}

// TestHelper_HoldsLock shows that a directory stays locked while a helper
// finishes the work of a rank that died.
func TestHelper_HoldsLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ckpt")
	a, b := pair(t)
	helper := start(t, "helper", path, afterCommit, b)
	rank := start(t, "rank", path, afterCommit, a)
	rank.says("reached")
	rank.kill()
	helper.says("reached")
	if dir, err := store.Create(vfs.OS(), path, 0); !errors.Is(err, store.ErrLocked) {
		t.Errorf("the directory is not locked: %v, %v", dir, err)
	}
	helper.kill()
	dir, err := store.Create(vfs.OS(), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir.Close()
}
