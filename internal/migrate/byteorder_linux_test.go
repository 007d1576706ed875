package migrate

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt"
)

// TestMigrate_OtherByteOrderStop is not a test: TestMigrate_OtherByteOrder runs
// it as the other process.
func TestMigrate_OtherByteOrderStop(t *testing.T) {
	addr := os.Getenv("CAIRN_TEST_MIGRATE")
	if addr == "" {
		t.Skip("a part of TestMigrate_OtherByteOrder")
	}
	dial := func() net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	v := new(things)
	if r := <-receive(dial(), Options{}, fit(v.roots())); r.err != nil {
		t.Fatal(r.err)
	}
	newThings().check(t, v)
	g := NewSource(dial(), Options{BatchSize: 1 << 20})
	defer g.Close()
	if err := g.Precopy(collect(t, v.roots())); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	v.Rows[9][9] = 99
	if _, err := g.Finish(ctx, collect(t, v.roots()), nil, ckpt.Note{}, nil); err != nil {
		t.Fatal(err)
	}
}

// TestMigrate_OtherByteOrder migrates to a process of a big-endian machine, and
// back.
func TestMigrate_OtherByteOrder(t *testing.T) {
	const emulator = "qemu-s390x-static"
	if os.Getenv("CAIRN_LONG") == "" {
		t.Skip("it compiles a standard library: set CAIRN_LONG=1")
	}
	if _, err := exec.LookPath(emulator); err != nil || testing.Short() || runtime.GOARCH == "s390x" {
		t.Skip("this needs " + emulator + " and some time")
	}
	program := filepath.Join(t.TempDir(), "migrate.test")
	build := exec.Command("go", "test", "-c", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=s390x")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := exec.Command(emulator, program, "-test.run", "^TestMigrate_OtherByteOrderStop$")
	cmd.Env = append(os.Environ(), "CAIRN_TEST_MIGRATE="+l.Addr().String())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer l.Close() // nobody will come any more
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}()
	accept := func() net.Conn {
		c, err := l.Accept()
		if err != nil {
			<-done
			t.Fatal(err)
		}
		return c
	}
	v, w := newThings(), new(things)
	g := NewSource(accept(), Options{})
	defer g.Close()
	if _, err := g.Finish(ctx, collect(t, v.roots()), nil, ckpt.Note{}, nil); err != nil {
		t.Fatal(err)
	}
	if r := <-receive(accept(), Options{}, fit(w.roots())); r.err != nil {
		t.Fatal(r.err)
	}
	<-done
	v.Rows[9][9] = 99
	v.check(t, w)
}
