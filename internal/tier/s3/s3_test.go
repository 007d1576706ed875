package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/s3/s3test"
	"github.com/cairnrun/cairn/internal/tier/seal"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
)

func init() { minio.DefaultRetryUnit = 1 } // it waits, though it does not repeat

// soon repeats at once.
var soon = tier.Retry{Tries: 6, First: 1, Max: 1}

const testPart = 64 << 10

// server starts a server, and lets the environment have its credentials and
// nothing else.
func server(t testing.TB) *s3test.Server {
	t.Helper()
	s := s3test.New()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	setenv(t, map[string]string{"AWS_ACCESS_KEY_ID": s3test.AccessKey, "AWS_SECRET_ACCESS_KEY": s3test.SecretKey})
	return s
}

func setenv(t testing.TB, vars map[string]string) {
	t.Helper()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
		"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_WEB_IDENTITY_TOKEN_FILE"} {
		t.Setenv(name, vars[name])
	}
	for name, value := range map[string]string{"AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "AWS_CONFIG_FILE": "/nonexistent", "AWS_EC2_METADATA_DISABLED": "true"} {
		if v, ok := vars[name]; ok {
			value = v
		}
		t.Setenv(name, value)
	}
}

func options(s *s3test.Server) Options {
	return Options{URL: "s3://" + s3test.Bucket + "/a/prefix", Endpoint: s.URL, Retry: soon, partSize: testPart}
}

func open(t testing.TB, o Options) tier.Tier {
	t.Helper()
	m, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestConformance checks the tier on stores with and without checksums.
func TestConformance(t *testing.T) {
	kinds := map[string]func(*s3test.Server, *Options){
		"as it should be": func(*s3test.Server, *Options) {},
		"no checksums":    func(s *s3test.Server, _ *Options) { s.IgnoreChecksums = true },
		"short lists":     func(s *s3test.Server, o *Options) { s.PageSize, o.URL = 3, "s3://"+s3test.Bucket },
	}
	for name, set := range kinds {
		t.Run(name, func(t *testing.T) {
			var o Options
			tiertest.Run(t, tiertest.Options{
				Open: func(t *testing.T) tier.Tier {
					s := server(t)
					o = options(s)
					set(s, &o)
					return open(t, o)
				},
				Reopen: func(t *testing.T, _ tier.Tier) tier.Tier { return open(t, o) },
				Sizes:  []int{testPart - 1, testPart, testPart + 1, 3 * testPart, 5*testPart + 7},
			})
		})
	}
	t.Run("encrypted", func(t *testing.T) {
		key, err := seal.CreateKey(t.TempDir() + "/key")
		if err != nil {
			t.Fatal(err)
		}
		tiertest.Run(t, tiertest.Options{
			Open:  func(t *testing.T) tier.Tier { return seal.New(open(t, options(server(t))), key) },
			Sizes: []int{testPart - 1, testPart, testPart + 1, 5*testPart + 7},
		})
	})
}

// faults sets which fault the n-th request of an operation has.
func faults(s *s3test.Server, f func(op string, n int) s3test.Fault) {
	var mu sync.Mutex
	counts := make(map[string]int)
	s.Fault = func(op, key string) s3test.Fault {
		mu.Lock()
		defer mu.Unlock()
		counts[op]++
		return f(op, counts[op])
	}
}

// TestRequests_FailOnce lets every kind of request fail once in every way, for
// each kind of operation: it is repeated, and the result is right.
func TestRequests_FailOnce(t *testing.T) {
	small, large := tiertest.Pattern(1, 1000), tiertest.Pattern(2, 5*testPart+7)
	for _, fault := range []s3test.Fault{s3test.Error500, s3test.Error500After, s3test.SlowDown, s3test.Reset, s3test.ResetAfter, s3test.Truncate, s3test.LosePart, s3test.Short, s3test.Flip} {
		for _, nth := range []int{1, 2} {
			t.Run(fmt.Sprint(fault, nth), func(t *testing.T) {
				s := server(t)
				m := open(t, options(s))
				ctx := t.Context()
				faults(s, func(op string, n int) s3test.Fault {
					if fault == s3test.Flip && op == "GetObject" {
						return s3test.None // nobody below a digest can notice that
					}
					if n == nth {
						return fault
					}
					return s3test.None
				})
				for name, data := range map[string][]byte{"small": small, "large": large} {
					if err := m.Put(ctx, name, tier.BytesSource(data)); err != nil {
						t.Fatalf("put %s: %v", name, err)
					}
				}
				if err := m.Create(ctx, "created", small); err != nil {
					t.Fatalf("create: %v", err)
				}
				for name, want := range map[string][]byte{"small": small, "large": large, "created": small} {
					r, err := m.Get(ctx, name, 0, -1)
					if err != nil {
						t.Fatalf("get %s: %v", name, err)
					}
					got, err := io.ReadAll(r)
					r.Close()
					if err != nil || !bytes.Equal(got, want) {
						t.Errorf("get %s: %d bytes, %v", name, len(got), err)
					}
				}
				if got := tiertest.All(t, m, ""); !slices.Equal(got, []string{"created", "large", "small"}) {
					t.Errorf("objects %v", got)
				}
				if err := m.Remove(ctx, "small"); err != nil {
					t.Error(err)
				}
				if err := m.Sweep(ctx, "", time.Now().Add(time.Hour)); err != nil {
					t.Error(err)
				}
				if left := s.Uploads(); len(left) > 0 {
					t.Errorf("unfinished uploads: %v", left)
				}
				if got := s.Keys(); !slices.Equal(got, []string{"a/prefix/created", "a/prefix/large"}) {
					t.Errorf("keys %v", got)
				}
			})
		}
	}
}

// TestRequests_AlwaysFail shows what a store that never recovers gives: a
// temporary error, soon.
func TestRequests_AlwaysFail(t *testing.T) {
	for fault, temporary := range map[s3test.Fault]bool{s3test.Error500: true, s3test.SlowDown: true, s3test.Reset: true, s3test.Deny: false} {
		s := server(t)
		m := open(t, options(s))
		s.Fault = func(op, key string) s3test.Fault { return fault }
		ctx := t.Context()
		errs := map[string]error{
			"put": m.Put(ctx, "a", tier.BytesSource([]byte("x"))), "large": m.Put(ctx, "b", tier.BytesSource(make([]byte, 3*testPart))),
			"create": m.Create(ctx, "c", []byte("x")), "remove": m.Remove(ctx, "a"), "sweep": m.Sweep(ctx, "", time.Now()),
		}
		_, errs["get"] = m.Get(ctx, "a", 0, 5)
		_, errs["stat"] = m.Stat(ctx, "a")
		for _, err := range m.List(ctx, "") {
			errs["list"] = err
		}
		for op, err := range errs {
			if err == nil || errors.Is(err, tier.ErrTemporary) != temporary || !strings.HasPrefix(err.Error(), "s3://bucket/a/prefix") {
				t.Errorf("fault %d: %s: %v", fault, op, err)
			}
		}
	}
}

// TestPut_Resumes interrupts the upload of parts, and continues it in another
// process: only what is missing is uploaded.
func TestPut_Resumes(t *testing.T) {
	for _, checksums := range []bool{true, false} {
		s := server(t)
		s.IgnoreChecksums = !checksums
		m := open(t, options(s))
		want := tiertest.Pattern(3, 10*testPart-5)
		ctx, cancel := context.WithCancel(t.Context())
		src := tier.BytesSource(want)
		faults(s, func(op string, n int) s3test.Fault {
			if op == "UploadPart" && n == 7 {
				cancel() // as a process that is killed
				return s3test.Reset
			}
			return s3test.None
		})
		if err := m.Put(ctx, "large", src); !errors.Is(err, context.Canceled) {
			t.Fatalf("put: %v", err)
		}
		if up := s.Uploads(); !slices.Equal(up, []string{"a/prefix/large"}) {
			t.Fatalf("unfinished uploads: %v", up)
		}
		s.Fault = nil
		before := s.Count("UploadPart")
		if err := open(t, options(s)).Put(t.Context(), "large", src); err != nil {
			t.Fatal(err)
		}
		if n := s.Count("UploadPart") - before; n < 1 || n > 7 {
			t.Errorf("%d parts were uploaded again", n)
		}
		if got := tiertest.Content(t, m, "large"); !bytes.Equal(got, want) {
			t.Error("other content")
		}
		if up := s.Uploads(); len(up) > 0 {
			t.Errorf("unfinished uploads: %v", up)
		}
		// Nothing is uploaded again.
		before = s.Count("UploadPart") + s.Count("PutObject")
		if err := m.Put(t.Context(), "large", src); err != nil || s.Count("UploadPart")+s.Count("PutObject") != before {
			t.Errorf("again: %v", err)
		}
	}
}

// TestPut_OtherUpload finds an unfinished upload of other content.
func TestPut_OtherUpload(t *testing.T) {
	for _, same := range []int{0, 1, 3} { // parts that are equal
		s := server(t)
		m := open(t, options(s))
		want := tiertest.Pattern(3, 5*testPart)
		other := tiertest.Pattern(4, 5*testPart)
		copy(other, want[:same*testPart])
		src := tier.BytesSource(other)
		faults(s, func(op string, n int) s3test.Fault {
			if op == "CompleteUpload" {
				return s3test.Deny
			}
			return s3test.None
		})
		if err := m.Put(t.Context(), "large", src); err == nil {
			t.Fatal("no error")
		}
		s.Fault = nil
		if err := m.Put(t.Context(), "large", tier.BytesSource(want)); err != nil {
			t.Fatal(err)
		}
		if got := tiertest.Content(t, m, "large"); !bytes.Equal(got, want) {
			t.Error("other content")
		}
		if err := m.Put(t.Context(), "large", tier.BytesSource(want)); err != nil {
			t.Errorf("the same again: %v", err)
		}
	}
}

// TestPut_WithoutMetadata compares content, where the store has lost the
// metadata.
func TestPut_WithoutMetadata(t *testing.T) {
	s := server(t)
	m := open(t, options(s))
	want := tiertest.Pattern(3, 2*testPart)
	if err := m.Put(t.Context(), "a", tier.BytesSource(want)); err != nil {
		t.Fatal(err)
	}
	s.ForgetMetadata("a/prefix/a")
	if err := m.Put(t.Context(), "a", tier.BytesSource(want)); err != nil {
		t.Errorf("equal: %v", err)
	}
	if err := m.Put(t.Context(), "a", tier.BytesSource(tiertest.Pattern(4, 2*testPart))); !errors.Is(err, tier.ErrExists) {
		t.Errorf("different: %v", err)
	}
}

// TestMemory_LargeObjectsAtOnce shows that many large objects at once take no
// more than Parallel buffers.
func TestMemory_LargeObjectsAtOnce(t *testing.T) {
	s := server(t)
	o := options(s)
	o.Parallel = 2
	m := open(t, o)
	var mu sync.Mutex
	now, most := 0, 0
	s.Fault = func(op, key string) s3test.Fault {
		if op == "UploadPart" {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			defer func() { mu.Lock(); now--; mu.Unlock() }()
			time.Sleep(time.Millisecond) // longer is only a better test
		}
		return s3test.None
	}
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			if err := m.Put(t.Context(), fmt.Sprint("o", i), tier.BytesSource(tiertest.Pattern(uint64(i), 4*testPart))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if most > 2 {
		t.Errorf("%d parts at a time", most)
	}
}

// TestOpen_ConditionsIgnored shows what Open does with a store that ignores
// conditions.
func TestOpen_ConditionsIgnored(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		s := server(t)
		s.IgnoreConditions, s.RefuseConditions = !refuse, refuse
		o := options(s)
		if _, err := Open(t.Context(), o); !errors.Is(err, ErrConditions) || !strings.Contains(err.Error(), "use another store") {
			t.Errorf("open: %v", err)
		}
		if keys := s.Keys(); len(keys) > 0 {
			t.Errorf("left: %v", keys)
		}
	}
	s := server(t)
	m := open(t, options(s))
	if keys := s.Keys(); len(keys) > 0 {
		t.Errorf("left: %v", keys)
	}
	if s.Count("PutObject") != 3 {
		t.Errorf("%d requests", s.Count("PutObject"))
	}
	if err := m.Create(t.Context(), "a", []byte("1")); err != nil {
		t.Error(err)
	}
}

// TestReadOnly shows that a tier that was opened for reading sends no request
// that writes.
func TestReadOnly(t *testing.T) {
	s := server(t)
	o := options(s)
	if err := open(t, o).Create(t.Context(), "a", []byte("1")); err != nil {
		t.Fatal(err)
	}
	before := s.Count("PutObject") + s.Count("DeleteObject")
	o.ReadOnly = true
	m := open(t, o)
	if got := tiertest.Content(t, m, "a"); string(got) != "1" {
		t.Errorf("%q", got)
	}
	for _, err := range []error{m.Create(t.Context(), "b", nil), m.Put(t.Context(), "b", tier.BytesSource(nil)), m.Remove(t.Context(), "a")} {
		if err == nil || !strings.Contains(err.Error(), "read only") {
			t.Errorf("%v", err)
		}
	}
	if s.Count("PutObject")+s.Count("DeleteObject") != before {
		t.Error("something was written")
	}
}

// TestOpen_FailsOften opens stores that fail at every second or third request,
// and finds out what they can do all the same.
func TestOpen_FailsOften(t *testing.T) {
	for _, fault := range []s3test.Fault{s3test.Reset, s3test.ResetAfter, s3test.Error500, s3test.Error500After} {
		for k := range 12 {
			every, checksums := int64(2+k%3), k < 6
			s := server(t)
			s.IgnoreChecksums = !checksums
			calls := int64(k / 3)
			s.Fault = func(op, _ string) s3test.Fault {
				if atomic.AddInt64(&calls, 1)%every == 0 {
					return fault
				}
				return s3test.None
			}
			o := options(s)
			m, err := newStore(o)
			if err != nil {
				t.Fatal(err)
			}
			m.retry = o.Retry
			if err := m.probe(t.Context()); err != nil || m.crc != checksums {
				t.Errorf("fault %d at each request of %d, the store compares checksums: %t: checksums %t, %v", fault, every, checksums, m.crc, err)
			}
		}
	}
}

// TestOpen_Refuses checks the messages for wrong URLs, endpoints and stores.
func TestOpen_Refuses(t *testing.T) {
	s := server(t)
	for _, c := range []struct{ url, endpoint, want string }{
		{"http://bucket/x", s.URL, "must be s3://BUCKET"},
		{"s3:///x", s.URL, "must be s3://BUCKET"},
		{"s3://user:secret@bucket/x", s.URL, "must be s3://BUCKET"},
		{"s3://bucket/x?key=1", s.URL, "must be s3://BUCKET"},
		{"s3://bucket/a b", s.URL, "no name"},
		{"s3://bucket/../x", s.URL, "no name"},
		{"s3://bucket", "localhost:9000", "endpoint must be"},
		{"s3://bucket", "https://key:secret@host", "endpoint must be"},
		{"s3://bucket", "https://host/path", "endpoint must be"},
		{"s3://other-bucket", s.URL, "no such bucket"},
	} {
		o := options(s)
		o.URL, o.Endpoint = c.url, c.endpoint
		_, err := Open(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, tier.ErrTemporary) {
			t.Errorf("%s at %s: %v", c.url, c.endpoint, err)
		}
		if c.endpoint != s.URL && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error has what was in the URL: %v", err)
		}
	}
}

// TestConnection_MovesNothing shows that a connection that moves nothing fails,
// and one that moves slowly does not.
func TestConnection_MovesNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peers := make(chan net.Conn, 2)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			peers <- c
		}
	}()
	dial := stalling((&net.Dialer{}).DialContext, 50*time.Millisecond)
	c, err := dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	peer := <-peers
	defer peer.Close()
	var timeout net.Error
	if _, err := c.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("read: %v", err)
	}
	for { // until all buffers are full
		if _, err := c.Write(make([]byte, 1<<20)); err != nil {
			if !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Errorf("write: %v", err)
			}
			break
		}
	}
	// While a write moves, a read may wait longer.
	dial = stalling((&net.Dialer{}).DialContext, time.Minute)
	if c, err = dial(t.Context(), "tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	peer = <-peers
	defer peer.Close()
	go func() {
		io.CopyN(io.Discard, peer, 1<<20)
		peer.Write([]byte("x"))
	}()
	got := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		got <- err
	}()
	if _, err := c.Write(make([]byte, 1<<20)); err != nil {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}
