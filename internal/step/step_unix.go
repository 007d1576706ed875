//go:build linux || darwin

package step

import (
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// The environment is read, and the log written, by system calls, because
// package os keeps track of files in a compiled program.
const (
	envStep = "CAIRN_STEP"
	envLog  = "CAIRN_STEP_LOG"
)

// rule is an action at a step.
type rule struct {
	name string
	at   int // act when the step is reached for the at-th time
	act  syscall.Signal
}

var (
	rules   []rule
	log     string
	active  bool
	mu      sync.Mutex
	reached = make(map[string]int) // how often, without a log
)

func init() {
	text, _ := syscall.Getenv(envStep)
	log, _ = syscall.Getenv(envLog)
	rules = parse(text)
	active = len(rules) > 0 || log != ""
}

// parse reads CAIRN_STEP. It ignores what it does not understand: a test that
// waits for the step notices.
func parse(text string) (out []rule) {
	for item := range strings.SplitSeq(text, ",") {
		name, act, _ := strings.Cut(item, "=")
		r := rule{name: name, at: 1}
		if base, count, ok := strings.Cut(name, "#"); ok {
			n, err := strconv.Atoi(count)
			if err != nil || n < 1 {
				continue
			}
			r.name, r.at = base, n
		}
		switch act {
		case "kill":
			r.act = syscall.SIGKILL
		case "stop":
			r.act = syscall.SIGSTOP
		default:
			continue
		}
		out = append(out, r)
	}
	return out
}

func (r *rule) matches(name string) bool {
	if prefix, ok := strings.CutSuffix(r.name, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return r.name == name
}

func at(name string) {
	mu.Lock()
	defer mu.Unlock()
	counts := reached
	if log != "" {
		counts = note(name)
	} else {
		reached[name]++
	}
	for i := range rules {
		r := &rules[i]
		if !r.matches(name) {
			continue
		}
		n := 0
		for other, k := range counts {
			if r.matches(other) {
				n += k
			}
		}
		if n == r.at {
			signal(r.act)
		}
	}
}

// note adds a line to the log and returns how often each step is in the log.
func note(name string) map[string]int {
	fd, err := syscall.Open(log, syscall.O_RDWR|syscall.O_CREAT|syscall.O_APPEND|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	for syscall.Flock(fd, syscall.LOCK_EX) == syscall.EINTR {
	}
	syscall.Write(fd, []byte(name+" "+strconv.Itoa(syscall.Getpid())+"\n"))
	var text []byte
	buf := make([]byte, 16<<10)
	for {
		n, err := syscall.Pread(fd, buf, int64(len(text)))
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			break
		}
		text = append(text, buf[:n]...)
	}
	counts := make(map[string]int)
	for line := range strings.SplitSeq(string(text), "\n") {
		if step, _, ok := strings.Cut(line, " "); ok {
			counts[step]++
		}
	}
	return counts
}
