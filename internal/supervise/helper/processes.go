//go:build linux

package helper

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"golang.org/x/sys/unix"
)

// groupTime is how long killed processes may take to disappear.
const groupTime = 10 * time.Second

// ending waits for a child's end without reaping it, so that its number, and
// that of its group, are not reused. It returns the status, or the signal that
// ended it.
func ending(pid int) (code, signal int) {
	// waitid's siginfo has three numbers, a gap on 64-bit systems, and then
	// process, user and status.
	var info unix.Siginfo
	for unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	const exited = 1 // CLD_EXITED
	words := (*[8]int32)(unsafe.Pointer(&info))
	at := 3
	if unsafe.Sizeof(uintptr(0)) == 8 {
		at = 4
	}
	status := int(words[at+2])
	if info.Code == exited {
		return status, 0
	}
	return 0, status
}

// ended reports whether a child has ended, without reaping it.
func ended(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
	return err == nil && info.Signo != 0
}

// stat is the kernel's information about a process.
type stat struct {
	rundir.Process
	group, session int
	born           uint64
	user           uint32
	gone           bool // it has ended, and is not reaped yet
}

func readStat(pid int) (st stat, ok bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	text, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return stat{}, false
	}
	// The name, in parentheses, may contain anything. The state follows it.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return stat{}, false
	}
	st.Process = rundir.Process{Pid: pid, Born: fields[19]}
	st.gone = fields[0] == "Z" || fields[0] == "X"
	st.group, _ = strconv.Atoi(fields[2])
	st.session, _ = strconv.Atoi(fields[3])
	st.born, _ = strconv.ParseUint(fields[19], 10, 64)
	if info, err := os.Stat(dir); err == nil {
		if sys, ok := info.Sys().(*syscall.Stat_t); ok {
			st.user = sys.Uid
		}
	}
	return st, true
}

// members returns the processes that match, without those that have ended.
func members(match func(stat) bool) (out []rundir.Process) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if st, ok := readStat(pid); ok && !st.gone && match(st) {
			out = append(out, st.Process)
		}
	}
	return out
}

// endGroup kills the processes that match until there are none, or until
// groupTime is over.
func endGroup(match func(stat) bool) {
	for until := time.Now().Add(groupTime); time.Now().Before(until); {
		list := members(match)
		if len(list) == 0 {
			return
		}
		for _, p := range list {
			endProcess(p, time.Second)
		}
	}
}

// endProcess kills a process, if the number still belongs to it, and waits for
// its end.
func endProcess(p rundir.Process, wait time.Duration) {
	fd, err := unix.PidfdOpen(p.Pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if p.Born == "" || identify(p.Pid) != p {
		return
	}
	unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, int(wait.Milliseconds())); err != unix.EINTR {
			return
		}
	}
}
