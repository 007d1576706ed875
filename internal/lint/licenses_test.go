package lint

import (
	"bytes"
	"os/exec"
	"testing"
)

// TestLicenses_Complete shows that scripts/licenses finds the license of every
// module that the cairn command contains: without one there is no release.
func TestLicenses_Complete(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip(err)
	}
	var stderr bytes.Buffer
	c := exec.Command("../../scripts/licenses", "linux/amd64", "windows/amd64")
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.Bytes())
	}
	for _, want := range []string{"github.com/BurntSushi/toml v1.", "/minio-go/v7 v7.", ", NOTICE\n", "The Go standard library, go1."} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("the licenses lack %q", want)
		}
	}
}
