package tcp

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests below run two ranks in network namespaces of their own, connected
// by a virtual cable, and disconnect the cable.

const vanishEnv = "CAIRN_TEST_TCP_VANISH"

// vanishMain is a rank. It reads commands from its standard input, line by
// line.
func vanishMain() error {
	rank, err := strconv.Atoi(os.Getenv(vanishEnv))
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	if !lines.Scan() { // wait until the cable is connected
		return io.ErrUnexpectedEOF
	}
	d, err := Open(Options{Rank: rank, Size: 2, Secret: testSecret, Host: "host" + strconv.Itoa(rank), Timeout: 2 * time.Second})
	if err != nil {
		return err
	}
	fmt.Println(hex.EncodeToString(d.Address()))
	if !lines.Scan() {
		return io.ErrUnexpectedEOF
	}
	address, err := hex.DecodeString(lines.Text())
	if err != nil {
		return err
	}
	addresses := make([][]byte, 2)
	addresses[1-rank] = address
	r := &recorder{}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	l, err := d.Connect(ctx, addresses, r)
	if err != nil {
		return err
	}
	fmt.Println("connected")
	for lines.Scan() {
		switch lines.Text() {
		case "fill":
			for l.Send(1-rank, head(0), make([]byte, 1<<20), nil) {
			}
			for l.Poll() {
			}
			fmt.Println("full")
		case "send":
			l.Send(1-rank, head(0), []byte("are you there?"), nil)
			fmt.Println("sent")
		case "read": // read everything, until nothing comes for a while
			for end := time.Now().Add(time.Second); time.Now().Before(end); {
				if l.Poll() {
					end = time.Now().Add(time.Second)
				}
			}
			fmt.Println("read", len(r.frames), "lost", len(r.lost))
		case "wait": // sleep until the peer is lost
			for len(r.lost) == 0 {
				if l.Arm() {
					unix.Poll([]unix.PollFd{{Fd: int32(l.FD()), Events: unix.POLLIN}}, -1)
				}
				l.Disarm()
				l.Poll()
			}
			fmt.Println("lost", r.lost[1-rank])
		case "spin": // poll until the peer is lost
			for len(r.lost) == 0 {
				l.Poll()
			}
			fmt.Println("lost", r.lost[1-rank])
		}
	}
	return nil
}

// apart is a rank in a network namespace of its own.
type apart struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func (a *apart) say(line string) { fmt.Fprintln(a.in, line) }

func (a *apart) hear(prefix string) string {
	a.t.Helper()
	line, err := a.out.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, prefix) {
		a.t.Fatalf("%q, %v; want %s", line, err, prefix)
	}
	return strings.TrimSpace(line)
}

// ip runs the ip command in the rank's namespace.
func (a *apart) ip(args string) error {
	words := append([]string{"-t", strconv.Itoa(a.cmd.Process.Pid), "-n", "ip"}, strings.Fields(args)...)
	if out, err := exec.Command("nsenter", words...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, out)
	}
	return nil
}

func startApart(t *testing.T, rank int) *apart {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), vanishEnv+"="+strconv.Itoa(rank))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("not tested: network namespaces need privileges: %v", err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return &apart{t, cmd, in, bufio.NewReader(out)}
}

// cabled starts two connected ranks.
func cabled(t *testing.T) (a, b *apart) {
	for _, tool := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("not tested: %v", err)
		}
	}
	a, b = startApart(t, 0), startApart(t, 1)
	for _, step := range []struct {
		*apart
		args string
	}{
		{a, fmt.Sprintf("link add cable0 type veth peer name cable1 netns %d", b.cmd.Process.Pid)},
		{a, "addr add 10.99.0.1/24 dev cable0"}, {b, "addr add 10.99.0.2/24 dev cable1"},
		{a, "link set cable0 up"}, {b, "link set cable1 up"},
	} {
		if err := step.ip(step.args); err != nil {
			t.Skipf("not tested: %v", err)
		}
	}
	a.say("up")
	b.say("up")
	ca, cb := a.hear(""), b.hear("")
	a.say(cb)
	b.say(ca)
	a.hear("connected")
	b.hear("connected")
	return a, b
}

// TestLost_HostVanishes shows that the loss of a host is noticed: on an idle
// connection (by keepalive) and with data in flight, by a sleeping and by a
// polling rank.
func TestLost_HostVanishes(t *testing.T) {
	t.Parallel()
	for _, how := range []struct{ name, before, wait string }{
		{"idle", "", "wait"},
		{"sending", "send", "wait"},
		{"awake", "send", "spin"},
		{"full", "fill", "wait"},
	} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel() // the tests mostly wait
			a, b := cabled(t)
			if err := b.ip("link set cable1 down"); err != nil {
				t.Fatal(err)
			}
			if how.before != "" {
				a.say(how.before)
				a.hear("")
			}
			a.say(how.wait)
			said := a.hear("lost")
			if !strings.Contains(said, "rank 1 on host1") || strings.Contains(said, "closed") {
				t.Error(said)
			}
			t.Log(said)
		})
	}
}

// TestLost_NotWhileBusy shows that a peer which does not read for much longer
// than the timeout is not lost.
func TestLost_NotWhileBusy(t *testing.T) {
	t.Parallel()
	a, b := cabled(t)
	a.say("fill")
	a.hear("full")
	time.Sleep(4 * time.Second) // twice the timeout, which must pass; the kernels communicate meanwhile
	a.say("read")               // this also looks at the timer
	if said := a.hear("read"); said != "read 0 lost 0" {
		t.Fatal(said)
	}
	b.say("read")
	a.say("read")
	if said := b.hear("read"); !strings.HasSuffix(said, "lost 0") || strings.HasPrefix(said, "read 0") {
		t.Error(said)
	}
	a.hear("read 0 lost 0")
}
