//go:build linux

package supervise

import (
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/tier/policy"
)

// TestTiers_NotBuilt gives options that a policy may have and this version does
// not do. They must be refused, and not be ignored.
func TestTiers_NotBuilt(t *testing.T) {
	for text, option := range map[string]string{
		"local=/d,shared=/s:files=none": "files",
		"local=/d,shared=/s:writers=3":  "",
		"local=/d,partner,scrub=1d":     "",
		"local=/d,partner":              "",
	} {
		p, err := policy.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		err = builtTiers(p)
		if (err == nil) != (option == "") || err != nil && !strings.Contains(err.Error(), option) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
