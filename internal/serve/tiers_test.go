//go:build linux

package serve

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestC_Tiers kills a C program that keeps its checkpoints on a tier, and loses
// what is on its host. It resumes from the tier.
func TestC_Tiers(t *testing.T) {
	top := t.TempDir()
	ckpt, shared := filepath.Join(top, "plain.cairn"), filepath.Join(top, "gpfs")
	if err := os.Mkdir(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	want, err := program(t, "plain", filepath.Join(top, "other"), "60", "20000", "5").Output()
	if err != nil {
		t.Fatal(err)
	}
	start := func(env ...string) (out, log string, code int) {
		cmd := program(t, "plain", ckpt, "60", "20000", "5")
		cmd.Env = append(append(cmd.Env, "CAIRN_TIERS=shared="+shared+":every=1"), env...)
		var text, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &text, &stderr
		cmd.Run()
		return text.String(), stderr.String(), cmd.ProcessState.ExitCode()
	}
	if _, log, code := start("KILL_AT=point#23=15", "KILL_WAIT=1"); code != 9 { // SIGTERM: it saves and stops
		t.Fatalf("exit code %d after SIGTERM: %s", code, log)
	}
	log, _ := os.ReadFile(filepath.Join(ckpt, "log"))
	if !strings.Contains(string(log), " is on shared="+shared) {
		t.Fatalf("the tier has no checkpoint:\n%s", log)
	}
	if _, log, _ := start("KILL_AT=point#9"); !strings.Contains(log, "restored at step 22") {
		t.Errorf("it did not resume: %s", log)
	}
	if err := os.RemoveAll(ckpt); err != nil {
		t.Fatal(err)
	}
	out, text, code := start()
	if code != 0 || out != string(want) || !strings.Contains(text, "restored at step ") {
		t.Errorf("exit code %d, %q instead of %q: %s", code, out, want, text)
	}
	if err := os.RemoveAll(ckpt); err != nil { // the tier has the end of the run
		t.Fatal(err)
	}
	if out, text, code := start(); code == 0 || out != "" || !strings.Contains(text, "finished") {
		t.Errorf("started again when it has finished: exit code %d, %q: %s", code, out, text)
	}
}
