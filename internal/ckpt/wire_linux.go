package ckpt

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
)

// helperSupport returns why a helper process cannot write, or nil.
func helperSupport() error { return nil }

// maxFiles bounds how many descriptors may wait for their message.
const maxFiles = 8

// sendFile sends head together with a descriptor.
func (w *wire) sendFile(head []byte, file *os.File) error {
	n, _, err := w.conn.WriteMsgUnix(head, syscall.UnixRights(int(file.Fd())), nil)
	runtime.KeepAlive(file)
	if err == nil && n < len(head) {
		_, err = w.conn.Write(head[n:])
	}
	return err
}

// read reads bytes and keeps the descriptors that come with them.
func (w *wire) read(p []byte) (int, error) {
	oob := make([]byte, syscall.CmsgSpace(4*maxFiles))
	n, oobn, flags, _, err := w.conn.ReadMsgUnix(p, oob)
	if oobn > 0 {
		if ferr := w.keep(oob[:oobn]); err == nil {
			err = ferr
		}
	}
	if err == nil && flags&syscall.MSG_CTRUNC != 0 {
		err = fmt.Errorf("%w: descriptors were lost; raise the limit of open files (ulimit -n)", errProtocol)
	}
	return max(n, 0), err // it is -1 after an error
}

func (w *wire) keep(oob []byte) error {
	list, err := syscall.ParseSocketControlMessage(oob)
	for i := range list {
		fds, ferr := syscall.ParseUnixRights(&list[i])
		for _, fd := range fds {
			w.files = append(w.files, os.NewFile(uintptr(fd), "received"))
		}
		err = errors.Join(err, ferr)
	}
	if err == nil && len(w.files) > maxFiles {
		err = fmt.Errorf("%w: more descriptors than messages for them", errProtocol)
	}
	return err
}
