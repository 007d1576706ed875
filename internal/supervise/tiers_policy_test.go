//go:build linux

package supervise

import (
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/tier/policy"
)

// TestTiers_LocalRefusesOptions gives options that have no meaning for the
// hosts' own checkpoints. They must be refused, and not be ignored.
func TestTiers_LocalRefusesOptions(t *testing.T) {
	for text, why := range map[string]string{
		"local=/d:keep=5,partner":                "Options.Keep",
		"local=/d,shared=/s:writers=3,files=2":   "",
		"local=/d,partner,scrub=1d":              "",
		"local=/d,partner:every=2,keep=3,rs=4+2": "",
	} {
		p, err := policy.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		err = checkLocal(p)
		if (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
