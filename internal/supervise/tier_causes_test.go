//go:build linux

package supervise

import (
	"testing"
	"time"
)

// TestCauses_ReportedOnce has failures of a tier that differ in what was being
// done, and not in the cause: only the first of each cause is told, and one
// that comes back after a while.
func TestCauses_ReportedOnce(t *testing.T) {
	c := make(causes)
	at := time.Unix(0, 0)
	for i, x := range []struct {
		text  string
		after time.Duration
		tell  bool
	}{
		{"checkpoint 3 from host a: uploading checkpoint 3 to s3://b/sim: s3://b/sim: 0a1b2c3d4e5f/files/rank-0000-00000003-aa11bb22cc33dd44.h5: temporary failure: dial tcp 10.0.0.1:41234: connect: connection refused", 0, true},
		{"checkpoint 3 from host b: uploading checkpoint 3 to s3://b/sim: s3://b/sim: runs/0a1b2c3d4e5f: temporary failure: dial tcp 10.0.0.1:41299: connect: connection refused", time.Second, false},
		{"checkpoint 4 from host a: uploading checkpoint 4 to s3://b/sim: 507 Insufficient Storage", time.Second, true},
		{"checkpoint 4 from host b: uploading checkpoint 4 to s3://b/sim: connect: connection refused", time.Second, false},
		{"checkpoint 5 from host a: uploading checkpoint 5 to s3://b/sim: 507 Insufficient Storage", time.Second, false},
		{"checkpoint 6 has been on its way since 2026-03-01 10:12:03", time.Second, true},
		{"checkpoint 7 has been on its way since 2026-03-01 11:12:03", time.Second, false},
		{"checkpoint 8 from host a: connect: connection refused", 20 * time.Minute, true},
	} {
		at = at.Add(x.after)
		if tell := c.isNew(x.text, at); tell != x.tell {
			t.Errorf("%d: %s: told %t, not %t", i, x.text, tell, x.tell)
		}
	}
}
