//go:build linux

package supervise

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnmounted looks for directories on file systems that are mounted and that
// are not.
func TestUnmounted(t *testing.T) {
	const fstab = `# file systems
/dev/sda1 / ext4 defaults 0 1
fs:/home  /home nfs defaults 0 0
mgs:/scratch /gpfs lustre noauto 0 0
mgs:/deep /gpfs/deep\040one lustre noauto 0 0
swap none swap sw 0 0
`
	const mountinfo = `22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
40 22 0:50 / /home rw,relatime shared:1 - nfs fs:/home rw
`
	for dir, want := range map[string]string{
		"/gpfs": "/gpfs", "/gpfs/me": "/gpfs", "/gpfs/deep one/me": "/gpfs/deep one",
		"/gpfs2/me": "", "/home/me": "", "/tmp": "", "/": "",
	} {
		if got := unmounted(dir, fstab, mountinfo); got != want {
			t.Errorf("%s: %q, want %q", dir, got, want)
		}
	}
}

// TestIsMounted_Missing asks for a directory that is not there.
func TestIsMounted_Missing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "me")
	if err := isMounted(dir); err == nil || !strings.Contains(err.Error(), "mkdir "+dir) {
		t.Errorf("got %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := isMounted(dir); err != nil {
		t.Error(err)
	}
}
