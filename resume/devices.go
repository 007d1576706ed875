package resume

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/cairnrun/cairn/internal/engine"
	"github.com/cairnrun/cairn/internal/graph"
)

// partsName is the variable of a checkpoint with what packages of Cairn keep
// for a program, such as the number of devices it has seen.
const partsName = "resume.parts"

// protectParts adds this variable to the state. It must not be saved before the
// program's packages are initialized.
func protectParts() error {
	list := graph.Parts()
	if len(list) == 0 {
		return nil
	}
	excludeLost(list)
	for _, p := range list {
		if p, ok := p.(dividing); ok {
			if _, err := os.Stat(divisionFile()); err == nil { // it went wrong last time
				inDivision.Store(true)
				p.CairnKeep()
			}
			p.CairnDivision(beginDivision, func(err error) {
				fatal("%v, after the work was divided among another number of devices. The next start keeps the number of devices that the run had", err)
			}, func(err error) {
				fatal("%v, and the checkpoint does not hold them. This is an error in Cairn: report it, and begin anew with CAIRN_SAVE_ALL=1 in the environment, which saves all arrays", err)
			})
			p.CairnSaving(&due)
		}
	}
	return engine.Protect(run, partsName, &list)
}

// dividing is a part that makes a program divide its work anew if a restart
// finds another number of devices.
type dividing interface {
	CairnKeep()
	CairnDivision(begin func(), failed, missing func(error))
	CairnSaving(due *uint32)
}

// divisionFile is a file that exists from when the work is divided anew until a
// checkpoint was saved after that. If a program ends in between, its next start
// keeps the old division.
func divisionFile() string { return filepath.Join(run.Dir(), "dividing") }

func beginDivision() {
	if err := os.WriteFile(divisionFile(), nil, 0o666); err != nil {
		warn("%v; if the new division of the work fails, set CAIRN_KEEP_DEVICES=1 in the environment", err)
	}
	inDivision.Store(true)
}

// inDivision says that divisionFile may exist.
var inDivision atomic.Bool

// endDivision is called when a checkpoint was saved.
func endDivision() {
	if inDivision.Swap(false) {
		os.Remove(divisionFile())
	}
}

// lostDevices returns an error if the program has lost devices. Another start
// may find them again.
func lostDevices() error {
	if run == nil {
		return nil
	}
	var errs []error
	for _, p := range graph.Parts() {
		if p, ok := p.(interface{ CairnLost() error }); ok {
			errs = append(errs, p.CairnLost())
		}
	}
	return errors.Join(errs...)
}
