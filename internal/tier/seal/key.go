package seal

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
)

// Key is the key that a tier's content is encrypted with. It prints as its
// identity; nothing prints its secret.
type Key struct {
	// Functions, because no verb of package fmt shows what they capture.
	secret, salts func() []byte
	id            [idSize]byte
}

// keyHead begins the one line of a key file; the secret follows.
const keyHead = "cairn-key-1 "

// Format prints the key's identity, whatever the verb.
func (k Key) Format(f fmt.State, verb rune) { fmt.Fprintf(f, "key %s", k.ID()) }

// ID returns 16 hexadecimal digits that tell the key from others.
func (k *Key) ID() string { return hex.EncodeToString(k.id[:8]) }

// newKey returns the key with a secret, which it keeps.
func newKey(secret []byte) (*Key, error) {
	salts, err := hkdf.Key(sha256.New, secret, nil, "cairn seal: salts", 32)
	if err != nil {
		return nil, err
	}
	id, err := hkdf.Key(sha256.New, secret, nil, "cairn seal: identity", idSize)
	if err != nil {
		return nil, err
	}
	return &Key{func() []byte { return secret }, func() []byte { return salts }, [idSize]byte(id)}, nil
}

// CreateKey makes a random key and writes it to a new file, durably. Without
// this file, what was encrypted is lost.
func CreateKey(path string) (*Key, error) {
	secret := make([]byte, 32)
	rand.Read(secret)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	_, err = fmt.Fprintf(f, "%s%x\n", keyHead, secret)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(path)
		return nil, fmt.Errorf("key file: %w", err)
	}
	return newKey(secret)
}

// ReadKey reads a key file. It refuses one that other users may read.
func ReadKey(path string) (*Key, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; 'cairn key' makes one", err)
	}
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	if perm := st.Mode().Perm(); runtime.GOOS != "windows" && perm&0o077 != 0 {
		return nil, fmt.Errorf("key file %s: other users may use it (mode %04o): 'chmod 600' it", path, perm)
	}
	text, err := io.ReadAll(io.LimitReader(f, 1000))
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	digits, ok := bytes.CutPrefix(bytes.TrimRight(text, "\r\n"), []byte(keyHead))
	secret, err := hex.DecodeString(string(digits))
	if !ok || err != nil || len(secret) != 32 { // without err, which may have parts of the key
		return nil, fmt.Errorf("key file %s: it must have one line: %q and 64 hexadecimal digits; 'cairn key' makes such a file", path, keyHead)
	}
	return newKey(secret)
}
