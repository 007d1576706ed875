package resume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/engine"
)

// When a device is lost, the program returns to its last checkpoint by itself,
// on the devices that remain. Its functions cannot be unwound: they are in the
// middle of what they do. So the process executes its program anew, which
// restores the checkpoint as after a kill. Under a supervisor, and with several
// ranks, whose connections belong to the process, it ends instead, and all
// ranks are restarted.

// loser is a part that loses devices.
type loser interface {
	CairnOnLoss(func(id string))
	CairnExclude(ids []string, of int)
	CairnDevices() int
}

// losses is what a process that has lost devices tells the next one.
type losses struct {
	Host    string   `json:"host"`
	Devices []string `json:"devices"` // their IDs
	Of      int      `json:"of"`      // how many devices there were
	Count   int      `json:"count"`   // losses in a row without a checkpoint
}

// maxLosses is how often a program may lose a device before it has saved
// another checkpoint.
const maxLosses = 16

var (
	lossMu  sync.Mutex
	loss    losses
	savedIn bool // a checkpoint was saved since the start
)

// lossFile is where this rank's losses are.
func lossFile() string {
	return filepath.Join(run.Dir(), fmt.Sprintf("lost-devices-%d", run.Rank()))
}

// excludeLost makes this start of the program use other devices than those
// that the last one has lost. Later starts may use all again.
func excludeLost(parts []any) {
	host, _ := os.Hostname()
	for _, p := range parts {
		p, ok := p.(loser)
		if !ok {
			continue
		}
		raw, err := os.ReadFile(lossFile())
		if err == nil {
			err = errors.Join(json.Unmarshal(raw, &loss), os.Remove(lossFile()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			warn("which devices were lost before: %v", err)
		}
		if len(loss.Devices) > 0 && loss.Host == host {
			p.CairnExclude(loss.Devices, loss.Of)
		} else {
			loss = losses{Host: host, Count: loss.Count}
		}
		p.CairnOnLoss(func(id string) { deviceLost(p, id) })
	}
}

// savedSinceLoss is called when a checkpoint was saved.
func savedSinceLoss() {
	lossMu.Lock()
	defer lossMu.Unlock()
	savedIn = true
}

// deviceLost is called when a device is lost, by any goroutine, and returns
// only if the program cannot return to a checkpoint by itself. Then it gets the
// error that the device is lost.
func deviceLost(p loser, id string) {
	if ending.Load() {
		return
	}
	lossMu.Lock()
	defer lossMu.Unlock()
	if savedIn {
		loss.Count, savedIn = 0, false
	}
	if loss.Of == 0 {
		loss.Of = p.CairnDevices()
	}
	loss.Devices = append(loss.Devices, id)
	loss.Count++
	index, why := whereToReturn()
	if why != "" {
		warn("%v; %s", lostDevices(), why)
		return
	}
	raw, err := json.Marshal(loss)
	if err == nil {
		err = os.WriteFile(lossFile(), raw, 0o666)
	}
	if err != nil { // the next start finds out by itself
		warn("%v", err)
	}
	if supervised || severalRanks() {
		from := "the beginning"
		if index > 0 {
			from = "the last checkpoint"
		}
		warn("%v; restart from %s on the devices that remain", lostDevices(), from)
		exit(statusFailed)
	}
	warn("%v; rolling back to checkpoint %d on the devices that remain", lostDevices(), index)
	warn("%v", executeAnew())
	os.Remove(lossFile())
}

// whereToReturn returns the newest checkpoint, or why the program cannot return
// to it by itself.
func whereToReturn() (index uint64, why string) {
	index, err := run.NewestSaved()
	st, serr := control.StdinFile.Stat()
	switch {
	case err != nil:
		return 0, err.Error()
	case loss.Count > maxLosses:
		return 0, fmt.Sprintf("devices were lost %d times without a checkpoint in between", loss.Count)
	case supervised || severalRanks():
	case index == 0: // what it has printed would be printed again
		return 0, "nothing was saved before"
	case inputMark != "" && (serr != nil || !st.Mode().IsRegular()):
		return 0, "the program reads stdin, which is not a file and cannot be read again"
	}
	return index, ""
}

// executeAnew replaces the process by one that starts the program again. It
// returns only if that is not possible.
func executeAnew() error {
	path, err := os.Executable()
	if err == nil {
		err = os.Chdir(start.dir)
	}
	if err != nil {
		return err
	}
	env := slices.DeleteFunc(slices.Clone(start.full), func(v string) bool {
		return strings.HasPrefix(v, engine.EnvFresh+"=")
	})
	return syscall.Exec(path, append([]string{name0}, start.args...), env)
}

// name0 is the name by which the program was started.
var name0 = os.Args[0]
