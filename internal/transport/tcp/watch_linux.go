package tcp

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A host that vanishes says nothing. While a connection is idle the kernel
// sends keepalive probes and ends it when they are not answered. While
// something is under way it sends none, and repeats that for a quarter of an
// hour; TCP_USER_TIMEOUT would shorten this, but also ends connections to
// peers that are well and have just not read for a while. So the watch looks
// itself, a few times per Options.Timeout, at what the kernel knows:
// a peer is lost when it was silent for that long although it was asked.

// timerMark stands for the timer among the events of epoll.
const timerMark = -1

// spins is how many Polls in a row may go by without a look at the timer.
const spins = 4096

// startWatch makes the timer, if there is a peer on another host.
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

// rang reports whether the timer went off, and resets it.
func (l *link) rang() bool {
	if l.timer < 0 {
		return false
	}
	var b [8]byte
	n, err := unix.Read(l.timer, b[:])
	return err == nil && n == len(b)
}

// look looks for peers that are silent, and ends the connections to them:
// reading then gives what came before, and the end.
func (l *link) look() (moved bool) {
	l.due = false
	for _, c := range l.live {
		if c.host == l.d.opts.Host || c.broken != nil {
			continue
		}
		info, err := unix.GetsockoptTCPInfo(c.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			continue // reading tells why
		}
		quiet := time.Duration(min(info.Last_ack_recv, info.Last_data_recv)) * time.Millisecond
		asked := (info.Retransmits > 0 || info.Probes > 0) && quiet >= l.d.opts.Timeout
		if asked && c.asked { // a single look may fall between question and answer
			c.broken = fmt.Errorf("no answer for %v: %w", quiet.Round(time.Millisecond), unix.ETIMEDOUT)
			unix.Shutdown(c.fd, unix.SHUT_RDWR)
			moved = true
		}
		c.asked = asked
	}
	return moved
}
