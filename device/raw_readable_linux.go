package device

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
)

// readable returns an error if this process cannot read and write the memory,
// or if it is mapped from a file whose name begins with except, unless except
// is "".
func readable(addr uintptr, n int64, except string) error {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil // without the file, nothing is known
	}
	end := addr + uintptr(n)
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() && addr < end {
		var lo, hi uintptr
		var access, offset, dev, inode, file string
		if k, _ := fmt.Sscanf(lines.Text(), "%x-%x %s %s %s %s %s", &lo, &hi, &access, &offset, &dev, &inode, &file); k < 6 {
			continue
		}
		switch {
		case hi <= addr:
			continue
		case except != "" && lo <= addr && strings.HasPrefix(file, except):
			return fmt.Errorf("it is mapped from %s, so it belongs to CUDA, whose driver does not know it or cannot be opened: %w", file, errNoDriver())
		case lo > addr || !strings.HasPrefix(access, "rw"):
			return fmt.Errorf("this process cannot read and write the byte at %#x: the memory is too short, was freed, or is on a device whose driver cannot be opened: %w", addr, errNoDriver())
		}
		addr = hi
	}
	if addr < end {
		return fmt.Errorf("this process has no memory at %#x", addr)
	}
	return nil
}

// errNoDriver returns why devices whose memory has addresses are missing.
func errNoDriver() error {
	machine.Lock()
	defer machine.Unlock()
	for _, b := range backends {
		if err := machine.missing[b.name]; b.pointers && err != nil {
			return err
		}
	}
	return errors.New("see CAIRN_DEVICES and CUDA_VISIBLE_DEVICES")
}
