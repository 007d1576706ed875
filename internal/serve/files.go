//go:build linux

package serve

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cairnrun/cairn/internal/ckpt"
)

// addFile makes a file of the program part of the state.
func (s *session) addFile(m *message) ([]byte, error) {
	id, path, flags := m.body.U32(), m.body.text(), m.body.U32()
	m.body.U32() // permissions, which the descriptor has
	if err := m.body.end(); err != nil {
		return nil, err
	}
	if len(m.files) != 1 || s.files[id] != nil {
		return nil, fmt.Errorf("%w: file %d without a descriptor", errProtocol, id)
	}
	fd, err := unix.FcntlInt(m.files[0].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	claimed, err := s.run.ProtectProgramFile(f, openMode(flags), flags&8 != 0)
	if err != nil {
		f.Close()
		return nil, err
	}
	s.files[id] = f
	return binary.LittleEndian.AppendUint32(nil, uint32(claimed+1)), nil
}

// openMode is what flags of a file mean for open.
func openMode(flags uint32) int {
	mode := []int{os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR}[flags&3]
	if flags&4 != 0 {
		mode |= os.O_APPEND
	}
	return mode
}

// makeFile handles the message that the program sends before it makes a file
// that must be new.
func (s *session) makeFile(c *cursor) ([]byte, error) {
	dir, path, flags := c.text(), c.text(), c.U32()
	if err := c.end(); err != nil {
		return nil, err
	}
	if dir != "" { // not Join: what .. means depends on symbolic links
		path = dir + "/" + path
	}
	again, err := s.run.MakesAgain(path, openMode(flags))
	if err != nil || !again {
		return make([]byte, 4), err
	}
	return binary.LittleEndian.AppendUint32(nil, 1), nil
}

// readUnclaimed reads which files of the checkpoint a program has not opened
// again; see engine.Run.SetUnclaimed. Numbers are those of the helper before.
func readUnclaimed(c *cursor) ([]ckpt.FileEntry, error) {
	claimed := make(map[uint32]bool)
	for range c.count(4) {
		claimed[c.U32()-1] = true
	}
	if c.Left() == 0 { // the first helper
		return nil, nil
	}
	var list []ckpt.FileEntry
	for range c.count(8) {
		var e ckpt.FileEntry
		number, text := c.U32(), c.text()
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			return nil, fmt.Errorf("%w: a file: %w", errProtocol, err)
		}
		if !claimed[number] {
			list = append(list, e)
		}
	}
	return list, nil
}

func appendUnclaimed(b []byte, list []ckpt.FileEntry) ([]byte, error) {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(list)))
	for _, e := range list {
		text, err := json.Marshal(e)
		if err != nil {
			return nil, err
		}
		b = appendText(binary.LittleEndian.AppendUint32(b, uint32(e.ID)), string(text))
	}
	return b, nil
}
