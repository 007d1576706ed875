package tcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/internal/transport"
)

// Driver listens for peers and connects them. Its methods are called by one
// goroutine at a time.
type Driver struct {
	opts      Options
	ln        *net.TCPListener
	me        address
	unclaimed map[identity]*net.TCPConn // connections of ranks that a later Connect may name; they wait for the verdict
	closed    bool
}

var _ transport.Driver = (*Driver)(nil)

// Open starts to listen. It does not block.
func Open(o Options) (*Driver, error) {
	o.Size = cmp.Or(o.Size, 1)
	if o.Rank < 0 || o.Rank >= o.Size {
		return nil, fmt.Errorf("tcp: rank %d of %d: ranks count from 0", o.Rank, o.Size)
	}
	if len(o.Secret) < minSecret && o.Size > 1 {
		return nil, fmt.Errorf("tcp: rank %d: the secret has %d bytes; give all ranks the same %d random bytes or more", o.Rank, len(o.Secret), minSecret)
	}
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	if o.Host == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("tcp: this host has no name: %w (set Options.Host)", err)
		}
		o.Host = name
	}
	if len(o.Host) > 255 {
		return nil, fmt.Errorf("tcp: a host name of %d bytes; 255 are allowed", len(o.Host))
	}
	o.Secret = slices.Clone(o.Secret)
	at, err := listenAddr(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("tcp: rank %d: %w", o.Rank, err)
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	lc.KeepAlive = -1 // set for each connection later
	ln, err := lc.Listen(context.Background(), "tcp", at)
	if err != nil {
		return nil, fmt.Errorf("tcp: rank %d cannot listen at %q: %w", o.Rank, o.Listen, err)
	}
	d := &Driver{opts: o, ln: ln.(*net.TCPListener), unclaimed: make(map[identity]*net.TCPConn)}
	bound := d.ln.Addr().(*net.TCPAddr).AddrPort()
	d.me = address{port: bound.Port(), rank: o.Rank, size: o.Size, host: o.Host}
	rand.Read(d.me.id[:])
	if ip := bound.Addr().Unmap(); !ip.IsUnspecified() {
		d.me.ips = []ipAddr{{ip, ip.IsLoopback()}}
	} else if d.me.ips, err = hostAddrs(""); err != nil {
		ln.Close()
		return nil, fmt.Errorf("tcp: rank %d: %w", o.Rank, err)
	}
	return d, nil
}

// listenAddr converts Options.Listen into an address to listen at.
func listenAddr(listen string) (string, error) {
	if listen == "" {
		return ":0", nil
	}
	if ip, err := netip.ParseAddr(listen); err == nil {
		return netip.AddrPortFrom(ip, 0).String(), nil
	}
	if host, _, err := net.SplitHostPort(listen); err == nil {
		if _, err := netip.ParseAddr(host); err == nil || host == "" {
			return listen, nil
		}
	}
	addrs, err := hostAddrs(listen)
	if err != nil {
		return "", fmt.Errorf("Options.Listen is %q, neither an address nor an interface that can be used: %w", listen, err)
	}
	return net.JoinHostPort(addrs[0].ip.String(), "0"), nil
}

// hostAddrs returns the addresses of this host, or those of one interface: IPv4
// before IPv6, loopback last.
func hostAddrs(iface string) ([]ipAddr, error) {
	lists, err := interfaceAddrs(iface)
	if err != nil {
		return nil, fmt.Errorf("cannot list the network interfaces: %w", err)
	}
	var found []ipAddr
	for _, addrs := range lists {
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			ip, ok := netip.AddrFromSlice(n.IP)
			ip = ip.Unmap()
			// A link-local address needs the name of the peer's interface,
			// which is unknown here.
			if !ok || ip.IsLinkLocalUnicast() || !ip.IsGlobalUnicast() && !ip.IsLoopback() {
				continue
			}
			found = append(found, ipAddr{ip, ip.IsLoopback()})
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no network interface is up and has an address")
	}
	slices.SortStableFunc(found, func(a, b ipAddr) int { return a.order() - b.order() })
	return found[:min(len(found), 64)], nil
}

// interfaceAddrs returns the addresses of each interface that is up, or of one
// interface. If interfaces cannot be listed, as in some emulators, it returns
// the addresses alone.
func interfaceAddrs(iface string) (out [][]net.Addr, err error) {
	ifs, err := net.Interfaces()
	if err != nil && iface == "" {
		if all, e := net.InterfaceAddrs(); e == nil {
			return [][]net.Addr{all}, nil
		}
	}
	for _, i := range ifs {
		if iface != "" && i.Name != iface || i.Flags&net.FlagUp == 0 {
			continue
		}
		if addrs, err := i.Addrs(); err == nil { // on an error, the interface has just disappeared
			out = append(out, addrs)
		}
	}
	return out, err
}

func (a ipAddr) order() int {
	n := 0
	if a.loopback {
		n += 2
	}
	if !a.ip.Is4() {
		n++
	}
	return n
}

// Name is "tcp".
func (*Driver) Name() string { return "tcp" }

// Address says where this rank listens.
func (d *Driver) Address() []byte { return d.me.encode() }

// Reaches reports whether address is one of this transport, of a rank of the
// same run. Whether packets get through is known only to Connect.
func (d *Driver) Reaches(b []byte) bool {
	c, err := parseAddress(b)
	return err == nil && c.size == d.me.size
}

// Connect connects to all peers that have an address.
func (d *Driver) Connect(ctx context.Context, addresses [][]byte, h transport.Handler) (transport.Link, error) {
	fail := func(err error) (transport.Link, error) {
		return nil, fmt.Errorf("tcp: rank %d: %w", d.opts.Rank, err)
	}
	if d.closed {
		return fail(net.ErrClosed)
	}
	if len(addresses) > d.opts.Size {
		return fail(fmt.Errorf("%d addresses for a run of %d ranks", len(addresses), d.opts.Size))
	}
	peers := make([]*address, len(addresses))
	for rank, b := range addresses {
		if b == nil || rank == d.opts.Rank {
			continue
		}
		c, err := parseAddress(b)
		if err == nil && c.rank != rank {
			err = fmt.Errorf("%w: it is that of rank %d", errAddress, c.rank)
		}
		if err != nil {
			return fail(fmt.Errorf("the address of rank %d: %w", rank, err))
		}
		peers[rank] = c
	}
	conns, err := d.join(ctx, peers)
	if err != nil {
		return fail(err)
	}
	l, err := newLink(d, peers, conns, h)
	if err != nil {
		return fail(err)
	}
	return l, nil
}

// Close stops listening.
func (d *Driver) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	for _, c := range d.unclaimed {
		c.Close()
	}
	clear(d.unclaimed)
	return d.ln.Close()
}

func describe(at []netip.AddrPort) string {
	if len(at) == 0 {
		return "its address has no address that leads to it"
	}
	s := make([]string, len(at))
	for i, a := range at {
		s[i] = a.String()
	}
	return "tried " + strings.Join(s, ", ")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
