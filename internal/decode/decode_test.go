package decode

import "testing"

// TestCursor reads all kinds of values. What it returns is not shared with the
// message.
func TestCursor(t *testing.T) {
	p := []byte{1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 7, 8, 9}
	c := New(p)
	if a, b, f := c.U32(), c.U64(), c.F64(); a != 1 || b != 1<<63|2 || f != 1.5 {
		t.Error(a, b, f)
	}
	if c.Left() != 3 || c.End() == nil || c.Bad() {
		t.Error(c.Left(), c.End(), c.Bad())
	}
	q := c.Take(1)
	if q = append(q, 1); p[21] != 8 {
		t.Errorf("appending to what Take returned changed the message: %v", q)
	}
	if q := c.Rest(); string(q) != "\x08\x09" || c.End() != nil {
		t.Error(q, c.End())
	}
	if c.Rest() == nil || c.Bad() {
		t.Error("nothing is left: that is no error")
	}
}

// TestCursor_Short shows that a message that is too short gives zeros, and
// stays bad.
func TestCursor_Short(t *testing.T) {
	for n := range 8 {
		c := New(make([]byte, n, 8))
		if c.U64() != 0 || !c.Bad() || c.Left() != 0 || c.End() == nil || c.U32() != 0 || c.F64() != 0 || c.Take(1) != nil {
			t.Errorf("%d bytes: %+v", n, c)
		}
	}
	c := New(make([]byte, 4))
	if c.Take(1<<63) != nil || !c.Bad() {
		t.Error("a huge length was accepted")
	}
	c = New(make([]byte, 4))
	if c.Fail(); !c.Bad() || c.U32() != 0 || c.End() == nil {
		t.Error("Fail had no effect")
	}
}
