package control

import "net"

// ListenAddresses returns the addresses at which a listener of this host can be
// reached, loopback last.
func ListenAddresses(a net.Addr) []string {
	_, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return nil
	}
	var out, last []string
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, x := range list {
		n, ok := x.(*net.IPNet)
		switch {
		case !ok || n.IP.IsLinkLocalUnicast():
		case n.IP.IsLoopback():
			last = append(last, net.JoinHostPort(n.IP.String(), port))
		default:
			out = append(out, net.JoinHostPort(n.IP.String(), port))
		}
	}
	return append(out, last...)
}
