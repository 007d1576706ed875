package instrument

import "testing"

// TestVisibleIn checks which packages may import internal ones.
func TestVisibleIn(t *testing.T) {
	for _, v := range []struct {
		path, from string
		want       bool
	}{
		{"a/b", "c", true},
		{"a/internal/b", "a", true},
		{"a/internal/b", "a/c/d", true},
		{"a/internal", "a/c", true},
		{"a/internal/b", "ab", false},
		{"a/internal/b", "c", false},
		{"a/internal/b/internal/c", "a/d", false},
		{"a/internal/b/internal/c", "a/internal/b/d", true},
		{"a/internals/b", "c", true},
	} {
		if got := visibleIn(v.path, v.from); got != v.want {
			t.Errorf("%s in %s: %v", v.path, v.from, got)
		}
	}
}
