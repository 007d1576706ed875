package seal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
)

func testKey(t testing.TB) *Key {
	t.Helper()
	k, err := CreateKey(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestConformance checks an encrypted tier, with objects about as large as
// chunks.
func TestConformance(t *testing.T) {
	key := testKey(t)
	tiertest.Run(t, tiertest.Options{
		Open:  func(t *testing.T) tier.Tier { return New(tiertest.NewMem(), key) },
		Sizes: []int{chunkSize - 1, chunkSize, chunkSize + 1, 3 * chunkSize, 3*chunkSize + 5},
	})
}

// get reads a whole object.
func get(t testing.TB, m tier.Tier, name string) ([]byte, error) {
	r, err := m.Get(t.Context(), name, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// TestObject_ChangesNoticed changes, cuts and extends an object at every place
// that matters, puts it under another name, and exchanges its chunks: each is
// noticed.
func TestObject_ChangesNoticed(t *testing.T) {
	key, inner := testKey(t), tiertest.NewMem()
	m := New(inner, key)
	want := tiertest.Pattern(1, 2*chunkSize+100)
	for _, name := range []string{"a", "empty", "b"} {
		data := want
		if name == "empty" {
			data = nil
		}
		if err := m.Put(t.Context(), name, tier.BytesSource(data)); err != nil {
			t.Fatal(err)
		}
	}
	stored := tiertest.Content(t, inner, "a")
	var places []int
	for i := range headerSize {
		places = append(places, i)
	}
	for c := range 3 {
		at := headerSize + c*(chunkSize+tagSize)
		places = append(places, at, at+1, at+50, at+99)
	}
	places = append(places, len(stored)-1, len(stored)-tagSize)
	for _, i := range places {
		for bit := range 8 {
			bad := tiertest.NewMem()
			changed := bytes.Clone(stored)
			changed[i] ^= 1 << bit
			if err := bad.Create(t.Context(), "a", changed); err != nil {
				t.Fatal(err)
			}
			if got, err := get(t, New(bad, key), "a"); !errors.Is(err, tier.ErrDamaged) || errors.Is(err, tier.ErrKey) {
				t.Fatalf("bit %d of byte %d: %d bytes, %v", bit, i, len(got), err)
			}
		}
	}
	chunk := func(c int) []byte { at := headerSize + c*(chunkSize+tagSize); return stored[at : at+chunkSize+tagSize] }
	for what, c := range map[string]struct {
		name string
		text []byte
	}{
		"another name":       {"c", stored},
		"exchanged chunks":   {"a", slices.Concat(stored[:headerSize], chunk(1), chunk(0), stored[headerSize+2*(chunkSize+tagSize):])},
		"a chunk twice":      {"a", slices.Concat(stored[:headerSize], chunk(0), chunk(0), stored[headerSize+2*(chunkSize+tagSize):])},
		"another header":     {"a", slices.Concat(tiertest.Content(t, inner, "b")[:headerSize], stored[headerSize:])},
		"cut in the content": {"a", stored[:len(stored)-1]},
		"cut at a chunk":     {"a", stored[:headerSize+chunkSize+tagSize]},
		"cut in the header":  {"a", stored[:headerSize-1]},
		"nothing":            {"a", nil},
		"plain":              {"a", want},
		"another size":       {"a", resized(stored, chunkSize)},
		"no size":            {"a", resized(stored, 1<<63)},
	} {
		bad := tiertest.NewMem()
		if err := bad.Create(t.Context(), c.name, c.text); err != nil {
			t.Fatal(err)
		}
		if got, err := get(t, New(bad, key), c.name); !errors.Is(err, tier.ErrDamaged) || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s: %d bytes, %v", what, len(got), err)
		}
	}
	// A header without content is authenticated, too.
	empty := tiertest.NewMem()
	if err := empty.Create(t.Context(), "other", tiertest.Content(t, inner, "empty")); err != nil {
		t.Fatal(err)
	}
	if _, err := get(t, New(empty, key), "other"); !errors.Is(err, tier.ErrDamaged) {
		t.Errorf("an empty object under another name: %v", err)
	}
	if got, err := get(t, m, "a"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// resized returns an object whose header says another size, with a sum that is
// right.
func resized(stored []byte, size uint64) []byte {
	out := bytes.Clone(stored)
	binary.LittleEndian.PutUint64(out[24:], size)
	sum := sha256.Sum256(out[:64])
	copy(out[64:], sum[:])
	return out
}

// TestObject_WrongKey shows that an object of another key is not called
// damaged, and is not replaced.
func TestObject_WrongKey(t *testing.T) {
	a, b, inner := testKey(t), testKey(t), tiertest.NewMem()
	if err := New(inner, a).Create(t.Context(), "x", []byte("secret")); err != nil {
		t.Fatal(err)
	}
	_, err := get(t, New(inner, b), "x")
	if !errors.Is(err, tier.ErrKey) || errors.Is(err, tier.ErrDamaged) || !strings.Contains(err.Error(), a.ID()) || !strings.Contains(err.Error(), b.ID()) {
		t.Errorf("%v", err)
	}
	// A second writer with another key does not replace it.
	if err := New(inner, b).Create(t.Context(), "x", []byte("secret")); !errors.Is(err, tier.ErrExists) {
		t.Errorf("%v", err)
	}
}

// TestObject_ContentHidden shows that the content cannot be seen, that equal
// content is equal when it is stored, and that other content has other keys.
func TestObject_ContentHidden(t *testing.T) {
	key := testKey(t)
	text := bytes.Repeat([]byte("a well known text, again and again "), 10_000)
	store := func(name string, data []byte) []byte {
		inner := tiertest.NewMem()
		if err := New(inner, key).Put(t.Context(), name, tier.BytesSource(data)); err != nil {
			t.Fatal(err)
		}
		return tiertest.Content(t, inner, name)
	}
	a := store("a", text)
	if bytes.Contains(a, []byte("well known")) {
		t.Error("the text can be read")
	}
	if !bytes.Equal(a, store("a", text)) {
		t.Error("the same object is stored in another way")
	}
	other := bytes.Clone(text)
	other[len(other)-1]++
	for what, b := range map[string][]byte{"another name": store("b", text), "other content": store("a", other)} {
		same := 0
		for i := headerSize; i < len(a); i++ {
			if a[i] == b[i] {
				same++
			}
		}
		if same > len(a)/200 { // 1 of 256 by chance
			t.Errorf("%s: %d of %d bytes are the same", what, same, len(a))
		}
	}
	// Any piece, as a tier may ask for it, is the same.
	m := New(tiertest.NewMem(), key).(*sealed)
	src, err := m.source("a", tier.BytesSource(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, piece := range []int{1, 7, 100, headerSize, chunkSize, chunkSize + tagSize, 100_000, len(a)} {
		for _, off := range []int{0, 1, headerSize - 1, headerSize, headerSize + chunkSize, headerSize + chunkSize + tagSize, len(a) - 200, len(a) - 1} {
			p := make([]byte, piece)
			n, err := src.ReadAt(p, int64(off))
			if want := a[off:min(off+piece, len(a))]; !bytes.Equal(p[:n], want) || (err == nil) != (n == piece) {
				t.Fatalf("%d bytes from %d on: %d bytes, %v", piece, off, n, err)
			}
		}
	}
}

// TestKey_File shows that a key file is read as it was written, never replaced,
// and refused if others may read it.
func TestKey_File(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	k, err := CreateKey(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := CreateKey(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("a key was replaced: %v", err)
	}
	again, err := ReadKey(path)
	if err != nil || !bytes.Equal(again.secret(), k.secret()) || again.ID() != k.ID() {
		t.Errorf("another key: %v", err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" {
		for _, mode := range []os.FileMode{0o640, 0o604, 0o660, 0o644} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			if _, err := ReadKey(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
				t.Errorf("mode %v: %v", mode, err)
			}
		}
	}
	for _, bad := range []string{"", "cairn-key-1 ", string(text[:len(text)-3]), string(text) + "00", string(text[12:]), strings.Repeat("x", 2000), "cairn-key-2" + string(text[11:])} {
		path := filepath.Join(t.TempDir(), "bad")
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadKey(path)
		if err == nil || !strings.Contains(err.Error(), "64 hexadecimal digits") {
			t.Errorf("%.30q: %v", bad, err)
		}
		if err != nil && strings.Contains(err.Error(), string(text[12:40])) {
			t.Errorf("the error has the key: %v", err)
		}
	}
	if _, err := ReadKey(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestKey_Secret prints a key in every way.
func TestKey_Secret(t *testing.T) {
	k := testKey(t)
	holder := struct {
		Name string
		Key  *Key
		Copy Key
		own  Key
	}{"x", k, *k, *k}
	var all strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%b", "%o", "%t", "%p", "%w"} {
		fmt.Fprintf(&all, verb+" "+verb+" "+verb+"\n", k, *k, holder)
	}
	text, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	all.Write(text)
	for _, secret := range [][]byte{k.secret(), k.salts()} {
		for _, form := range []string{hex.EncodeToString(secret[:8]), strings.ToUpper(hex.EncodeToString(secret[:8])), strings.Trim(fmt.Sprint(secret[:8]), "[]"), fmt.Sprintf("%#v", secret[:4])[7:], string(secret)} {
			if strings.Contains(all.String(), form) {
				t.Errorf("the secret is printed: %s", all.String())
			}
		}
	}
	if !strings.Contains(all.String(), k.ID()) {
		t.Error("the identity is not printed")
	}
}

// FuzzOpen reads arbitrary objects: the content is a part of the original one,
// or there is an error.
func FuzzOpen(f *testing.F) {
	key, err := newKey(make([]byte, 32))
	if err != nil {
		f.Fatal(err)
	}
	inner := tiertest.NewMem()
	if err := New(inner, key).Create(f.Context(), "a", []byte("content")); err != nil {
		f.Fatal(err)
	}
	good := tiertest.Content(f, inner, "a")
	f.Add(good, int64(0), int64(-1))
	f.Fuzz(func(t *testing.T, stored []byte, off, n int64) {
		m := tiertest.NewMem()
		if len(stored) >= headerSize { // otherwise the sum stops everything
			sum := sha256.Sum256(stored[:64])
			copy(stored[64:], sum[:])
		}
		if err := m.Create(t.Context(), "a", stored); err != nil {
			t.Fatal(err)
		}
		sealed := New(m, key)
		sealed.Stat(t.Context(), "a")
		r, err := sealed.Get(t.Context(), "a", off, n)
		if err != nil {
			return
		}
		if got, err := io.ReadAll(r); err == nil && !bytes.Contains([]byte("content"), got) {
			t.Errorf("%q", got)
		}
	})
}

func BenchmarkPut(b *testing.B) {
	key, err := newKey(make([]byte, 32))
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 64<<20)
	src, err := New(tiertest.NewMem(), key).(*sealed).source("a", tier.BytesSource(data))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	buf := make([]byte, 1<<20)
	for b.Loop() {
		for off := int64(0); off < src.Size; off += int64(len(buf)) {
			src.ReadAt(buf, off)
		}
	}
}
