package device

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/faulty"
)

// envLose rehearses the loss of devices:
//
//	CAIRN_LOSE_DEVICE=ID@N            the device is lost at its Nth call
//	CAIRN_LOSE_DEVICE=ID@OP:N         … at its Nth Launch, CopyIn, CopyOut …
//	CAIRN_LOSE_DEVICE=ID@OP:N:late    … and that is noticed only when something
//	                                  waits for the device
//
// Several of these are separated by commas.
const envLose = "CAIRN_LOSE_DEVICE"

// rehearsed returns a device that is lost when envLose says so.
func rehearsed(drv driver.Device) (driver.Device, error) {
	list := os.Getenv(envLose)
	if list == "" {
		return drv, nil
	}
	for one := range strings.SplitSeq(list, ",") {
		id, when, ok := strings.Cut(strings.TrimSpace(one), "@")
		fault := &faulty.Fault{Kind: faulty.Lost}
		if rest, late := strings.CutSuffix(when, ":late"); late {
			fault.Kind, when = faulty.Late, rest
		}
		if op, n, named := strings.Cut(when, ":"); named {
			fault.Op, when = op, n
		}
		n, err := strconv.Atoi(when)
		if !ok || err != nil || n < 1 {
			return nil, fmt.Errorf("%s=%q: %q is not a device and a call, as in host:1@Launch:20", envLose, list, one)
		}
		if fault.At = n; id == drv.Info().ID {
			return faulty.Wrap(drv, fault), nil
		}
	}
	return drv, nil
}
