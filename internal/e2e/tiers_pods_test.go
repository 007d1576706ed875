//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cairnrun/cairn/internal/tier/s3/s3test"
)

// pod is a run whose containers have blank disks: an object store is all that
// outlives them.
type pod struct {
	*wanderer
	job    *job // reaches the first process of the container
	env    []string
	server *s3test.Server
	slow   atomic.Bool // the object store takes nothing
}

// podSteps is how many steps the program has: more than its pods do.
const podSteps = 100

func newPod(t *testing.T, ranks int) *pod {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can make a container")
	}
	p := &pod{server: s3test.New()}
	t.Cleanup(p.server.Close)
	p.server.Fault = func(op, _ string) s3test.Fault {
		if p.slow.Load() && (op == "PutObject" || op == "UploadPart" || op == "CreateUpload") {
			return s3test.Hang
		}
		return s3test.None
	}
	limit := filepath.Join(t.TempDir(), "limit")
	p.wanderer = &wanderer{runOf: newRun(t, program(t, "wander"), "-size", "2000", "-steps", fmt.Sprint(podSteps), "-limit", limit), ranks: ranks, limit: limit}
	p.job = &job{runOf: p.runOf}
	text := example(t, "kubernetes-s3.yaml")
	if grace, given := setting(t, text, `^ *terminationGracePeriodSeconds: (\d+)$`), setting(t, text, `name: CAIRN_GRACE\n *value: "(\d+)"$`); given != grace {
		t.Errorf("CAIRN_GRACE is %s, terminationGracePeriodSeconds %s", given, grace)
	}
	disk := setting(t, text, `mountPath: (.*)$`)
	tiers := strings.NewReplacer(disk, p.root, "my-bucket", s3test.Bucket).Replace(setting(t, text, `name: CAIRN_TIERS\n *value: "(.*)"$`))
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		setting(t, text, "name: ("+name+")\n *valueFrom:\n *secretKeyRef:")
	}
	p.env = []string{"KUBERNETES_SERVICE_HOST=10.0.0.1", "CAIRN_JOB=5b1f", "AWS_ACCESS_KEY_ID=" + s3test.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s3test.SecretKey,
		"AWS_ENDPOINT_URL=" + p.server.URL, "AWS_REGION=us-east-1", "CAIRN_TIERS=" + tiers}
	return p
}

// starts starts the same command in a container with a blank disk.
func (p *pod) starts() {
	t := p.runOf.t
	t.Helper()
	left, err := os.ReadDir(p.root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if err := os.RemoveAll(filepath.Join(p.root, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	argv := []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", build(t, "./cmd/cairn", runtime.GOARCH), "run", "--run", p.run(), "-o", p.out(), "-n", fmt.Sprint(p.ranks), "--every", "1h", p.command[0], "--"}
	p.supervisor = begin(t, p.run(), p.env, append(argv, p.command[1:]...)...)
}

func (p *pod) signals(sig syscall.Signal) {
	p.runOf.t.Helper()
	if err := syscall.Kill(p.job.first(p.supervisor), sig); err != nil {
		p.runOf.t.Fatal(err)
	}
}

// TestKubernetes_BlankDisks ends containers as Kubernetes does, by SIGTERM and,
// when the grace time is over, SIGKILL. Each container has the same command and
// a blank disk. If the object store is too slow for the last checkpoint, an
// older one is restored, and nothing but work is lost.
func TestKubernetes_BlankDisks(t *testing.T) {
	t.Parallel()
	const n = 2
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000", "-steps", fmt.Sprint(podSteps))
	p := newPod(t, n)
	p.lets(4)
	p.starts()
	p.reachesStep(4)
	kinds := []string{"stop", "slow", "stop", "kill"}
	if stressed() {
		for range 10 {
			kinds = append(kinds, kinds[:4]...)
		}
	}
	step, there, index := 4, 0, 0 // steps; the checkpoint that the store has; the newest
	for _, kind := range kinds {
		switch kind {
		case "stop":
			p.signals(syscall.SIGTERM)
			p.awaits("interrupted: ranks are to save and stop, within 27 s (Kubernetes' default)")
			if code := p.ends(); code != exitStopped {
				t.Fatalf("exit status %d after SIGTERM:\n%s", code, p.text())
			}
			index++
			there = index
			must(t, p.text(), fmt.Sprintf("checkpoint %d is on s3=", there))
		case "slow":
			p.slow.Store(true)
			p.signals(syscall.SIGTERM)
			p.awaits("waiting for tiers to get the last checkpoint")
			p.signals(syscall.SIGKILL) // the grace time is over
			p.ends()
			p.slow.Store(false)
		case "kill": // the node is lost
			p.signals(syscall.SIGKILL)
			p.ends()
		}
		p.starts()
		p.awaits("the run on s3=s3://" + s3test.Bucket + "/sim")
		p.awaits(fmt.Sprintf("restored checkpoint %d", there))
		if strings.Contains(p.text(), "may still run") {
			t.Errorf("it waits for ranks of a container that has ended:\n%s", p.text())
		}
		step += 2
		p.goes(step)
	}
	for _, name := range []string{"run.json", "log"} {
		text, err := os.ReadFile(filepath.Join(p.run(), name))
		if err != nil || strings.Contains(string(text), s3test.SecretKey) {
			t.Errorf("%s has the secret key: %v", name, errors.Join(err))
		}
	}
	p.lets(podSteps)
	p.finishes()
	sameOutput(t, p.output(), want)
	p.leftAtEnd()
	// The node is lost before Kubernetes has seen the end.
	p.starts()
	p.finishes()
	must(t, p.text(), "the run has finished, at ", "nothing is computed")
	if strings.Contains(p.text(), "started") || strings.Contains(p.text(), "WARNING") {
		t.Errorf("a run that has finished is started again:\n%s", p.text())
	}
	sameOutput(t, p.output(), want)
	p.leftAtEnd()
	if !stressed() {
		return
	}
	// Another Job at the same place is another run.
	for i, v := range p.env {
		if v == "CAIRN_JOB=5b1f" {
			p.env[i] = "CAIRN_JOB=77aa"
		}
	}
	p.starts()
	p.awaits("this is another job, and a new run begins")
	p.finishes()
	sameOutput(t, p.output(), want)
	p.leftAtEnd()
}

// leftAtEnd checks that the object store has the end of the run, and nothing
// else of it.
func (p *pod) leftAtEnd() {
	p.runOf.t.Helper()
	keys, ends := p.server.Keys(), 0
	for _, key := range keys {
		if strings.Contains(key, "/claims/") || strings.Contains(key, ".h5") {
			p.runOf.t.Errorf("the finished run has left %s", key)
		}
		if strings.Contains(key, "/checkpoints/") {
			ends++
		}
	}
	if ends != 1 {
		p.runOf.t.Errorf("%d ends, not 1: %v", ends, keys)
	}
}
