package main

import (
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/interconnects"
)

// network is a network of hosts, which are network namespaces.
type network struct{ *interconnects.Network }

func (n *network) close() { n.Close() }

// borrow returns an unused network of two hosts.
func (l *lab) borrow() (*network, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := len(l.nets); k > 0 {
		n := l.nets[k-1]
		l.nets = l.nets[:k-1]
		return n, nil
	}
	n, err := interconnects.NewNetwork(3)
	if err != nil {
		return nil, judged(skipped, "%v", err)
	}
	return &network{n}, nil
}

func (l *lab) giveBack(n *network) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nets = append(l.nets, n)
}

// partition disconnects a host from the network, and connects it again.
func partition(t *faultCase) error {
	net, err := t.borrow()
	if err != nil {
		return err
	}
	defer t.giveBack(net)
	t.prog = t.ranksProgram()
	t.prog.ranks = 3
	c := t.scenario()
	c.every = 2 + t.r.IntN(6)
	c.flags = []string{"--hosts", fmt.Sprintf("%s:2,%s:2,%s:2", net.Hosts[0], net.Hosts[1], net.Hosts[2]), "--rsh", interconnects.Shell, "--stall", "3s", "--grace", "5s"}
	s, err := t.start(c)
	if err != nil {
		return err
	}
	moves := t.r.IntN(2) == 0
	for range 1 + t.r.IntN(2) {
		if err := t.moment(c, s); err != nil {
			return err
		}
		if s.over() {
			break
		}
		var m *start
		if moves {
			to := net.Hosts[t.r.IntN(3)]
			if m, err = t.launchCairn("migrate", "--rank", fmt.Sprint(t.r.IntN(3)), "--to", to, t.file(c.run)); err != nil {
				return err
			}
			m.pause(time.Duration(t.r.IntN(100)) * time.Millisecond)
		}
		host := net.Hosts[t.r.IntN(2)]
		rest := time.Duration(50+t.r.IntN(1500)) * time.Millisecond
		if err := link(host, "down"); err != nil {
			return err
		}
		s.pause(rest)
		err := link(host, "up")
		t.note("host cut off for %v, migrating: %v", rest, moves)
		if err != nil {
			return err
		}
		if m != nil {
			if err := m.end(); err != nil {
				return err
			}
		}
	}
	return t.complete(c, s)
}

// link takes a host's link down or up.
func link(host, to string) error {
	out, err := exec.Command("ip", "-n", host, "link", "set", "eth0", to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip link set %s: %w: %s", to, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// onDevice kills a program whose state is on a device. After the restart, the
// device may be another one.
func onDevice(t *faultCase) error {
	t.prog = program{source: "library", mode: "device", ranks: 1, seed: t.r.IntN(5), steps: 30 + t.r.IntN(20), pause: "3ms", devices: []string{"opencl", "opencl", "host"}[t.r.IntN(3)]}
	return t.storm(t.scenario(), 1+t.r.IntN(2))
}
