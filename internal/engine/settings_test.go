package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// TestSettle_Precedence has a value from each place, and expects the first of
// them.
func TestSettle_Precedence(t *testing.T) {
	t.Setenv("CAIRN_KEEP", "4")
	t.Setenv("CAIRN_BASES", "0")
	t.Setenv("CAIRN_TRACKING", "false")
	o := Options{Keep: 3, MaxBases: 9, Memory: 1 << 20, Compression: Zstd}
	list, err := o.settle(map[string]string{"keep": "5", "compression": "none", "every": "10m"})
	if err != nil {
		t.Fatal(err)
	}
	if o.Keep != 5 || o.MaxBases != -1 || o.Memory != 1<<20 || o.Compression != None || !o.NoTracking || o.Every != 10*time.Minute {
		t.Errorf("%+v", o)
	}
	var text []string
	for _, s := range list {
		text = append(text, s.Name+"="+s.Value+" "+s.From)
	}
	want := []string{"every=10m0s flag", "every-points=never default", "mtbf=24h0m0s default", "keep=5 flag", "disk-limit=none default", "memory=1.0 MiB program", "compression=none flag", "bases=0 environment", "tracking=false environment"}
	if strings.Join(text, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q, want %q", text, want)
	}
	if len(Settings()) != len(want) {
		t.Errorf("%q", Settings())
	}
	t.Setenv("CAIRN_KEEP", "x")
	if _, err := new(Options).settle(nil); err == nil || !strings.Contains(err.Error(), `CAIRN_KEEP: "x" is not a number of checkpoints`) {
		t.Error(err)
	}
	if err := CheckSetting("nothing", "1"); err == nil {
		t.Error("a setting that does not exist is accepted")
	}
	if control.SettingVariable("every-points") != "CAIRN_EVERY_POINTS" {
		t.Error(control.SettingVariable("every-points"))
	}
}
