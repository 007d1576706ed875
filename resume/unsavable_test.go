package resume_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/resume"
)

// TestUnsavable_ClosureExplained shows that the error of a checkpoint says why
// the compiler could not convert a closure.
func TestUnsavable_ClosureExplained(t *testing.T) {
	n := 1
	_, _, line, _ := runtime.Caller(0)
	v := []func() int{func() int { n++; return n }}
	resume.Unsavable("unsavable_test.go", line+1, "it captures a moonbeam")
	err := save(t, open(t, t.TempDir()), &v)
	if err == nil || !strings.Contains(err.Error(), "TestUnsavable_ClosureExplained") || !strings.Contains(err.Error(), "by a name: it captures a moonbeam") {
		t.Error(err)
	}
}
