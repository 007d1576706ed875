package interconnects

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// prefix begins the names of our namespaces. It is followed by the number of
// the process that made them.
const prefix = "cairn-interconnects-"

// Network is a number of hosts, which are network namespaces of this machine,
// connected by a bridge in a separate namespace. Nothing outside of these
// namespaces is reachable from them.
type Network struct {
	Hosts []string // their names
	all   []string // Hosts, and the namespace of the bridge
}

// Shell is the command that starts a program on a host, for cairn run --rsh.
const Shell = "ip netns exec {host}"

// NewNetwork creates a network. It needs root and the command ip; the error
// says so. The caller closes the network.
func NewNetwork(hosts int) (n *Network, err error) {
	sweep()
	made := new(Network)
	n = made
	defer func() {
		if err != nil {
			made.Close()
			n, err = nil, fmt.Errorf("network namespaces cannot be made here (it takes root and the command ip): %w", err)
		}
	}()
	number := networks()
	name := func(what any) string { return fmt.Sprintf("%s%d-%v-%d", prefix, os.Getpid(), what, number) }
	bridge := name("bridge")
	if err := n.add(bridge); err != nil {
		return n, err
	}
	for _, c := range []string{"link add bridge0 type bridge", "link set bridge0 up"} {
		if err := ip("-n " + bridge + " " + c); err != nil {
			return n, err
		}
	}
	for i := range hosts {
		host := name(i)
		if err := n.add(host); err != nil {
			return n, err
		}
		n.Hosts = append(n.Hosts, host)
		for _, c := range []string{
			fmt.Sprintf("-n %s link add p%d type veth peer name eth0 netns %s", bridge, i, host),
			fmt.Sprintf("-n %s link set p%d master bridge0 up", bridge, i),
			fmt.Sprintf("-n %s addr add 10.77.%d.%d/16 dev eth0", host, i/250, i%250+1),
			fmt.Sprintf("-n %s link set eth0 up", host),
			fmt.Sprintf("-n %s link set lo up", host),
		} {
			if err := ip(c); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// numbers has the number for the next network of this process.
var numbers struct {
	sync.Mutex
	next int
}

// networks returns a number for a new network of this process. A process that
// was killed, with the same number, may have left some.
func networks() int {
	numbers.Lock()
	defer numbers.Unlock()
	list, _ := os.ReadDir("/run/netns")
	highest := numbers.next
	for _, e := range list {
		pid, rest, ok := owner(e.Name())
		if !ok || pid != os.Getpid() {
			continue
		}
		if k, err := strconv.Atoi(rest[strings.LastIndex(rest, "-")+1:]); err == nil && strings.HasPrefix(rest, "bridge-") {
			highest = max(highest, k+1)
		}
	}
	numbers.next = highest + 1
	return highest
}

func (n *Network) add(name string) error {
	if err := ip("netns add " + name); err != nil {
		return err
	}
	n.all = append(n.all, name)
	return nil
}

// List returns hosts for cairn run --hosts, with a number of slots on each.
func (n *Network) List(hosts, slots int) string {
	var list []string
	for _, h := range n.Hosts[:hosts] {
		list = append(list, fmt.Sprintf("%s:%d", h, slots))
	}
	return strings.Join(list, ",")
}

// Close removes the network.
func (n *Network) Close() {
	for _, name := range n.all {
		ip("netns del " + name)
	}
	n.all = nil
}

// owner returns the process that made a namespace of this package.
func owner(name string) (pid int, rest string, ok bool) {
	text, found := strings.CutPrefix(name, prefix)
	if !found {
		return 0, "", false
	}
	number, rest, _ := strings.Cut(text, "-")
	pid, err := strconv.Atoi(number)
	return pid, rest, err == nil
}

// sweep removes networks of processes that were killed.
func sweep() {
	list, _ := os.ReadDir("/run/netns")
	for _, e := range list {
		if pid, _, ok := owner(e.Name()); ok && syscall.Kill(pid, 0) == syscall.ESRCH {
			ip("netns del " + e.Name())
		}
	}
}

func ip(args string) error {
	out, err := exec.CommandContext(context.Background(), "ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, strings.TrimSpace(string(out)))
	}
	return nil
}
