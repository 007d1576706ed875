package control

import "testing"

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "17": 17, "2K": 2048, "2k": 2048, "1.5M": 3 << 19, "64GiB": 64 << 30, "64 GB": 64 << 30, "1T": 1 << 40, "1P": 1 << 50} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "1Q", "1KM", "1_", "9999999P", "1e3", "G"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("%q is accepted as %d", text, got)
		}
	}
}
