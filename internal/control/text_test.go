package control

import (
	"testing"
	"time"
)

func TestTimeText_Units(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ms", 2_950 * time.Microsecond: "2.95 ms", 500 * time.Millisecond: "500 ms", 2 * time.Second: "2 s",
		2500 * time.Millisecond: "2.5 s", time.Minute: "60 s", 90 * time.Second: "90 s", 10 * time.Minute: "10 min",
	} {
		if got := TimeText(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
