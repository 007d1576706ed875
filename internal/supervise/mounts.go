//go:build linux

package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// isMounted returns an error if the file system of a directory does not seem to
// be mounted: the directory is missing, or /etc/fstab has a file system for it
// that is not mounted. A new run directory cannot tell the first use of a
// shared directory from that, so the user makes the directory.
func isMounted(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s does not exist here: its file system may not be mounted. If it is mounted, and no run has been there, make the directory (mkdir %s)", dir, dir)
	} else if err != nil {
		return err
	}
	table, err := os.ReadFile("/etc/fstab")
	if err != nil {
		return nil
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	if at := unmounted(dir, string(table), string(mounts)); at != "" {
		return fmt.Errorf("%s is not mounted: /etc/fstab has a file system for it", at)
	}
	return nil
}

// unmounted returns the mount point in an fstab whose file system a directory
// should be on, and that is not in a mountinfo. "": there is none.
func unmounted(dir, fstab, mountinfo string) string {
	best := ""
	for line := range strings.Lines(fstab) {
		f := strings.Fields(line)
		if len(f) < 2 || strings.HasPrefix(f[0], "#") {
			continue
		}
		at := unescape(f[1])
		if (dir == at || strings.HasPrefix(dir, at+"/")) && len(at) > len(best) {
			best = at
		}
	}
	for line := range strings.Lines(mountinfo) {
		if f := strings.Fields(line); len(f) > 4 && unescape(f[4]) == best {
			return ""
		}
	}
	return best
}

// unescape decodes a field of an fstab or a mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
