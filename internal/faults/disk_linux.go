package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fullDisk fills the disk that holds a part of the run, and makes room again.
func fullDisk(t *faultCase) error {
	c := t.choose()
	if t.r.IntN(4) == 0 {
		t.prog = t.ranksProgram()
	}
	disk, unmount, err := t.smallDisk(c, "tmpfs", "size=3m")
	if err != nil {
		return err
	}
	defer unmount()
	filler := filepath.Join(disk, "filler")
	return t.spoil(c, "the disk is full", "no space left", func() error { return fill(filler) }, func() error { return os.Remove(filler) })
}

// smallDisk mounts a small file system and puts a part of the run on it: its
// checkpoints, its directory, or its output.
func (t *faultCase) smallDisk(c *scenario, fstype, data string) (disk string, unmount func(), err error) {
	disk = t.file("disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		return "", nil, err
	}
	if t.prog.mode == "files" { // Cairn restores hard links across file systems as separate files (docs/programs.md)
		t.prog.mode = "nolinks"
	}
	if err := syscall.Mount(fstype, disk, fstype, 0, data); err != nil {
		return "", nil, judged(skipped, "a small file system cannot be mounted here (it takes root): %v", err)
	}
	switch what := t.r.IntN(3); {
	case what == 0 && !c.alone:
		c.flags = append(c.flags, "--dir", c.place(t, "disk/sets"))
	case what == 1 && !c.alone:
		c.out = "disk/out"
	default:
		c.run = "disk/run"
	}
	return disk, func() { t.strikeAll(); syscall.Unmount(disk, syscall.MNT_DETACH) }, nil
}

// spoil makes a disk fail at some moment for some time. If the run ends
// meanwhile with an error that names the cause, it must complete when the disk
// is repaired.
func (t *faultCase) spoil(c *scenario, what, word string, spoil, mend func() error) error {
	var s *start
	early := t.r.IntN(6) == 0 // before anything is started
	if !early {
		var err error
		if s, err = t.start(c); err != nil {
			return err
		}
		if err := t.moment(c, s); err != nil {
			return err
		}
		if s.over() {
			return t.complete(c, s)
		}
	}
	if err := spoil(); err != nil {
		return err
	}
	rest := time.Duration(20+t.r.IntN(600)) * time.Millisecond
	t.note("%s (%s, %s) for %v", what, c.run, c.out, rest)
	if early {
		var err error
		if s, err = t.start(c); err != nil {
			return err
		}
	}
	s.pause(rest)
	if t.r.IntN(3) == 0 && !s.over() {
		role := roles[t.r.IntN(len(roles))]
		if hit := t.strike(role, syscall.SIGKILL); len(hit) > 0 {
			t.note("SIGKILL %s (%d) meanwhile", role, len(hit))
		}
		s.pause(rest)
	}
	ended := s.over()
	if err := mend(); err != nil {
		return err
	}
	if ended && s.exit() != t.prog.status && s.exit() != statusStopped && s.exit() > 0 {
		said := s.text()
		if err := t.complete(c, nil); err != nil {
			return fmt.Errorf("%w (before that it was refused: %s)", err, tail(said))
		}
		return judged(refused, "%s", tail(said))
	}
	return t.complete(c, s)
}

// fill writes a file until the file system is full.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, size := range []int{64 << 10, 1} {
		p := make([]byte, size)
		for err == nil {
			_, err = f.Write(p)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
		err = nil
	}
	return nil
}

// powerCut simulates a power failure: it shuts down a separate file system
// without writing anything back, kills all processes, and mounts it again.
func powerCut(t *faultCase) error {
	c := t.choose()
	if t.r.IntN(4) == 0 {
		t.prog = t.ranksProgram()
	}
	c.alone = t.prog.ranks == 1 && t.r.IntN(4) == 0
	image, disk, unmount, err := t.ownDisk()
	if err != nil {
		return err
	}
	defer unmount()
	c.run, c.out, t.workName = "disk/run", "disk/out", "disk/work"
	c.absolute = true
	if err := errors.Join(os.Mkdir(t.work(), 0o755), syncAll(disk)); err != nil {
		return err
	}
	for range 1 + t.r.IntN(2) {
		if t.finished(c) {
			break
		}
		s, err := t.start(c)
		if err != nil {
			return err
		}
		if err := t.moment(c, s); err != nil {
			return err
		}
		if s.over() && s.exit() == t.prog.status {
			return t.compare(c, s.exit())
		}
		if err := shutDown(disk); err != nil {
			return err
		}
		t.note("power cut")
		if err := t.strikeAll(); err != nil {
			return err
		}
		if err := s.end(); err != nil {
			return err
		}
		if err := remount(&image, disk); err != nil {
			return err
		}
	}
	return t.complete(c, nil)
}

// ioError makes the disk fail that holds a part of the run: every operation
// from then on. When no process uses it any more, it is mounted again.
func ioError(t *faultCase) error {
	c := t.choose()
	if t.r.IntN(4) == 0 {
		t.prog = t.ranksProgram()
	}
	if t.prog.mode == "files" { // as with smallDisk
		t.prog.mode = "nolinks"
	}
	image, disk, unmount, err := t.ownDisk()
	if err != nil {
		return err
	}
	defer unmount()
	switch t.r.IntN(3) {
	case 0:
		c.flags = append(c.flags, "--dir", c.place(t, "disk/sets"))
	case 1:
		c.out = "disk/out"
	default:
		c.run = "disk/run"
	}
	s, err := t.start(c)
	if err != nil {
		return err
	}
	if err := t.moment(c, s); err != nil {
		return err
	}
	if s.over() {
		return t.complete(c, s)
	}
	if err := shutDown(disk); err != nil {
		return err
	}
	rest := time.Duration(100+t.r.IntN(1500)) * time.Millisecond
	t.note("I/O errors (%s, %s, %s)", c.run, c.out, strings.Join(c.flags, " "))
	s.pause(rest)
	ended := s.over()
	if err := t.strikeAll(); err != nil {
		return err
	}
	if err := s.end(); err != nil {
		return err
	}
	if err := remount(&image, disk); err != nil {
		return err
	}
	if ended && s.exit() == t.prog.status {
		return t.compare(c, s.exit())
	}
	said := s.text()
	if err := t.complete(c, nil); err != nil {
		return fmt.Errorf("%w (before that: %s)", err, tail(said))
	}
	if ended && s.exit() != statusStopped {
		return judged(refused, "%s", tail(said))
	}
	return nil
}

// ownDisk mounts a file system for this case alone.
func (t *faultCase) ownDisk() (image, disk string, unmount func(), err error) {
	image, disk = t.file("image"), t.file("disk")
	if err := t.copyImage(image); err != nil {
		return "", "", nil, err
	}
	if err := os.Mkdir(disk, 0o755); err != nil {
		return "", "", nil, err
	}
	if err := mountImage(image, disk); err != nil {
		return "", "", nil, judged(skipped, "%v", err)
	}
	return image, disk, func() { t.strikeAll(); unmountImage(disk) }, nil
}

// copyImage copies an image of an empty file system.
func (t *faultCase) copyImage(to string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	from := filepath.Join(t.scratch, "image")
	if _, err := os.Stat(from); err != nil {
		if err := os.WriteFile(from, nil, 0o600); err != nil {
			return err
		}
		if err := os.Truncate(from, 24<<20); err != nil {
			return err
		}
		// With a long commit interval, nothing is written back by itself.
		if out, err := exec.Command("mkfs.ext4", "-q", "-E", "lazy_itable_init=1", from).CombinedOutput(); err != nil {
			os.Remove(from)
			return judged(skipped, "mkfs.ext4: %v: %s", err, out)
		}
	}
	if out, err := exec.Command("cp", "--sparse=always", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	return nil
}

func mountImage(image, disk string) error {
	if out, err := exec.Command("mount", "-o", "loop,commit=300", image, disk).CombinedOutput(); err != nil {
		return fmt.Errorf("mount: %w: %s", err, out)
	}
	return nil
}

// remount mounts what is left of a file system that was shut down. It mounts a
// copy: a process in another namespace may still use the old one, which would
// be mounted again as it is.
func remount(image *string, disk string) error {
	if err := unmountImage(disk); err != nil {
		return err
	}
	next := *image + "+"
	if out, err := exec.Command("cp", "--sparse=always", *image, next).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	*image = next
	return mountImage(next, disk)
}

func unmountImage(disk string) error {
	var err error
	for range 200 {
		if err = syscall.Unmount(disk, 0); !errors.Is(err, syscall.EBUSY) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err != nil {
		syscall.Unmount(disk, syscall.MNT_DETACH)
		return fmt.Errorf("unmount %s: %w", disk, err)
	}
	return nil
}

// syncAll syncs a file system.
func syncAll(disk string) error {
	f, err := os.Open(disk)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// shutDown stops a file system at once: what was not synced is lost, as in a
// power failure.
func shutDown(disk string) error {
	const (
		ioctlShutdown = 0x8004587d // EXT4_IOC_SHUTDOWN
		noLogFlush    = 2
	)
	f, err := os.Open(disk)
	if err != nil {
		return err
	}
	defer f.Close()
	flags := uint32(noLogFlush)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), ioctlShutdown, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		return fmt.Errorf("shut down %s: %w", disk, errno)
	}
	return nil
}
