//go:build linux

package serve

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cairnrun/cairn/internal/decode"
)

// Version is that of the messages; the library has the same.
const Version = 11

// Release is the version of Cairn; cairn.h has the same.
const Release = "0.1.0"

const (
	magic     = 0x316e7263
	byteOrder = 0x01020304
	maxBody   = 256 << 20
	maxFiles  = 2 // descriptors with one message
)

// kind is the kind of a message.
type kind uint32

const (
	msgHello kind = iota + 1
	msgExtent
	msgVars
	msgFile
	msgStored
	msgRestore
	msgSave
	msgFinish
	msgBye
	msgGathered
	msgList
	msgRead
	msgVariables
	msgMake
)

const (
	msgWelcome kind = iota + 101
	msgDone
	msgFailed
	msgGather
	msgNews
	msgChecked
)

// errProtocol is wrapped by errors about what no libcairn sends.
var errProtocol = errors.New("the program sends what no libcairn sends")

// message is one from the program.
type message struct {
	kind  kind
	body  cursor
	files []*os.File
}

func (m *message) close() {
	for _, f := range m.files {
		f.Close()
	}
}

// wire sends and receives messages.
type wire struct {
	conn *net.UnixConn
	oob  []byte
}

// receive reads one message. Descriptors come with its first byte.
func (w *wire) receive() (*message, error) {
	var head [8]byte
	if w.oob == nil {
		w.oob = make([]byte, unix.CmsgSpace(4*maxFiles))
	}
	n, oobn, flags, _, err := w.conn.ReadMsgUnix(head[:], w.oob)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, err
	}
	m := &message{}
	if m.files, err = descriptors(w.oob[:oobn]); err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = fmt.Errorf("%w: more descriptors than a message has", errProtocol)
	}
	if err == nil {
		_, err = io.ReadFull(w.conn, head[n:])
	}
	size := binary.LittleEndian.Uint32(head[4:])
	if err == nil && size > maxBody {
		err = fmt.Errorf("%w: a message of %d bytes", errProtocol, size)
	}
	if err == nil {
		m.kind = kind(binary.LittleEndian.Uint32(head[:]))
		var body []byte
		body, err = readBody(w.conn, int(size))
		m.body = cursor{decode.New(body)}
	}
	if err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// readBody reads n bytes. It allocates memory as they come, so that a message
// with a wrong length does not make it allocate too much.
func readBody(r io.Reader, n int) ([]byte, error) {
	var buf []byte
	for len(buf) < n {
		at := len(buf)
		next := min(n, max(2*at, 64<<10))
		if cap(buf) < next {
			buf = append(make([]byte, 0, next), buf...)
		}
		buf = buf[:next]
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			return buf[:0], err
		}
	}
	return buf, nil
}

func descriptors(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errProtocol, err)
	}
	var files []*os.File
	for i := range list {
		fds, err := unix.ParseUnixRights(&list[i])
		if err != nil {
			return files, fmt.Errorf("%w: %w", errProtocol, err)
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "descriptor of the program"))
		}
	}
	return files, nil
}

func (w *wire) send(k kind, body []byte) error {
	head := binary.LittleEndian.AppendUint32(nil, uint32(k))
	head = binary.LittleEndian.AppendUint32(head, uint32(len(body)))
	_, err := w.conn.Write(append(head, body...))
	return err
}

// cursor reads the numbers and texts of a message.
type cursor struct{ decode.Cursor }

func (c *cursor) text() string { return string(c.Take(uint64(c.U32()))) }

// count reads the length of a list whose elements have at least so many bytes.
func (c *cursor) count(least int) int {
	n := int(c.U32())
	if n > c.Left()/least {
		c.Fail()
		return 0
	}
	return n
}

// end returns an error unless all was read, and nothing more.
func (c *cursor) end() error {
	if err := c.End(); err != nil {
		return fmt.Errorf("%w: a message is incomplete or too long: %w", errProtocol, err)
	}
	return nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
}
