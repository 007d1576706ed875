//go:build linux

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// slowToNotice is Slurm's default: a node counts as dead after five minutes.
var slowToNotice = map[string]string{"SlurmdTimeout": "300"}

// TestSlurm_NodeKilled kills one of three nodes, with and without a message to
// the others. The run continues on the remaining nodes, long before Slurm
// notices anything, and afterwards.
func TestSlurm_NodeKilled(t *testing.T) {
	onlyLong(t)
	want := travelled(t, "4")
	for _, silent := range []bool{false, true} {
		for _, notice := range []map[string]string{slowToNotice, nil} {
			t.Run(fmt.Sprintf("silent %v, slow %v", silent, notice != nil), func(t *testing.T) {
				c := newCluster(t, 3, notice, "")
				b := c.submit()
				at := b.logs(0, "committed")
				c.killNode(3, silent)
				at = b.logs(at, "started again: 4 ranks by srun")
				at = b.logs(at, "restored checkpoint")
				at = b.logs(at, "committed")
				if notice == nil { // Slurm takes the node from the job
					b.until("for two nodes", func() bool { return strings.Contains(c.do("scontrol", "show", "job", b.id), "NumNodes=2 ") })
					b.logs(at, "committed")
				}
				if n := strings.Count(b.text("sim.cairn/log"), "started again"); n != 1 {
					t.Errorf("it was started again %d times", n)
				}
				b.finishes(want)
			})
		}
	}
}

// TestSlurm_BatchNodeKilled kills the node that the script runs on. The job is
// started again on the others: by Slurm, or, if Slurm keeps it with the rest of
// its nodes, by a helper there.
func TestSlurm_BatchNodeKilled(t *testing.T) {
	onlyLong(t)
	want := travelled(t, "4")
	for _, keep := range []string{"--no-kill", "--no-kill=off"} {
		for _, silent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, silent %v", keep, silent), func(t *testing.T) {
				c := newCluster(t, 4, nil, "")
				b := c.submit(keep)
				at := b.logs(0, "committed")
				c.killNode(1, silent)
				at = b.logs(at, "started again: 4 ranks by srun (Slurm job "+b.id+" of cairn, restart 1)")
				b.logs(at, "restored checkpoint")
				out, code := cairnTool(t, "status", b.root+"/sim.cairn")
				if must(t, out, "job         Slurm job "+b.id+" of cairn, restart 1\n"); code != 0 {
					t.Errorf("cairn status: %d", code)
				}
				b.finishes(want)
			})
		}
	}
}

// TestSlurm_NoNodeToSpare kills a node that the run needs. The script has the
// job started again when there are enough nodes.
func TestSlurm_NoNodeToSpare(t *testing.T) {
	onlyLong(t)
	c := newCluster(t, 2, slowToNotice, "")
	b := c.submit("--nodes=2", "--ntasks-per-node=2")
	at := b.logs(0, "committed")
	c.killNode(2, false)
	at = b.logs(at, "failed; the last checkpoint is")
	b.until("for the job's end", func() bool { return b.state() != "RUNNING" })
	c.do("scontrol", "update", "nodename=n2", "state=down", "reason=test")
	c.startNode(2)
	at = b.logs(at, "restart 1)")
	b.logs(at, "restored checkpoint")
	b.finishes(travelled(t, "4"))
}

// TestSlurm_Ended has Slurm end the job in all its ways, while the ranks are
// busy. They save as soon as they can, in the time that Slurm gives, and the
// run resumes when the job is started again. Where Slurm signals script and
// ranks, either may be first.
func TestSlurm_Ended(t *testing.T) {
	onlyLong(t)
	want := travelled(t, "4")
	high := func(c *cluster, b *batch) {
		c.do("sbatch", "-p", "high", "-N3", "--ntasks-per-node=4", "-o", "/dev/null", "--wrap", "sleep 5")
	}
	for _, x := range []struct {
		name        string
		partition   string
		options     []string
		end         func(c *cluster, b *batch)
		says        string // why the run stops
		least, most int    // seconds that the ranks have
	}{
		{"requeue", "", nil, func(c *cluster, b *batch) { c.do("scontrol", "requeue", b.id) }, ": ranks are to save and stop, within SECONDS s (Slurm's KillWait)", 27, 27},
		{"node down", "", []string{"--no-kill=off"}, func(c *cluster, b *batch) { c.do("scontrol", "update", "nodename=n3", "state=down", "reason=test") },
			": ranks are to save and stop, within SECONDS s (Slurm's KillWait)", 27, 27},
		{"preemption", "", nil, high, ": ranks are to save and stop, within SECONDS s (Slurm's KillWait)", 27, 27},
		{"preemption with grace", "GraceTime=60", []string{"--time=UNLIMITED"}, high, "Slurm ends the job: ranks are to save and stop, within SECONDS s (Slurm's preemption)", 81, 81},
		{"preemption with grace and a time limit", "GraceTime=60", []string{"--time=60"}, high, "Slurm ends the job: ranks are to save and stop, within SECONDS s (Slurm's preemption)", 40, 81},
		{"time limit", "", []string{"--time=1", "--signal=B:TERM@50"}, func(c *cluster, b *batch) {}, "interrupted: ranks are to save and stop, within SECONDS s (the end of the Slurm job)", 27, 81},
		{"signal to the script", "", nil, func(c *cluster, b *batch) { c.do("scancel", "--signal=TERM", "--batch", b.id) },
			"interrupted: ranks are to save and stop, within SECONDS s (the end of the Slurm job)", 80000, 86420},
		{"signal to the ranks", "", nil, func(c *cluster, b *batch) { c.do("scancel", "--signal=TERM", b.id) }, "", 0, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := newCluster(t, 3, nil, x.partition)
			b := c.submit(x.options...)
			b.logs(0, "committed")
			at := len(b.text("sim.cairn/log"))
			if x.says != "" {
				b.makes("busy")
			}
			x.end(c, b)
			if x.says != "" {
				before, after, _ := strings.Cut(x.says, "SECONDS")
				from := b.logs(at, before)
				text := b.text("sim.cairn/log")[from-len(before) : b.logs(from, after)]
				if n, err := strconv.ParseFloat(text[len(before):len(text)-len(after)], 64); err != nil || n < float64(x.least) || n > float64(x.most) {
					t.Errorf("the ranks do not have %d to %d s: %s", x.least, x.most, text)
				}
				b.removes("busy")
			}
			at = b.logs(at, "stopped with checkpoint")
			at = b.logs(at, "restart 1)")
			b.logs(at, "restored checkpoint")
			b.finishes(want)
			if n := strings.Count(b.text("sim.cairn/log"), "started again"); n != 1 {
				t.Errorf("it was started again %d times", n)
			}
			if strings.Contains(b.text("sim.cairn/log"), "killed") {
				t.Error("a rank was killed")
			}
		})
	}
}

// TestSlurm_Cancelled cancels the job: it saves, and is not started again. The
// same script resumes it as another job.
func TestSlurm_Cancelled(t *testing.T) {
	onlyLong(t)
	c := newCluster(t, 3, nil, "")
	b := c.submit()
	at := b.logs(0, "committed")
	c.do("scancel", b.id)
	at = b.logs(at, "stopped with checkpoint")
	b.becomes("CANCELLED")
	time.Sleep(3 * time.Second) // it would be started again by then
	if state := b.state(); state != "CANCELLED" {
		t.Errorf("the job is %s", state)
	}
	b.id = c.do("sbatch", "--parsable", "-D", b.root, "-o", b.root+"/slurm.out", b.root+"/slurm.sh")
	at = b.logs(at, "(Slurm job "+b.id+" of cairn)")
	b.logs(at, "restored checkpoint")
	b.finishes(travelled(t, "4"))
}

// TestSlurm_RequeuedAfterTheEnd starts a job again that has finished. It must
// not compute everything once more.
func TestSlurm_RequeuedAfterTheEnd(t *testing.T) {
	onlyLong(t)
	want := travelled(t, "4")
	c := newCluster(t, 3, nil, "")
	b := c.submit()
	b.logs(0, "committed")
	b.finishes(want)
	c.do("scontrol", "requeue", b.id)
	b.logs(0, "the run has finished in an earlier start of this job (Slurm job "+b.id)
	b.finishes(want)
	if strings.Contains(b.text("sim.cairn/log"), "started again") {
		t.Error("it was started again")
	}
}
