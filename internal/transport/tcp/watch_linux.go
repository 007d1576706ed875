package tcp

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A host that vanishes sends nothing. On an idle connection the kernel sends
// keepalive probes, and ends the connection if they are not answered. With data
// in flight it sends no probes, and retransmits the data for a quarter of an
// hour. TCP_USER_TIMEOUT would shorten this, but it also ends connections to
// healthy peers that have not read for a while. So the link itself checks the
// kernel's statistics a few times per Options.Timeout: a peer is lost if it was
// silent for that long although data or probes were sent to it.

// timerMark identifies the timer in epoll events.
const timerMark = -1

// spins is the maximum number of consecutive Polls without a look at the timer.
const spins = 4096

// startWatch creates the timer if there is a peer on another host.
func (l *link) startWatch() error {
	remote := false
	for _, c := range l.live {
		remote = remote || c.host != l.d.opts.Host
	}
	if !remote || l.d.opts.Timeout < 0 {
		return nil
	}
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("timerfd_create: %w", err)
	}
	l.timer = fd
	every := unix.NsecToTimespec(max(l.d.opts.Timeout/4, 10*time.Millisecond).Nanoseconds())
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil); err != nil {
		return fmt.Errorf("timerfd_settime: %w", err)
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: timerMark}
	if err := unix.EpollCtl(l.ep, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// rang reports whether the timer has expired, and resets it.
func (l *link) rang() bool {
	if l.timer < 0 {
		return false
	}
	var b [8]byte
	n, err := unix.Read(l.timer, b[:])
	return err == nil && n == len(b)
}

// look finds silent peers and shuts down their connections. Reading such a
// connection returns what came before, and then its end.
func (l *link) look() (moved bool) {
	l.due = false
	for _, c := range l.live {
		if c.host == l.d.opts.Host || c.broken != nil {
			continue
		}
		info, err := unix.GetsockoptTCPInfo(c.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			continue // reading reports the reason
		}
		quiet := time.Duration(min(info.Last_ack_recv, info.Last_data_recv)) * time.Millisecond
		asked := (info.Retransmits > 0 || info.Probes > 0) && quiet >= l.d.opts.Timeout
		if asked && c.asked { // twice in a row: the first look may fall between a probe and its answer
			c.broken = fmt.Errorf("no answer for %v: %w", quiet.Round(time.Millisecond), unix.ETIMEDOUT)
			unix.Shutdown(c.fd, unix.SHUT_RDWR)
			moved = true
		}
		c.asked = asked
	}
	return moved
}
