package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// blow says when something is killed: after so many checkpoints since the last
// blow.
type blow struct {
	checkpoints int
	rank        int  // the rank that is killed
	all         bool // kill cairn itself and all its processes
}

// disturbed is a run of cairn in which processes are killed.
type disturbed struct {
	cairn, runDir string
	args          []string
	blows         []blow

	checkpoints int // committed checkpoints in total
}

// run runs it to its end and shows cairn's messages.
func (d *disturbed) run(ctx context.Context) error {
	left := d.blows
	for {
		again, err := d.start(ctx, &left)
		if err != nil {
			return err
		}
		if !again {
			break
		}
		fmt.Println("\n   Now only the run directory is left. The same command resumes from there:\n   $ cairn run …")
	}
	if len(left) > 0 {
		return errors.New("the program ended before it had been killed as often as it was to be")
	}
	return nil
}

// start starts cairn once, and reports whether another start is needed.
func (d *disturbed) start(ctx context.Context, left *[]blow) (again bool, err error) {
	cmd := exec.CommandContext(ctx, d.cairn, d.args...)
	says, err := cmd.StderrPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	count, dead := 0, false // dead: a rank was killed, and is not started again yet
	lines := bufio.NewScanner(says)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "cairn: ") {
			fmt.Println("  ", shorter(line))
		}
		if strings.Contains(line, "started again") {
			dead = false
		}
		if !strings.Contains(line, " committed") {
			continue
		}
		d.checkpoints++
		if dead { // the checkpoint is older than the kill
			continue
		}
		if count++; len(*left) == 0 || count < (*left)[0].checkpoints || again {
			continue
		}
		b := (*left)[0]
		*left, count = (*left)[1:], 0
		pid, err := d.pid(b.rank)
		if err != nil {
			return false, err
		}
		if b.all {
			fmt.Printf("   $ kill -9 %d %d        # cairn and the program\n", cmd.Process.Pid, pid)
			cmd.Process.Kill()
			again = true
		} else {
			fmt.Printf("   $ kill -9 %d\n", pid)
			dead = true
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return false, err
		}
	}
	if err := cmd.Wait(); err != nil && !again {
		return false, fmt.Errorf("cairn run: %w", err)
	}
	return again, nil
}

// shorter returns a message of cairn without details that do not matter here.
func shorter(line string) string {
	if i := strings.Index(line, " written"); i >= 0 && strings.Contains(line, " committed") {
		if j := strings.LastIndex(line[:i], ","); j >= 0 {
			line = line[:j] + strings.TrimPrefix(line[i:], " written")
		}
		line, _, _ = strings.Cut(line, ", durable")
	}
	return line
}

// pid finds the process of a rank.
func (d *disturbed) pid(rank int) (int, error) {
	raw, err := exec.Command(d.cairn, "status", "--json", d.runDir).Output()
	if err != nil {
		return 0, fmt.Errorf("cairn status: %w", err)
	}
	var st struct {
		Ranks []struct{ Rank, Pid int }
	}
	if err := json.Unmarshal(raw, &st); err != nil {
		return 0, fmt.Errorf("cairn status: %w", err)
	}
	for _, r := range st.Ranks {
		if r.Rank == rank && r.Pid > 0 {
			return r.Pid, nil
		}
	}
	return 0, fmt.Errorf("rank %d has ended before it could be killed", rank)
}
