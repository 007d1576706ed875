package migrate

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/ckpt/ckpttest"
)

// tape is a connection that replays a recorded stream. It keeps what is
// written.
type tape struct {
	in  io.Reader
	out bytes.Buffer
	mu  sync.Mutex
}

func (c *tape) Read(p []byte) (int, error) { return c.in.Read(p) }
func (c *tape) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Write(p)
}
func (c *tape) Close() error                     { return nil }
func (c *tape) LocalAddr() net.Addr              { return nil }
func (c *tape) RemoteAddr() net.Addr             { return nil }
func (c *tape) SetDeadline(time.Time) error      { return nil }
func (c *tape) SetReadDeadline(time.Time) error  { return nil }
func (c *tape) SetWriteDeadline(time.Time) error { return nil }

// listener records what goes through a connection.
type listener struct {
	net.Conn
	mu   sync.Mutex
	sent []byte
}

func (r *listener) Write(p []byte) (int, error) {
	r.mu.Lock()
	r.sent = append(r.sent, p...)
	r.mu.Unlock()
	return r.Conn.Write(p)
}

// recordMigration returns the stream of a migration of v, with these changes
// between precopy rounds.
func recordMigration(t testing.TB, o Options, v *ckpttest.Values, changes ...func()) []byte {
	t.Helper()
	a, b := net.Pipe()
	c := &listener{Conn: a}
	g := NewSource(c, o)
	defer g.Close()
	w := new(ckpttest.Values)
	done := receive(b, o, fit(w.Roots()))
	for _, change := range changes {
		if err := g.Precopy(collect(t, v.Roots())); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		change()
	}
	if _, err := g.Finish(ctx, collect(t, v.Roots()), nil, ckpt.Note{Points: 3}, []byte("more")); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.err != nil || !reflect.DeepEqual(v, w) {
		t.Fatal(r.err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.sent)
}

// replay lets a destination receive a recorded stream.
func replay(stream []byte, o Options) (*ckpttest.Values, error) {
	v := new(ckpttest.Values)
	_, err := Receive(ctx, &tape{in: bytes.NewReader(stream)}, o, fit(v.Roots()))
	return v, err
}

// streams returns small migrations of several kinds.
func streams(t testing.TB) map[string][]byte {
	out := make(map[string][]byte)
	out["at once"] = recordMigration(t, Options{}, ckpttest.Sample(40))
	v := ckpttest.Sample(40)
	out["in rounds"] = recordMigration(t, Options{}, v, func() { v.Grid[1]++ }, func() { v.Grid = append(v.Grid, 5) })
	return out
}

// TestReceive_Damage flips a bit of every byte of a stream, one at a time, and
// truncates the stream at many lengths. The destination refuses all of them.
func TestReceive_Damage(t *testing.T) {
	for name, stream := range streams(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o Options
			if _, err := replay(stream, o); err != nil {
				t.Fatal(err)
			}
			step := 31
			switch long := os.Getenv("CAIRN_LONG") != ""; {
			case long && name == "at once":
				step = 1
			case long || name == "at once":
				step = 5
			}
			for i := 0; i < len(stream); i += step {
				bad := bytes.Clone(stream)
				bad[i] ^= 1 << (i % 8)
				if _, err := replay(bad, o); !errors.Is(err, ckpt.ErrCorrupt) && !(i < len(preface) && errors.Is(err, ckpt.ErrFormat)) {
					t.Fatalf("byte %d of %d flipped: %v", i, len(stream), err)
				}
				if i%3 > 0 && i > 300 {
					continue
				}
				if _, err := replay(stream[:i], o); !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatalf("cut at %d of %d: %v", i, len(stream), err)
				}
			}
		})
	}
}

// frame is a frame of a recorded stream, with the raw bytes after it.
type frame struct {
	kind    uint32
	payload []byte
	raw     []byte
}

// frames divides a stream into frames. Raw bytes are those that do not begin a
// frame.
func frames(stream []byte) (out []frame) {
	p := stream[len(preface):]
	for len(p) >= frameBytes {
		h, err := decodeFrame(p)
		if err != nil {
			last := &out[len(out)-1]
			last.raw = append(last.raw, p[0])
			p = p[1:]
			continue
		}
		out = append(out, frame{h.kind, p[frameBytes : frameBytes+h.size], nil})
		p = p[frameBytes+h.size:]
	}
	if len(p) > 0 {
		out[len(out)-1].raw = append(out[len(out)-1].raw, p...)
	}
	return out
}

// splice joins frames, with matching digests.
func splice(list []frame) []byte {
	out := bytes.Clone(preface)
	for i, f := range list {
		h := frameHeader{kind: f.kind, number: uint32(i), size: len(f.payload), digest: xxh3.Hash128(f.payload)}
		out = append(append(append(out, h.encode()...), f.payload...), f.raw...)
	}
	return out
}

// fixDigests gives heads the digests of the sections that follow them.
func fixDigests(list []frame) {
	for i := range list {
		var h headFrame
		if list[i].kind != frameHead || json.Unmarshal(list[i].payload, &h) != nil {
			continue
		}
		part := i + 1
		for k := range h.Sections {
			s := &h.Sections[k]
			if s.Same || s.Size == 0 || part >= len(list) || list[part].kind != framePart {
				continue
			}
			s.Size, s.Digest = int64(len(list[part].payload)), ckpt.DigestText(list[part].payload)
			part++
		}
		list[i].payload, _ = json.Marshal(h)
	}
}

// TestReceive_WrongFrames drops, repeats and swaps whole frames, and changes
// their kinds. Each frame is valid by itself.
func TestReceive_WrongFrames(t *testing.T) {
	all := streams(t)
	for _, name := range []string{"at once", "in rounds"} {
		list := frames(all[name])
		if got, err := replay(splice(list), Options{}); err != nil || got.Step != 7 {
			t.Fatal(err)
		}
		want, _ := replay(all[name], Options{})
		tried, refused := 0, 0
		try := func(what string, i int, list []frame) {
			t.Helper()
			got, err := replay(splice(list), Options{})
			if tried++; err != nil {
				refused++
			} else if !reflect.DeepEqual(got, want) { // a block that comes again later may be missing
				t.Errorf("%s: frame %d of %d (kind %d) %s, and nobody minds", name, i, len(list), list[min(i, len(list)-1)].kind, what)
			}
		}
		cut := func(i int) []frame { return append(append([]frame(nil), list[:i]...), list[i+1:]...) }
		for i, f := range list {
			try("is missing", i, cut(i))
			try("comes twice", i, append(append([]frame(nil), list[:i+1]...), list[i:]...))
			if i > 0 && !reflect.DeepEqual(list[i-1], f) {
				l := append([]frame(nil), list...)
				l[i-1], l[i] = l[i], l[i-1]
				if f.kind != frameBlocks || list[i-1].kind != frameBlocks {
					try("comes too early", i, l)
				}
			}
			for _, kind := range []uint32{0, frameHello, frameHead, framePart, frameBlocks, frameFile, frameData, frameEnd, frameFail, frameKept, frameConfirm, 99} {
				if kind != f.kind {
					l := append([]frame(nil), list...)
					l[i].kind = kind
					try("has another kind", i, l)
				}
			}
		}
		if refused < tried*95/100 {
			t.Errorf("%s: of %d wrong streams %d were refused", name, tried, refused)
		}
	}
	// A stream of another version, and something that is no stream.
	stream := bytes.Clone(all["at once"])
	binary.LittleEndian.PutUint32(stream[12:], version+1)
	if _, err := replay(stream, Options{}); !errors.Is(err, ckpt.ErrFormat) || !strings.Contains(err.Error(), "both hosts need the same version") {
		t.Error(err)
	}
	if _, err := replay([]byte(strings.Repeat("GET / HTTP/1.1\r\n", 9)), Options{}); !errors.Is(err, ckpt.ErrCorrupt) {
		t.Error(err)
	}
}

// FuzzReceive receives hostile streams: the digests of frames are right, but
// their content is not. There must be no panic, no hang and no excessive
// memory.
func FuzzReceive(f *testing.F) {
	var seeds [][]frame
	for _, name := range []string{"at once", "in rounds"} {
		list := frames(streams(f)[name])
		seeds = append(seeds, list)
		for i, fr := range list {
			f.Add(uint8(len(seeds)-1), uint8(i), fr.payload, fr.raw)
		}
	}
	huge := []byte(`{"last":true,"sections":[{"size":9000000000000000000,"digest":""}]}`)
	f.Add(uint8(0), uint8(1), huge, []byte{})
	for i, fr := range seeds[0] { // a dataset that claims more than there is
		if fr.kind == framePart && bytes.Contains(fr.payload, []byte(`"block"`)) {
			for _, c := range [][2]string{{`"size":`, `"size":9`}, {`"block":`, `"block":9999999`}, {`"dims":[`, `"dims":[999999999999,`}, {`"pool":`, `"pool":9`}, {`"block":`, `"block":-`}} {
				f.Add(uint8(0), uint8(i), bytes.Replace(fr.payload, []byte(c[0]), []byte(c[1]), 1), []byte{})
			}
		}
	}
	f.Fuzz(func(t *testing.T, which, at uint8, payload, raw []byte) {
		list := append([]frame(nil), seeds[int(which)%len(seeds)]...)
		fr := &list[int(at)%len(list)]
		if len(payload) > maxPayload {
			t.Skip()
		}
		fr.payload, fr.raw = payload, raw
		if fr.kind != frameHead {
			fixDigests(list)
		}
		replay(splice(list), Options{})
	})
}

// flipper flips a byte of what is read.
type flipper struct {
	net.Conn
	at  int64
	got int64
}

func (f *flipper) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if i := f.at - f.got; i >= 0 && i < int64(n) {
		p[i] ^= 4
	}
	f.got += int64(n)
	return n, err
}

// TestFinish_ConfirmationDamaged flips every byte that the destination sends:
// the source does not accept the confirmation.
func TestFinish_ConfirmationDamaged(t *testing.T) {
	v := ckpttest.Sample(40)
	for at := int64(0); ; at++ {
		a, b := net.Pipe()
		c := &flipper{Conn: a, at: at}
		g := NewSource(c, Options{})
		done := receive(b, Options{}, fit(new(ckpttest.Values).Roots()))
		_, err := g.Finish(ctx, collect(t, v.Roots()), nil, ckpt.Note{}, nil)
		r := <-done
		g.Close()
		if at >= c.got {
			if err != nil || r.err != nil || at < frameBytes {
				t.Fatal(at, err, r.err)
			}
			return
		}
		if !errors.Is(err, ckpt.ErrCorrupt) {
			t.Fatalf("byte %d of the word flipped: %v", at, err)
		}
	}
}

// TestMigrate_Files also sends the contents of files.
func TestMigrate_Files(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	content := func(n int) []byte { return bytes.Repeat([]byte("0123456789abcdef\n"), n/17+1)[:n] }
	write := func(path string, p []byte) {
		if err := os.WriteFile(path, p, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(here+"/long", content(3<<20+5))
	write(here+"/changed", content(2<<20))
	write(here+"/same", content(2<<20))
	write(here+"/shorter", content(1000))
	write(here+"/empty", nil)
	other := content(2 << 20)
	other[1<<20+7] ^= 1
	write(there+"/changed", other)
	write(there+"/same", content(2<<20))
	write(there+"/shorter", content(5000))
	t.Chdir(there)
	open, err := os.OpenFile("changed", os.O_RDWR, 0) // as a program does before it restores
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	old := time.Unix(1e9, 0)
	if err := os.Chtimes("same", old, old); err != nil {
		t.Fatal(err)
	}
	var files []ckpt.FileEntry
	for i, f := range []struct {
		name string
		size int64
	}{{"long", 3<<20 + 5}, {"changed", 2 << 20}, {"same", 2 << 20}, {"shorter", 1000}, {"empty", 0}, {"sub/../long", 3<<20 + 5}} {
		abs := here + "/" + f.name
		if i == 5 {
			f.name, abs = "long", here+"/long"
		}
		if i == 4 {
			f.name = "new/dir/empty"
		}
		files = append(files, ckpt.FileEntry{ID: i, Path: f.name, Abs: abs, Mode: "rw", Perm: 0o640, Size: f.size})
	}
	for _, name := range []string{"new", "again"} {
		t.Run(name, func(t *testing.T) {
			a, b := tcpPair(t)
			o := Options{Files: true}
			g := NewSource(a, o)
			defer g.Close()
			v, w := ckpttest.Sample(100), new(ckpttest.Values)
			done := receive(b, o, fit(w.Roots()))
			if _, err := g.Finish(ctx, collect(t, v.Roots()), files, ckpt.Note{}, nil); err != nil {
				t.Fatal(err)
			}
			if r := <-done; r.err != nil || !reflect.DeepEqual(v, w) {
				t.Fatal(r.err)
			}
			for _, f := range files {
				p, err := os.ReadFile(f.Path)
				if err != nil || !bytes.Equal(p, content(int(f.Size))) {
					t.Errorf("%s: %d bytes, %v", f.Path, len(p), err)
				}
			}
			if p, err := io.ReadAll(io.NewSectionReader(open, 0, 3<<20)); err != nil || !bytes.Equal(p, content(2<<20)) {
				t.Errorf("an open file has %d bytes of another content, %v", len(p), err)
			}
			if st, err := os.Stat("same"); err != nil || !st.ModTime().Equal(old) {
				t.Errorf("a file was written that is the same: %v %v", st.ModTime(), err)
			}
			if st, err := os.Stat("long"); err != nil || st.Mode() != 0o640 {
				t.Errorf("mode %v, %v", st.Mode(), err)
			}
			list, err := os.ReadDir(".")
			if err != nil || len(list) != 5 {
				t.Errorf("left behind: %v, %v", list, err)
			}
			os.Remove("long")
		})
	}
	// A file that is shorter than announced.
	a, b := tcpPair(t)
	g := NewSource(a, Options{Files: true})
	defer g.Close()
	done := receive(b, Options{Files: true}, fit(new(ckpttest.Values).Roots()))
	files[3].Size = 2000
	if _, err := g.Finish(ctx, collect(t, ckpttest.Sample(9).Roots()), files, ckpt.Note{}, nil); err == nil || !strings.Contains(err.Error(), "it ends 2000 bytes before the size it had") {
		t.Error(err)
	}
	if r := <-done; r.err == nil || !strings.Contains(r.err.Error(), "the source gives up: data file shorter") {
		t.Error(r.err)
	}
	if list, err := os.ReadDir("."); err != nil || len(list) != 4 {
		t.Errorf("left behind: %v, %v", list, err)
	}
}
