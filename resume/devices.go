package resume

import (
	"errors"

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
	return engine.Protect(run, partsName, &list)
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
