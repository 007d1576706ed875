package resume_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestRuntimeKnown_WithLinkerFlag runs the tests of runtime_known.go, which
// need a flag of the linker that only cairn build gives.
func TestRuntimeKnown_WithLinkerFlag(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds this package's tests again")
	}
	binary := t.TempDir() + "/resume.test"
	build := exec.Command("go", "test", "-c", "-o", binary, "-tags=cairn_goroutines,cairn_runtime", "-ldflags=-checklinkname=0", ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, procs := range []int{1, 2, 8} {
		cmd := exec.Command(binary, "-test.v", "-test.run=^(TestWakeChannel_Exchange|TestWakeCond_Queue|TestSelects_Closed|TestBlockedForEver_Unsaved|TestMutex_Layout|TestRoutine_Memory)$")
		cmd.Env = append(os.Environ(), fmt.Sprint("GOMAXPROCS=", procs), "GODEBUG=adaptivestackstart=0")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestWakeChannel_Exchange") {
			t.Errorf("GOMAXPROCS=%d: %v\n%s", procs, err, out)
		}
		t.Logf("GOMAXPROCS=%d: %s", procs, out)
	}
}
