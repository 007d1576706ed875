package tier_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
)

// soon repeats at once.
var soon = tier.Retry{Tries: 4, First: 1, Max: 1}

// TestMem_Conformance checks the tier in memory, which other tests use.
func TestMem_Conformance(t *testing.T) {
	tiertest.Run(t, tiertest.Options{Open: func(t *testing.T) tier.Tier { return tiertest.NewMem() }})
}

// TestRetrying_Conformance checks the wrappers on a tier of which every other
// operation fails.
func TestRetrying_Conformance(t *testing.T) {
	for _, fault := range []tiertest.Fault{tiertest.None, tiertest.Fail, tiertest.FailAfter, tiertest.Cut} {
		t.Run(fault.String(), func(t *testing.T) {
			tiertest.Run(t, tiertest.Options{Open: func(t *testing.T) tier.Tier {
				failed := make(chan bool, 1)
				failed <- false
				m := tiertest.Faulty(tiertest.NewMem(), func(op, name string) tiertest.Fault {
					last := <-failed
					failed <- !last
					if last {
						return tiertest.None
					}
					return fault
				})
				return tier.Limit(tier.Retrying(m, tier.Retry{Tries: 50, First: 1, Max: 1}), tier.NewLimiter(1<<40))
			}})
		})
	}
}

// TestRetry_Errors checks which errors lead to another try.
func TestRetry_Errors(t *testing.T) {
	permanent := errors.New("permanent")
	for _, c := range []struct {
		errs  []error
		calls int
		want  error
	}{
		{[]error{nil}, 1, nil},
		{[]error{permanent}, 1, permanent},
		{[]error{tier.ErrTemporary, nil}, 2, nil},
		{[]error{tier.ErrTemporary, permanent}, 2, permanent},
		{[]error{tier.ErrTemporary, tier.ErrTemporary, tier.ErrTemporary, tier.ErrTemporary, nil}, 4, tier.ErrTemporary},
	} {
		calls := 0
		err := soon.Do(t.Context(), func() error {
			calls++
			if e := c.errs[calls-1]; e != nil {
				return fmt.Errorf("wrapped: %w", e)
			}
			return nil
		})
		if calls != c.calls || !errors.Is(err, c.want) {
			t.Errorf("%v: %d calls, %v", c.errs, calls, err)
		}
	}
}

// TestRetry_Waits shows how long the default waits are, and that a context ends
// them.
func TestRetry_Waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		start := time.Now()
		err := tier.Retry{}.Do(t.Context(), func() error {
			at = append(at, time.Since(start))
			return tier.ErrTemporary
		})
		if !errors.Is(err, tier.ErrTemporary) || len(at) != 8 {
			t.Fatalf("%d calls, %v", len(at), err)
		}
		most := 200 * time.Millisecond
		for i := 1; i < len(at); i++ {
			if wait := at[i] - at[i-1]; wait < most/2 || wait > most+1 {
				t.Errorf("wait %d: %v, want %v to %v", i, wait, most/2, most)
			}
			most = min(2*most, 20*time.Second)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		err = tier.Retry{Tries: 100, First: time.Hour}.Do(ctx, func() error { return tier.ErrTemporary })
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// TestLimit_SharedByOperations shows that several operations share the
// bandwidth, in both directions.
func TestLimit_SharedByOperations(t *testing.T) {
	const rate, size = 1 << 20, 10 << 20
	synctest.Test(t, func(t *testing.T) {
		l := tier.NewLimiter(rate)
		a, b := tier.Limit(tiertest.NewMem(), l), tier.Limit(tiertest.NewMem(), l)
		timed := func(what string, f func(m tier.Tier)) {
			start := time.Now()
			done := make(chan bool)
			go func() { f(a); done <- true }()
			f(b)
			<-done
			if took, want := time.Since(start), 2*size/rate*time.Second; took < want-time.Second || took > want+time.Second {
				t.Errorf("%s: %v, want %v", what, took, want)
			}
		}
		timed("put", func(m tier.Tier) {
			if err := m.Put(t.Context(), "a", tier.BytesSource(make([]byte, size))); err != nil {
				t.Error(err)
			}
		})
		timed("get", func(m tier.Tier) {
			r, err := m.Get(t.Context(), "a", 0, -1)
			if err != nil {
				t.Error(err)
				return
			}
			if n, err := io.Copy(io.Discard, r); n != size || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := a.Put(ctx, "b", tier.BytesSource(make([]byte, size))); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// TestReadAll reads an object up to a limit.
func TestReadAll(t *testing.T) {
	m := tiertest.NewMem()
	if err := m.Create(t.Context(), "a", []byte("12345")); err != nil {
		t.Fatal(err)
	}
	if p, err := tier.ReadAll(t.Context(), m, "a", 5); err != nil || string(p) != "12345" {
		t.Errorf("%q, %v", p, err)
	}
	if _, err := tier.ReadAll(t.Context(), m, "a", 4); !errors.Is(err, tier.ErrDamaged) {
		t.Errorf("longer than the limit: %v", err)
	}
	if _, err := tier.ReadAll(t.Context(), m, "b", 4); !errors.Is(err, tier.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
}

// TestNewSource_Digest checks the size and the digest of a source.
func TestNewSource_Digest(t *testing.T) {
	data := tiertest.Pattern(1, 3<<20+1)
	src, err := tier.NewSource(t.Context(), bytes.NewReader(data), int64(len(data)))
	if err != nil || src.Digest != tier.BytesSource(data).Digest || src.Size != int64(len(data)) {
		t.Errorf("%v, %v", src.Digest, err)
	}
	if _, err := tier.NewSource(t.Context(), bytes.NewReader(data), int64(len(data))+1); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("too short: %v", err)
	}
	text, _ := src.Digest.MarshalText()
	var d tier.Digest
	if err := d.UnmarshalText(text); err != nil || d != src.Digest {
		t.Errorf("%s: %v, %v", text, d, err)
	}
	for _, bad := range []string{"", "12", strings.Repeat("g", 32), strings.Repeat("0", 33)} {
		if d.UnmarshalText([]byte(bad)) == nil {
			t.Errorf("%q is no digest", bad)
		}
	}
}
