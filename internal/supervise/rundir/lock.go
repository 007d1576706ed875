//go:build linux

package rundir

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cairnrun/cairn/internal/vfs"
	"golang.org/x/sys/unix"
)

// TryLock opens and locks a file. If another process has locked it, TryLock
// returns ErrBusy and who that is.
func TryLock(path string) (*os.File, string, error) {
	f, err := vfs.OpenLock(path)
	if err != nil {
		return nil, "", err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != syscall.EINTR {
			break
		}
	}
	if err == nil {
		return f, "", nil
	}
	defer f.Close()
	if err != syscall.EWOULDBLOCK {
		return nil, "", &fs.PathError{Op: "lock", Path: path, Err: err}
	}
	buf := make([]byte, 64<<10)
	n, _ := f.ReadAt(buf, 0)
	return nil, whoHas(buf[:n]), ErrBusy
}

// rewrite replaces a small file's content in place.
func rewrite(f *os.File, text string) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(text+"\n"), 0)
	return err
}

func HostLock(run, name string) string {
	return filepath.Join(run, "hosts", strings.ReplaceAll(name, "/", "_")+".lock")
}

// Process identifies a process. The system reuses numbers, but not with the
// same start time.
type Process struct {
	Pid  int    `json:"pid"`
	Born string `json:"born"`
}

// Holder is the content of a host's lock file.
type Holder struct {
	Helper  int    `json:"helper"`
	Host    string `json:"host"`
	Boot    string `json:"boot"`
	Session int    `json:"session"` // session that the ranks belong to
	// Supervisor identifies the helper's supervisor, if hosts share no files.
	Supervisor string    `json:"supervisor,omitempty"`
	Launch     string    `json:"launch"`
	Ranks      []Process `json:"ranks"`
}

// whoHas describes the process that has locked a file with this content: a
// supervisor writes plain text, a helper a Holder.
func whoHas(text []byte) string {
	var who Holder
	plain := strings.TrimSpace(string(text))
	switch err := json.Unmarshal(text, &who); {
	case plain == "", err != nil && plain[0] == '{': // it is being written
		return "another process"
	case err != nil:
		return plain
	}
	out := fmt.Sprintf("process %d on %s", who.Helper, who.Host)
	for i, r := range who.Ranks {
		switch {
		case i == 0:
			out += fmt.Sprintf(", with the ranks' processes %d", r.Pid)
		case i < someRanks:
			out += fmt.Sprintf(", %d", r.Pid)
		case i == someRanks:
			out += fmt.Sprintf(" and %d more", len(who.Ranks)-i)
		}
	}
	return out
}

const someRanks = 8 // maximum number of ranks that are named

func BootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// RecordProcesses writes the ranks that run now into the host's lock file.
func RecordProcesses(lock *os.File, supervisor, launch string, ranks []Process) error {
	host, _ := os.Hostname()
	session, _ := unix.Getsid(0)
	text, err := json.Marshal(Holder{os.Getpid(), host, BootID(), session, supervisor, launch, ranks})
	if err != nil {
		return err
	}
	return rewrite(lock, string(text))
}
