package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/s3/s3test"
	"github.com/cairnrun/cairn/internal/tier/seal"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// versitygw is the version of the S3 server of the long tests. It is built from
// its module once, and is no dependency of Cairn's.
const versitygw = "v1.8.0"

// versity starts the server on an empty directory, and returns its endpoint.
func versity(t *testing.T) string {
	t.Helper()
	if os.Getenv("CAIRN_LONG") == "" {
		t.Skip("CAIRN_LONG is not set; 'make test-s3' runs it")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "cairn-test", "versitygw-"+versitygw)
	bin := filepath.Join(dir, "versitygw")
	if _, err := os.Stat(bin); err != nil {
		t.Log("building versitygw; this takes minutes")
		cmd := exec.Command("go", "install", "github.com/versity/versitygw/cmd/versitygw@"+versitygw)
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building versitygw: %v\n%s", err, out)
		}
	}
	root := t.TempDir()
	for _, name := range []string{"data/" + s3test.Bucket, "meta"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	port := freePort(t)
	cmd := exec.Command(bin, "--port", "127.0.0.1:"+port, "posix", "--sidecar", filepath.Join(root, "meta"), filepath.Join(root, "data"))
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s3test.AccessKey, "ROOT_SECRET_KEY="+s3test.SecretKey)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("versitygw: %s", log.Bytes())
		}
	})
	setenv(t, map[string]string{"AWS_ACCESS_KEY_ID": s3test.AccessKey, "AWS_SECRET_ACCESS_KEY": s3test.SecretKey})
	url := "http://127.0.0.1:" + port
	for { // until it listens
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("versitygw ended: %v\n%s", err, log.Bytes())
		case <-time.After(50 * time.Millisecond):
		}
		if resp, err := http.Get(url); err == nil {
			resp.Body.Close()
			return url
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

// TestVersity_Conformance checks the tier on a real server.
func TestVersity_Conformance(t *testing.T) {
	url := versity(t)
	const part = 5 << 20 // the smallest
	n := 0
	o := func() Options {
		return Options{URL: fmt.Sprintf("s3://%s/test-%d", s3test.Bucket, n), Endpoint: url, partSize: part}
	}
	run := func(t *testing.T, wrap func(tier.Tier) tier.Tier) {
		tiertest.Run(t, tiertest.Options{
			Open: func(t *testing.T) tier.Tier {
				n++
				return wrap(open(t, o()))
			},
			Reopen: func(t *testing.T, _ tier.Tier) tier.Tier { return wrap(open(t, o())) },
			Sizes:  []int{part - 1, part, part + 1, 3*part + 7},
		})
	}
	t.Run("plain", func(t *testing.T) { run(t, func(m tier.Tier) tier.Tier { return m }) })
	key, err := seal.CreateKey(t.TempDir() + "/key")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("encrypted", func(t *testing.T) { run(t, func(m tier.Tier) tier.Tier { return seal.New(m, key) }) })
	s, err := newStore(o())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.probe(t.Context()); err != nil || !s.crc {
		t.Errorf("checksums %v, %v", s.crc, err)
	}
}

// TestVersity_Checkpoints publishes, fetches and collects, and continues an
// upload that was interrupted.
func TestVersity_Checkpoints(t *testing.T) {
	url := versity(t)
	o := Options{URL: "s3://" + s3test.Bucket + "/sim", Endpoint: url, partSize: 5 << 20}
	m := open(t, o)
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 2)
	for range 5 {
		p.Publish(m, p.Save())
	}
	if _, err := tier.Collect(t.Context(), m, p.Run, tier.CollectOptions{Keep: 2}); err != nil {
		t.Fatal(err)
	}
	all, err := tier.Checkpoints(t.Context(), m, p.Run)
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	for _, mf := range all {
		p.Fetchable(m, mf)
	}
	want := tiertest.Pattern(1, 30<<20)
	ctx, cancel := context.WithCancel(t.Context())
	src := tier.BytesSource(want)
	src.ReaderAt = cancelAt{bytes.NewReader(want), 20 << 20, cancel}
	if err := m.Put(ctx, "large", src); !errors.Is(err, context.Canceled) {
		t.Fatalf("put: %v", err)
	}
	s, err := newStore(o)
	if err != nil {
		t.Fatal(err)
	}
	s.crc = true
	id, have, err := s.unfinished(t.Context(), "large", "sim/large")
	if err != nil || id == "" || len(have) == 0 {
		t.Fatalf("unfinished: %q, %d parts, %v", id, len(have), err)
	}
	t.Logf("%d of 6 parts are used again", len(have))
	if err := m.Put(t.Context(), "large", tier.BytesSource(want)); err != nil {
		t.Fatal(err)
	}
	if got := tiertest.Content(t, m, "large"); !bytes.Equal(got, want) {
		t.Error("other content")
	}
	if id, _, err = s.unfinished(t.Context(), "large", "sim/large"); err != nil || id != "" {
		t.Errorf("unfinished: %q, %v", id, err)
	}
}

// cancelAt cancels when a byte is read.
type cancelAt struct {
	*bytes.Reader
	at     int64
	cancel func()
}

func (c cancelAt) ReadAt(p []byte, off int64) (int, error) {
	if off >= c.at {
		c.cancel()
	}
	return c.Reader.ReadAt(p, off)
}

// TestVersity_Refuses shows errors of a real server.
func TestVersity_Refuses(t *testing.T) {
	url := versity(t)
	o := Options{URL: "s3://no-such-bucket/sim", Endpoint: url}
	if _, err := Open(t.Context(), o); err == nil || errors.Is(err, tier.ErrTemporary) {
		t.Errorf("no bucket: %v", err)
	}
	o.URL = "s3://" + s3test.Bucket
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong"+store.NewID())
	if _, err := Open(t.Context(), o); err == nil || errors.Is(err, tier.ErrTemporary) || !strings.Contains(err.Error(), "check the credentials") || hasSecret(err.Error()) {
		t.Errorf("wrong secret: %v", err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3test.SecretKey)
	s, err := newStore(o)
	if err != nil {
		t.Fatal(err)
	}
	// A damaged request is refused, and would be repeated.
	for _, crc := range []bool{true, false} {
		s.crc = crc
		sum := s.checksum([]byte("other"))
		po := minio.PutObjectOptions{UserMetadata: map[string]string{}}
		sum.addTo(&po)
		_, err := s.core.PutObject(t.Context(), s.bucket, "damaged", strings.NewReader("data!"), 5, sum.md5, "", po)
		if err = s.fail(t.Context(), "damaged", err); !errors.Is(err, tier.ErrTemporary) {
			t.Errorf("a wrong checksum (crc %v): %v", crc, err)
		}
	}
}
