package instrument

import (
	"fmt"
	"go/types"
	"maps"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// replacedFuncs maps functions of libraries that affect a run to their
// replacements in the run time.
var replacedFuncs = map[string]string{
	"os.Exit": "Exit", "os.Open": "Open", "os.Create": "Create", "os.OpenFile": "OpenFile", "os.CreateTemp": "CreateTemp",
	"os.Mkdir": "Mkdir", "os.MkdirAll": "MkdirAll", "os.MkdirTemp": "MkdirTemp", "os.Remove": "Remove", "os.RemoveAll": "RemoveAll", "os.Rename": "Rename",
	"os.WriteFile": "WriteFile", "os.Truncate": "Truncate", "os.Link": "Link", "os.Symlink": "Symlink", "os.Chmod": "Chmod", "os.CopyFS": "CopyFS", "os.OpenRoot": "OpenRoot",
	"io/ioutil.WriteFile": "WriteFile", "io/ioutil.TempFile": "CreateTemp", "io/ioutil.TempDir": "MkdirTemp",
	"log.Fatal": "Fatal", "log.Fatalf": "Fatalf", "log.Fatalln": "Fatalln",
	"os/signal.NotifyContext": "NotifyContext", "os/signal.Notify": "Notify", "os/signal.Stop": "StopNotify",
	"os/signal.Ignore": "Ignore", "os/signal.Ignored": "Ignored", "os/signal.Reset": "ResetSignals",
	"runtime.NumGoroutine": "NumGoroutine", "runtime.SetFinalizer": "SetFinalizer", "runtime.AddCleanup": "AddCleanup",
	"runtime.LockOSThread": "LockOSThread", "runtime.UnlockOSThread": "UnlockOSThread",
	"time.AfterFunc": "AfterFunc", "time.After": "After", "time.Tick": "Tick", "context.AfterFunc": "ContextAfterFunc",
	"context.WithCancel": "WithCancel", "context.WithCancelCause": "WithCancelCause",
	"context.WithDeadline": "WithDeadline", "context.WithDeadlineCause": "WithDeadlineCause",
	"context.WithTimeout": "WithTimeout", "context.WithTimeoutCause": "WithTimeoutCause",
	"context.WithValue": "WithValue", "context.WithoutCancel": "WithoutCancel",
	load.CairnPath + ".Open": "OpenRun",
}

// repeatedFuncs are functions of the standard library that set or register
// something for the whole process. Their calls are repeated after a restart.
var repeatedFuncs = []string{
	"encoding/gob.Register", "encoding/gob.RegisterName", "mime.AddExtensionType", "image.RegisterFormat",
	"archive/zip.RegisterCompressor", "archive/zip.RegisterDecompressor",
	"syscall.Umask", "runtime.GOMAXPROCS", "log/slog.SetLogLoggerLevel",
	"runtime/debug.SetGCPercent", "runtime/debug.SetMemoryLimit", "runtime/debug.SetMaxStack", "runtime/debug.SetMaxThreads",
}

// ownVars are variables of the standard library that the run time saves itself,
// or that matter only while the command line is read.
var ownVars = []string{"os.Args", "flag.CommandLine", "flag.Usage"}

// randFuncs are the functions of math/rand that use the global generator.
var randFuncs = []string{"ExpFloat64", "Float32", "Float64", "Int", "Int31", "Int31n", "Int63", "Int63n", "Intn",
	"NormFloat64", "Perm", "Read", "Shuffle", "Uint32", "Uint64"}

// replacements returns the replacements for this program. They save the
// generator of math/rand if the program seeds it, or if its settings make it
// start with seed 1.
func (in *instrumenter) replacements() map[string]string {
	all := maps.Clone(replacedFuncs)
	for _, f := range repeatedFuncs {
		all[f] = fmt.Sprintf("Repeated(%q, %%s)", f)
	}
	if in.savesRandom() {
		all["math/rand.Seed"] = "Seed"
		for _, f := range randFuncs {
			all["math/rand."+f] = "Rand()." + f
		}
	}
	return all
}

// savesRandom reports whether the generator of math/rand may give the same
// numbers in each run, as far as the build can tell.
func (in *instrumenter) savesRandom() bool {
	return in.usesRandom("Seed") || slices.Contains(strings.Split(in.p.Source.Main.DefaultGODEBUG, ","), "randautoseed=0")
}

// librarySettings returns variables of the standard library that the program
// assigns to, by their full names.
func (in *instrumenter) librarySettings() map[string]*types.Var {
	own := make(map[*types.Package]bool)
	for _, s := range in.p.Source.Sources {
		own[s.Types] = true
	}
	out := make(map[string]*types.Var)
	for v, u := range in.globalUses(nil) {
		name := v.Pkg().Path() + "." + v.Name()
		if u.assigned && v.Exported() && !own[v.Pkg()] && !slices.Contains(ownVars, name) {
			out[name] = v
		}
	}
	return out
}

// usesRandom reports whether the program names one of some functions of
// math/rand.
func (in *instrumenter) usesRandom(names ...string) bool {
	in.randomOnce.Do(func() {
		in.random = map[string]bool{}
		for _, s := range in.p.Source.Sources {
			for _, o := range s.Info.Uses {
				if o.Pkg() != nil && o.Pkg().Path() == "math/rand" && o.Parent() == o.Pkg().Scope() {
					in.random[o.Name()] = true
				}
			}
		}
	})
	return slices.ContainsFunc(names, func(n string) bool { return in.random[n] })
}
