//go:build linux

package serve

import (
	"os/exec"
	"testing"
	"time"
)

// TestPython_Killed kills a Python program and its helper.
func TestPython_Killed(t *testing.T) {
	v := &victim{start: func(ckpt, out string) *exec.Cmd {
		return startPython(t, "numpy", source(t, "testdata/killed.py"), source(t, "testdata/walk.py"), ckpt, "200", out)
	}}
	v.undisturbed(t)
	v.survive(t, []kill{
		{at: "committed#1", resumes: true},
		{at: "point#20"},
		{step: "commit.written#2=kill"},
	})
	v.survive(t, many(300, []string{"point", "committed"}, helperSteps, 500*time.Millisecond))
}
