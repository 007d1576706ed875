//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// pty returns both sides of a pseudoterminal of 80 columns.
func pty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// grid is a terminal's screen, as far as 'cairn run' uses one.
type grid struct {
	rows [][]rune
	y, x int
}

func (g *grid) write(text string) {
	for runes := []rune(text); len(runes) > 0; runes = runes[1:] {
		for len(g.rows) <= g.y {
			g.rows = append(g.rows, nil)
		}
		switch rest := string(runes[:min(3, len(runes))]); {
		case rest == "\x1b[A":
			g.y = max(0, g.y-1)
			runes = runes[2:]
		case rest == "\x1b[K":
			g.rows[g.y] = g.rows[g.y][:min(g.x, len(g.rows[g.y]))]
			runes = runes[2:]
		case runes[0] == '\r':
			g.x = 0
		case runes[0] == '\n':
			g.y++
		default:
			for len(g.rows[g.y]) <= g.x {
				g.rows[g.y] = append(g.rows[g.y], ' ')
			}
			g.rows[g.y][g.x] = runes[0]
			g.x++
		}
	}
}

func (g *grid) lines() (out []string) {
	for _, r := range g.rows {
		if line := strings.TrimRight(string(r), " "); line != "" {
			out = append(out, line)
		}
	}
	return out
}

// TestRun_TerminalProgressLine runs a program that shows its progress on one
// line, on a terminal. The progress is shown as it comes, and no line of Cairn
// is glued to it.
func TestRun_TerminalProgressLine(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, pipe := range []string{"seen", "end"} {
		if err := unix.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	master, slave := pty(t)
	script := `echo first; printf '\r 10 %%'; printf '\r 20 %%'; read x <seen; printf '\r\033[32m100 %%\033[0m\n'; read x <end; echo last`
	cmd := exec.Command(self(t), "_main", "run", "--run", "r", "sh", "-c", script)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	all := &lines{}
	all.some.L = &all.mu
	ended := make(chan struct{})
	go func() {
		io.Copy(all, master)
		close(ended)
	}()
	all.await(" 20 %")
	all.await("running · 1 rank")
	if err := os.WriteFile("seen", []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	all.await("100 %")
	if err := os.WriteFile("end", []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	<-ended
	var g grid
	g.write(strings.NewReplacer("\x1b[32m", "", "\x1b[0m", "").Replace(all.b.String()))
	var rest []string
	for _, line := range g.lines() {
		if !strings.HasPrefix(line, "cairn: ") {
			rest = append(rest, line)
		}
	}
	if got := strings.Join(rest, "\n"); got != "first\n100 %\nlast" {
		t.Errorf("the terminal shows\n%s\nof %q", strings.Join(g.lines(), "\n"), all.b.String())
	}
}
