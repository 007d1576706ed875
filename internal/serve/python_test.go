//go:build linux

package serve

import (
	"os/exec"
	"testing"
	"time"
)

// TestPython_Killed kills a Python program and its helper.
func TestPython_Killed(t *testing.T) {
	startPython(t, "numpy") // look for it once
	v := &victim{start: func(ckpt, out string) *exec.Cmd {
		cmd := start(t, python, source(t, "testdata/killed.py"), source(t, "testdata/walk.py"), ckpt, "200", out)
		cmd.Env = append(cmd.Env, pythonEnv(t)...)
		return cmd
	}}
	v.undisturbed(t)
	v.survive(t, []kill{
		{at: "committed#1", resumes: true},
		{at: "point#20"},
		{step: "commit.written#2=kill"},
	})
	v.surviveMany(t, 300, []string{"point", "committed"}, 500*time.Millisecond)
}
