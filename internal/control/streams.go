package control

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The files of the standard streams. A program may assign other files to the
// variables of package os.
var StdinFile, StdoutFile, StderrFile = os.Stdin, os.Stdout, os.Stderr

// StreamOf returns the number of the standard stream that a name stands for,
// such as 1 for /dev/stdout, /dev/fd/1 and /proc/self/fd/1.
func StreamOf(name string) (fd int, ok bool) {
	switch name = filepath.ToSlash(filepath.Clean(name)); name {
	case "/dev/stdin":
		return 0, true
	case "/dev/stdout":
		return 1, true
	case "/dev/stderr":
		return 2, true
	}
	for _, dir := range []string{"/dev/fd/", "/proc/self/fd/", "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/"} {
		if n, ok := strings.CutPrefix(name, dir); ok {
			fd, err := strconv.Atoi(n)
			return fd, err == nil && fd >= 0 && fd <= 2
		}
	}
	return 0, false
}

// InputMark is in the binary of a program that reads stdin: see
// resume.ReadsInput.
const InputMark = "\x00cairn: this program reads stdin\x00"
