//go:build linux

package serve

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cairnrun/cairn/internal/decode"
)

// greeting is the body of Hello, of a program that has ended.
func greeting(version uint32, release, dir string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, magic)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.NativeEndian.AppendUint32(b, byteOrder)
	for _, n := range []uint32{math.MaxInt32, 0, 1} { // pid, rank, ranks
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	b = appendText(appendText(b, release), dir)
	b = append(b, make([]byte, 3*8+2*4+8)...) // every to memory
	b = appendText(appendText(b, ""), "")
	return binary.LittleEndian.AppendUint32(b, 0)
}

// greet sends Hello, with a page and a mirror of 64 KiB that have these seals.
func greet(conn *net.UnixConn, hello []byte, seals int) error {
	var fds []int
	for range 2 {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		fds = append(fds, fd)
		if err := unix.Ftruncate(fd, 64<<10); err != nil {
			return err
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			return err
		}
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(msgHello))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(hello)))
	_, _, err := conn.WriteMsgUnix(append(b, hello...), unix.UnixRights(fds...), nil)
	return err
}

// TestServe_Refuses shows what a helper says to a program of another version,
// and to one that can take shared memory away, which would end the helper.
func TestServe_Refuses(t *testing.T) {
	for _, x := range []struct {
		version uint32
		release string
		seals   int
		says    string
	}{
		{Version + 1, "9.8.7", unix.F_SEAL_SHRINK, fmt.Sprintf("the library is of version 9.8.7 (messages %d), and the helper is cairn %s (messages %d)", Version+1, Release, Version)},
		{Version, "9.8.7", unix.F_SEAL_SHRINK, "the library is of version 9.8.7"},
		{Version, Release, 0, "shared memory that can become shorter"},
	} {
		ours, theirs, err := pair()
		if err != nil {
			t.Fatal(err)
		}
		if err := greet(theirs, greeting(x.version, x.release, filepath.Join(t.TempDir(), "ckpt")), x.seals); err != nil {
			t.Skip(err)
		}
		if err := Serve(t.Context(), ours); err != nil {
			t.Error(err)
		}
		m, err := (&wire{conn: theirs}).receive()
		theirs.Close()
		if err != nil {
			t.Fatal(err)
		}
		if m.body.U32(); m.kind != msgFailed || !strings.Contains(m.body.text(), x.says) {
			t.Errorf("it does not say %q", x.says)
		}
	}
}

// FuzzSession lets anybody send anything: the session ends, and takes no memory
// for what is only announced.
func FuzzSession(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x04\x00\x00\x00crn1"))
	f.Add([]byte("\x03\x00\x00\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ours, theirs, err := pair()
		if err != nil {
			t.Skip(err)
		}
		go func() {
			theirs.Write(data)
			theirs.CloseWrite()
			buf := make([]byte, 4096)
			for {
				if _, err := theirs.Read(buf); err != nil {
					break
				}
			}
			theirs.Close()
		}()
		Serve(t.Context(), ours)
	})
}

// FuzzType reads descriptions of types.
func FuzzType(f *testing.F) {
	f.Add([]byte("\x0a\x00\x00\x00"))
	f.Add([]byte("\x00\x01\x00\x00\x01\x00\x00\x00s\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00x\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0a\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &cursor{decode.New(data)}
		if typ, err := readType(c, 0); err == nil && !c.Bad() && typ.Size() > 1<<30 {
			t.Errorf("%v has %d bytes", typ, typ.Size())
		}
	})
}

// put appends a message to others.
func put(b []byte, k kind, body ...[]byte) []byte {
	n := 0
	for _, p := range body {
		n += len(p)
	}
	b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, uint32(k)), uint32(n))
	for _, p := range body {
		b = append(b, p...)
	}
	return b
}

// numbers is the encoding of numbers of 32 and of 64 bits.
func numbers(list ...any) (b []byte) {
	for _, n := range list {
		b, _ = binary.Append(b, binary.LittleEndian, n)
	}
	return b
}

// FuzzMessages lets a program send anything after its greeting: the session
// ends, and nothing else happens.
func FuzzMessages(f *testing.F) {
	extent := put(nil, msgExtent, numbers(uint64(0), uint64(64<<10)))
	double := numbers(uint32(0), uint32(1), uint32(1), []byte("x"), uint64(0), uint32(1), uint64(100), uint32(10))
	fresh := put(nil, msgRestore, numbers(uint32(0), uint32(0)))
	save := put(nil, msgSave, numbers(uint64(7), uint32(whyCall), uint32(0), float64(0), uint32(1), uint64(0), uint64(800)))
	state := append(append(put(extent, msgVars, double), fresh...), save...)
	f.Add(put(put(state, msgList), msgBye))
	f.Add(put(put(put(state, msgRead, numbers(uint64(0), uint32(1), []byte("x"), uint64(4096), uint32(1), uint64(100), uint32(10))), msgVariables, numbers(uint64(0))), msgFinish, numbers(uint32(3))))
	f.Add(put(state, msgVars, numbers(uint32(1), uint32(1), []byte("x"), uint32(1), uint32(1), []byte("s"), uint64(8), uint32(1), uint64(4),
		uint32(codeStruct), uint32(1), []byte("p"), uint64(16), uint32(2), uint32(1), []byte("a"), uint64(0), uint32(0), uint32(10), uint32(1), []byte("b"), uint64(8), uint32(1), uint64(2), uint32(3))))
	f.Add(put(put(state, msgStored, numbers(uint64(1), uint32(1), []byte("x"))), msgMake, numbers(uint32(0), uint32(1), []byte("y"), uint32(1))))
	f.Fuzz(func(t *testing.T, data []byte) {
		ours, theirs, err := pair()
		if err != nil {
			t.Skip(err)
		}
		dir := filepath.Join(t.TempDir(), "ckpt")
		if err := greet(theirs, greeting(Version, Release, dir), unix.F_SEAL_SHRINK); err != nil {
			t.Skip(err)
		}
		read := make(chan struct{})
		go func() {
			defer close(read)
			theirs.Write(data)
			theirs.CloseWrite()
			io.Copy(io.Discard, theirs)
			theirs.Close()
		}()
		Serve(t.Context(), ours)
		<-read
	})
}

func pair() (a, b *net.UnixConn, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			return nil, nil, err
		}
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1], nil
}
