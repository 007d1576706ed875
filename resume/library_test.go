package resume_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"hash"
	"hash/crc32"
	"io"
	"log"
	"log/slog"
	"math/big"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/scanner"
	"text/tabwriter"
	"text/template"
	"time"
)

// holder holds values of the standard library as programs do.
type holder struct {
	scanner *bufio.Scanner
	words   *bufio.Scanner
	in      *bufio.Reader
	out     *bufio.Writer
	logger  *log.Logger
	slog    *slog.Logger
	random  *rand.Rand
	mu      sync.Mutex
	rw      *sync.RWMutex
	wg      sync.WaitGroup
	once    sync.Once
	m       sync.Map
	n       atomic.Int64
	on      atomic.Bool
	val     atomic.Value
	ptr     atomic.Pointer[env]
	ctx     context.Context
	todo    context.Context
	zone    *time.Location
	when    time.Time
	re      *regexp.Regexp
	b       strings.Builder
	buf     *bytes.Buffer
	big     *big.Int
	pool    *sync.Pool
	dec     *json.Decoder
	enc     *json.Encoder
	tab     *tabwriter.Writer
	rep     *strings.Replacer
	multi   io.Writer
	limit   io.Reader
	tee     io.Reader
	discard io.Writer
	eof     error
}

// TestStandardLibrary saves and restores values of the standard library, with
// their files.
func TestStandardLibrary(t *testing.T) {
	tmp, dir := t.TempDir(), t.TempDir()
	name := filepath.Join(tmp, "in")
	if err := os.WriteFile(name, []byte("one two\nthree four\nfive six\n"+strings.Repeat("x y\n", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := open(t, dir)
	file := func(name string, flag int) *os.File {
		f, err := p.OpenFile(name, flag, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	in := func() *os.File { return file(name, os.O_RDONLY) }
	out := file(filepath.Join(tmp, "out"), os.O_CREATE|os.O_WRONLY)
	v := &holder{
		scanner: bufio.NewScanner(in()), words: bufio.NewScanner(in()), in: bufio.NewReader(in()), out: bufio.NewWriter(out),
		logger: log.New(out, "p: ", log.Lmsgprefix), random: rand.New(rand.NewSource(5)), rw: new(sync.RWMutex),
		ctx: context.Background(), todo: context.TODO(), zone: time.Local, when: time.Now(), re: regexp.MustCompile(`(\w+) two`),
		buf: bytes.NewBufferString("buffered"), big: new(big.Int).Lsh(big.NewInt(3), 200),
		pool: &sync.Pool{New: func() any { return 77 }},
		dec:  json.NewDecoder(strings.NewReader(`{"a":1} {"a":2} [3`)), tab: tabwriter.NewWriter(out, 0, 8, 1, ' ', 0),
		rep: strings.NewReplacer("a", "b", "c", "d"), limit: io.LimitReader(strings.NewReader("limited"), 3), discard: io.Discard, eof: io.EOF,
	}
	v.enc = json.NewEncoder(out)
	v.enc.SetIndent("", " ")
	v.multi = io.MultiWriter(out, v.buf)
	v.tee = io.TeeReader(v.limit, v.buf)
	v.slog = slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn})).With("a", 1)
	v.words.Split(bufio.ScanWords)
	v.scanner.Scan()
	v.words.Scan()
	v.words.Scan()
	v.in.ReadString('\n')
	v.out.WriteString("pending ")
	v.random.Int()
	v.wg.Go(func() {})
	v.wg.Wait()
	v.once.Do(func() {})
	v.m.Store("k", v.ctx)
	v.n.Store(4)
	v.on.Store(true)
	v.val.Store([]int{1})
	v.ptr.Store(&env{1, 2})
	v.b.WriteString("built ")
	v.rep.Replace("abc")
	var m map[string]int
	if err := v.dec.Decode(&m); err != nil {
		t.Fatal(err)
	}
	next := v.random.Int63()
	v.random = rand.New(rand.NewSource(5))
	v.random.Int()
	if err := save(t, p, v); err != nil {
		t.Fatal(err)
	}
	p.Close()
	q := open(t, dir)
	w, err := load[holder](t, q)
	if err != nil {
		t.Fatal(err)
	}
	if !w.scanner.Scan() || w.scanner.Text() != "three four" || !w.words.Scan() || w.words.Text() != "three" {
		t.Error("scanners")
	}
	lines := 0
	for w.scanner.Scan() {
		lines++
	}
	if lines != 5001 || w.scanner.Err() != nil {
		t.Error("the scanner read", lines, w.scanner.Err())
	}
	if s, _ := w.in.ReadString('\n'); s != "three four\n" {
		t.Error(s)
	}
	w.out.WriteString("text\n")
	w.out.Flush()
	w.logger.Print("logged")
	w.slog.Info("not")
	w.slog.Warn("warned", "b", 2)
	w.enc.Encode(m)
	w.multi.Write([]byte("multi\n"))
	w.tab.Write([]byte("a\tb\n"))
	w.tab.Flush()
	text, err := os.ReadFile(filepath.Join(tmp, "out"))
	if want := "pending text\np: logged\ntime="; err != nil || !strings.HasPrefix(string(text), want) || !strings.HasSuffix(string(text), " level=WARN msg=warned a=1 b=2\n{\n \"a\": 1\n}\nmulti\na b\n") {
		t.Errorf("%q, want %q…: %v", text, want, err)
	}
	if w.random.Int63() != next {
		t.Error("random numbers differ")
	}
	w.mu.Lock()
	w.rw.Lock()
	w.wg.Wait()
	w.once.Do(func() { t.Error("once more") })
	if c, _ := w.m.Load("k"); c != context.Background() || w.ctx != context.Background() || w.todo != context.TODO() {
		t.Error("contexts")
	}
	if w.n.Load() != 4 || !w.on.Load() || w.val.Load().([]int)[0] != 1 || w.ptr.Load().step != 2 {
		t.Error("atomics")
	}
	if w.zone != time.Local || !w.when.Equal(v.when) || w.when.Location() != time.Local {
		t.Error("times")
	}
	if w.re.FindStringSubmatch("one two")[1] != "one" || w.big.Cmp(v.big) != 0 || w.pool.Get() != 77 || w.rep.Replace("abc") != "bbd" {
		t.Error("regexp, numbers, pool or replacer")
	}
	w.b.WriteString("on")
	if w.b.String() != "built on" || w.buf.String() != "bufferedmulti\n" {
		t.Error(w.b.String(), w.buf.String())
	}
	if err := w.dec.Decode(&m); err != nil || m["a"] != 2 {
		t.Error(m, err)
	}
	if s, _ := io.ReadAll(w.tee); string(s) != "lim" || !strings.HasSuffix(w.buf.String(), "lim") {
		t.Error("tee", string(s))
	}
	if w.discard != io.Discard || w.eof != io.EOF {
		t.Error("identities")
	}
}

// TestStandardLibrary_Refused shows that values which cannot be saved are
// named, with the path to them.
func TestStandardLibrary_Refused(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for _, c := range []struct {
		v    any
		want string
	}{
		{template.Must(template.New("x").Funcs(template.FuncMap{"f": strings.ToUpper}).Parse("{{f .}}")), "it is bound to its process"},
		{ctx, "it is a context"},
		{new(time.Timer), "it is a timer"},
		{os.Stdin, ""},
		{reflect.TypeOf(1), ""}, // by its name
	} {
		err := save(t, open(t, t.TempDir()), &c.v)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%T: %v", c.v, err)
		}
	}
}

// TestStandardLibrary_HeldLocks shows that locks which the only goroutine holds
// are held again.
func TestStandardLibrary_HeldLocks(t *testing.T) {
	type state struct {
		mu, free sync.Mutex
		rw, r    *sync.RWMutex
		wg       sync.WaitGroup
	}
	v := &state{rw: new(sync.RWMutex), r: new(sync.RWMutex)}
	v.mu.Lock()
	v.rw.Lock()
	v.r.RLock()
	v.wg.Add(2)
	w := saveAndLoad(t, v)
	if w.mu.TryLock() || !w.free.TryLock() || w.rw.TryRLock() || w.r.TryLock() || !w.r.TryRLock() {
		t.Error("the locks are not held")
	}
	w.mu.Unlock()
	w.rw.Unlock()
	w.wg.Done()
	w.wg.Done()
	w.wg.Wait()
	if !w.mu.TryLock() || !w.rw.TryLock() {
		t.Error("the locks are not free")
	}
}

type ctxKey struct{}

// TestContexts_CanceledAfterRestart shows that contexts can be canceled after a
// restart.
func TestContexts_CanceledAfterRestart(t *testing.T) {
	type state struct {
		root, child, val, out context.Context
		cancel                context.CancelFunc
		because               context.CancelCauseFunc
		done                  <-chan struct{}
		gone                  context.Context
	}
	v := new(state)
	v.root, v.cancel = context.WithCancel(context.Background())
	v.val = context.WithValue(v.root, ctxKey{}, "value")
	v.child, v.because = context.WithCancelCause(v.val)
	v.out = context.WithoutCancel(v.child)
	v.done = v.child.Done()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	v.gone = gone
	w := saveAndLoad(t, v)
	if w.root.Err() != nil || w.child.Value(ctxKey{}) != "value" || w.child.Done() != w.done || w.gone.Err() != context.Canceled {
		t.Error("contexts differ")
	}
	later, stop := context.WithCancel(w.child)
	defer stop()
	w.because(io.EOF)
	if <-w.done; context.Cause(w.child) != io.EOF || w.root.Err() != nil || later.Err() != context.Canceled || w.out.Err() != nil {
		t.Error("the child is not canceled, or more than it")
	}
	w.cancel()
	if <-w.root.Done(); w.val.Err() != context.Canceled || w.out.Value(ctxKey{}) != "value" {
		t.Error("the root is not canceled")
	}
	if v.root.Err() != nil {
		t.Error("the original is canceled")
	}
}

// TestStandardLibrary_Streams shows that readers and writers of formats
// continue in the middle.
func TestStandardLibrary_Streams(t *testing.T) {
	type state struct {
		file *bytes.Buffer
		gzw  *gzip.Writer
		gzr  *gzip.Reader
		csvr *csv.Reader
		csvw *csv.Writer
		tarw *tar.Writer
		xmlr *xml.Decoder
		scan scanner.Scanner
		sum  hash.Hash
		md5  hash.Hash
		crc  hash.Hash32
		text *bytes.Buffer
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(bytes.Repeat([]byte("0123456789"), 10000))
	z.Close()
	v := &state{file: new(bytes.Buffer), text: new(bytes.Buffer), sum: sha256.New(), md5: md5.New(), crc: crc32.NewIEEE()}
	v.gzw = gzip.NewWriter(v.file)
	v.gzr, _ = gzip.NewReader(&packed)
	v.csvr = csv.NewReader(strings.NewReader("a,b\nc,d\ne,f\n"))
	v.csvw = csv.NewWriter(v.text)
	v.tarw = tar.NewWriter(v.text)
	v.xmlr = xml.NewDecoder(strings.NewReader("<a><b>x</b><b>y</b></a>"))
	v.scan.Init(strings.NewReader("one + two * 3"))
	step := func(v *state) (found []any) {
		v.gzw.Write(bytes.Repeat([]byte("some text "), 5000))
		buf := make([]byte, 12345)
		n, err := io.ReadFull(v.gzr, buf)
		found = append(found, n, err, string(buf[:20]), string(buf[n-20:n]))
		row, err := v.csvr.Read()
		found = append(found, row, err)
		v.csvw.Write([]string{"x", "y z"})
		v.tarw.WriteHeader(&tar.Header{Name: "n", Size: 3})
		v.tarw.Write([]byte("abc"))
		token, err := v.xmlr.Token()
		found = append(found, xml.CopyToken(token), err, v.scan.Scan(), v.scan.TokenText())
		for _, h := range []hash.Hash{v.sum, v.md5, v.crc} {
			h.Write([]byte("more"))
			found = append(found, h.Sum(nil))
		}
		return found
	}
	step(v)
	w := saveAndLoad(t, v)
	for range 2 {
		if a, b := step(v), step(w); !reflect.DeepEqual(a, b) {
			t.Errorf("%v\nwant\n%v", b, a)
		}
	}
	for _, s := range []*state{v, w} {
		s.gzw.Close()
		s.csvw.Flush()
		s.tarw.Close()
	}
	if !bytes.Equal(v.file.Bytes(), w.file.Bytes()) || !bytes.Equal(v.text.Bytes(), w.text.Bytes()) {
		t.Error("what was written differs")
	}
}
