package resume_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestReport_DiskFull shows that a full disk is reported once, by the
// supervisor or otherwise by the program, whatever the number of ranks and of
// checkpoints.
func TestReport_DiskFull(t *testing.T) {
	path := build(t, "./testdata/cases")
	for ranks := range 3 {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			mount := t.TempDir() // with room for the run's identity and each rank's record of its files, and no more
			if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, fmt.Sprintf("size=%dk", 4+8*max(1, ranks))); err != nil {
				t.Skipf("a small file system cannot be mounted here (it takes root): %v", err)
			}
			t.Cleanup(func() { syscall.Unmount(mount, syscall.MNT_DETACH) })
			dir := filepath.Join(mount, "sets")
			told, other, said, full := "cairn: checkpoint not saved: ", " was not saved: ", "", 1
			if ranks == 0 {
				p := newProgram(t, path, "printing")
				p.env = []string{"CAIRN_DIR=" + dir, "CAIRN_EVERY_POINTS=1"}
				_, _, said = p.start()
				full++ // the end of the run cannot be recorded there, either
			} else {
				cmd, text := supervised(t, t.TempDir(), "-n", fmt.Sprint(ranks), "--dir", dir, "--every-points", "1", path, "printing")
				if err := cmd.Run(); err != nil {
					t.Error(err)
				}
				told, other, said = other, told, text.String()
			}
			if strings.Count(said, told) != 1 || strings.Count(said, "no space left on device") != full || strings.Contains(said, other) {
				t.Error(said)
			}
		})
	}
}
