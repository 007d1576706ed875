//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// gate is a named pipe at which a program waits.
func gate(t *testing.T, dir, name string) (path string, open func()) {
	t.Helper()
	path = filepath.Join(dir, name)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func() {
		t.Helper()
		if err := os.WriteFile(path, []byte("\n"), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// untilState waits until a run is in a state.
func untilState(t *testing.T, run, state string) {
	t.Helper()
	limit := time.Now().Add(patience)
	for {
		st, err := client.Read(t.Context(), run)
		if err == nil && st.State == state {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("the run is not %s: %+v, %v", state, st, err)
		}
		unix.Poll(nil, 20) // nothing reports this
	}
}

// TestDetach_ThenAttach starts a run in the background, attaches to it, and
// reads its output.
func TestDetach_ThenAttach(t *testing.T) {
	dir := t.TempDir()
	run := filepath.Join(dir, "r.cairn")
	one, openOne := gate(t, dir, "one")
	two, openTwo := gate(t, dir, "two")
	t.Setenv("CAIRN_KEEPS", "1") // a mistake, which is reported once
	script := fmt.Sprintf("echo first; read x <%s; echo second; read x <%s; echo third; exit 5", one, two)
	text, code := cairnTool(t, "run", "--detach", "--retries", "0", "--run", run, "sh", "-c", script)
	if code != 0 {
		t.Fatalf("status %d: %s", code, text)
	}
	must(t, text, "started: 1 rank", "runs it in the background", "cairn attach "+run)
	if n := strings.Count(text, "CAIRN_KEEPS is ignored"); n != 1 {
		t.Errorf("the ignored variable is reported %d times: %s", n, text)
	}
	attached := begin(t, run, nil, build(t, "./cmd/cairn", runtime.GOARCH), "attach", run)
	attached.awaits("attached to " + run)
	st, err := client.Read(t.Context(), run)
	if err != nil || st.State != rundir.Running {
		t.Fatalf("%+v, %v", st, err)
	}
	if sid, err := unix.Getsid(st.Pid); err != nil || sid != st.Pid {
		t.Errorf("the supervisor %d is in session %d: %v", st.Pid, sid, err)
	}
	openOne()
	openTwo()
	if code := attached.ends(); code != 5 {
		t.Errorf("attach ended with status %d: %s", code, attached.text())
	}
	must(t, attached.text(), "rank 0 on localhost ended with status 5")
	if text, _ := cairnTool(t, "logs", run); text != "first\nsecond\nthird\n" {
		t.Errorf("logs printed %q", text)
	}
	if text, _ := cairnTool(t, "logs", "-f", "--events", run); !strings.Contains(text, "started: 1 rank") || !strings.Contains(text, "failed: ") {
		t.Errorf("logs --events printed %q", text)
	}
	if text, code := cairnTool(t, "attach", run); code != 5 || !strings.Contains(text, "it is over: failed") {
		t.Errorf("attach to a run that is over: %d %s", code, text)
	}
	// What fails before the ranks run is reported, with its status.
	if text, code := cairnTool(t, "run", "--detach", "--run", run, "/no/such/program"); code != 2 || !strings.Contains(text, "no such file") {
		t.Errorf("%d %s", code, text)
	}
}

// TestHangup_TerminalCloses closes the terminal of a run, as a lost connection
// does.
func TestHangup_TerminalCloses(t *testing.T) {
	// Under nohup this process ignores SIGHUP, and so would the run. A signal
	// that is caught here is not ignored there.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	defer signal.Stop(caught)
	for _, c := range []struct {
		flag, state, log string
	}{
		{"--hangup=continue", rundir.Finished, "the terminal is gone, and the run continues"},
		{"--hangup=stop", rundir.Stopped, "the terminal is gone: ranks are to save and stop"},
	} {
		t.Run(c.flag, func(t *testing.T) {
			dir := t.TempDir()
			run := filepath.Join(dir, "r.cairn")
			path, open := gate(t, dir, "gate")
			master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
			if err != nil {
				t.Skip(err)
			}
			defer master.Close()
			if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
				t.Fatal(err)
			}
			n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
			if err != nil {
				t.Fatal(err)
			}
			slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(build(t, "./cmd/cairn", runtime.GOARCH), "run", c.flag, "--run", run, "sh", "-c", "echo before; read x <"+path+"; echo after")
			cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			slave.Close()
			var seen bytes.Buffer
			for buf := make([]byte, 4096); !strings.Contains(seen.String(), "before"); {
				n, err := master.Read(buf)
				if err != nil {
					t.Fatalf("%v after %q", err, seen.String())
				}
				seen.Write(buf[:n])
			}
			master.Close() // SIGHUP
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			if c.state == rundir.Finished {
				log, limit := filepath.Join(run, "log"), time.After(patience)
				for text := []byte(nil); !bytes.Contains(text, []byte(c.log)); text, _ = os.ReadFile(log) {
					select {
					case err := <-ended:
						t.Fatalf("the run has ended: %v; its log: %s", err, text)
					case <-limit:
						cmd.Process.Kill()
						t.Fatalf("the run does not notice; its log: %s", text)
					default:
						unix.Poll(nil, 20)
					}
				}
				cmd.Process.Signal(syscall.SIGHUP) // as a shell does, too
				open()
			}
			select {
			case err := <-ended:
				if (err == nil) != (c.state == rundir.Finished) {
					t.Errorf("cairn run ended with %v", err)
				}
			case <-time.After(patience):
				t.Fatal("the run does not end")
			}
			untilState(t, run, c.state)
			text, _ := os.ReadFile(filepath.Join(run, "log"))
			must(t, string(text), c.log)
			if n := strings.Count(string(text), c.log); n != 1 {
				t.Errorf("the log says %d times that %s", n, c.log)
			}
			out, _ := os.ReadFile(filepath.Join(run, "output", "rank-0000.out"))
			if want := map[string]string{rundir.Finished: "before\nafter\n", rundir.Stopped: "before\n"}[c.state]; string(out) != want {
				t.Errorf("the output is %q, want %q", out, want)
			}
		})
	}
}
