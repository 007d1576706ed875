package graph

import (
	"math/big"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/hdf5"
)

var (
	byteType     = reflect.TypeFor[byte]()
	timeType     = reflect.TypeFor[time.Time]()
	locType      = reflect.TypeFor[*time.Location]()
	rtypeType    = reflect.TypeOf(reflect.TypeFor[byte]())
	fileType     = reflect.TypeFor[*os.File]()
	syncMapType  = reflect.TypeFor[sync.Map]()
	pairType     = reflect.TypeFor[pair]()
	recordType   = reflect.TypeFor[record]()
	wordType     = reflect.TypeFor[big.Word]()
	poolType     = reflect.TypeFor[sync.Pool]()
	functionType = reflect.TypeFor[function]()
	cellType     = reflect.TypeFor[cell]()
)

// cell is an element of memory on a device: a struct with one field, stored
// like that field. Slices of such elements have addresses of a mem.Remote.
type cell interface{ CairnCell() }

// pair is an entry in the stand-in of a sync.Map.
type pair struct{ Key, Val any }

// opaqueTypes are types that can be saved only when zero, with the reason.
var opaqueTypes = map[string]string{
	"sync.Mutex":               "the mutex is locked",
	"sync.RWMutex":             "the mutex is locked",
	"internal/sync.Mutex":      "the mutex is locked",
	"runtime.Pinner":           "it belongs to the Go runtime",
	"runtime.Cleanup":          "it belongs to the Go runtime",
	"runtime.Frames":           "it belongs to the Go runtime",
	"runtime.Func":             "it belongs to the Go runtime",
	"sync.WaitGroup":           "the WaitGroup is in use",
	"reflect.Value":            "it is bound to its process",
	"reflect.rtype":            "it is bound to its process",
	"internal/abi.Type":        "it is bound to its process",
	"hash/maphash.Seed":        "a maphash seed is bound to its process",
	"hash/maphash.Hash":        "a maphash seed is bound to its process",
	"time.Timer":               "it is a timer",
	"time.Ticker":              "it is a timer",
	"time.Location":            "a time.Location can be saved only through a pointer",
	"net.Resolver":             "it belongs to the network",
	"net.conn":                 "it is a network connection",
	"net.netFD":                "it is a network connection",
	"net.TCPConn":              "it is a network connection",
	"net.UDPConn":              "it is a network connection",
	"net.IPConn":               "it is a network connection",
	"net.UnixConn":             "it is a network connection",
	"net.TCPListener":          "it is a network listener",
	"net.UnixListener":         "it is a network listener",
	"net.pipe":                 "it is a network connection",
	"net.Dialer":               "it belongs to the network",
	"os.File":                  "the file is not known to the run",
	"os.file":                  "the file is not known to the run",
	"os.Process":               "it is a process of the operating system",
	"os.ProcessState":          "it is a process of the operating system",
	"os.Root":                  "it is an open directory",
	"os.root":                  "it is an open directory",
	"os.dirFS":                 "it belongs to the operating system",
	"os.fileStat":              "it belongs to the operating system",
	"os.unixDirent":            "it belongs to the operating system",
	"syscall.Handle":           "it is a handle of the operating system",
	"syscall.RawConn":          "it is a handle of the operating system",
	"context.cancelCtx":        "it is a context",
	"context.timerCtx":         "it is a context",
	"context.valueCtx":         "it is a context",
	"context.afterFuncCtx":     "it is a context",
	"context.withoutCancelCtx": "it is a context",
	"context.stopCtx":          "it is a context",
}

// wholeTypes can be saved in programs that are saved as a whole. A lock that is
// locked there belongs to a goroutine that is saved, and no goroutine waits
// inside of it. What the program has learnt of a file is as it was.
var wholeTypes = map[string]bool{
	"sync.Pool":                true,
	"sync.Mutex":               true,
	"sync.RWMutex":             true,
	"sync.WaitGroup":           true,
	"internal/sync.Mutex":      true,
	"context.cancelCtx":        true,
	"context.valueCtx":         true,
	"context.withoutCancelCtx": true,
	"os.dirFS":                 true,
	"os.fileStat":              true,
	"os.unixDirent":            true,
}

// opaquePackages are packages whose types cannot be saved if they have memory.
var opaquePackages = map[string]string{
	"unique":                   "a unique.Handle is bound to its process",
	"weak":                     "it is a weak pointer",
	"internal/poll":            "it is a handle of the operating system",
	"internal/syscall/unix":    "it is a handle of the operating system",
	"internal/syscall/windows": "it is a handle of the operating system",
	"internal/concurrent":      "it belongs to the Go runtime",
	"internal/synctest":        "it belongs to the Go runtime",
	"internal/sync":            "it belongs to the Go runtime",
	"os/signal":                "it belongs to the operating system",
	"plugin":                   "it is a plugin",
	"runtime/pprof":            "it belongs to the Go runtime",
	"runtime/trace":            "it belongs to the Go runtime",
}

// handleReasons are the reasons why handles cannot be saved.
var handleReasons = map[string]bool{
	unknownPointer:                            true,
	"it is a network connection":              true,
	"it is a network listener":                true,
	"it belongs to the network":               true,
	"it is a process of the operating system": true,
	"it belongs to the operating system":      true,
	"it is an open directory":                 true,
	"it is a handle of the operating system":  true,
	"the file is not known to the run":        true,
	"it is a plugin":                          true,
	"it is a weak pointer":                    true,
	"a unique.Handle is bound to its process": true,
	"it is bound to its process":              true,
}

const unknownPointer = "it is unknown what it points to"

// special fills in the plan of a type that is not treated according to its
// kind, and reports whether t is such a type.
func (p *plan) special() bool {
	t := p.t
	switch t {
	case timeType:
		p.kind, p.enc = kTime, true
		p.elem = p.kid(shell(byteType))
		p.form = packed(
			hdf5.Field{Name: "sec", Type: number(hdf5.Int, 8)},
			hdf5.Field{Name: "nsec", Type: number(hdf5.Int, 4)},
			hdf5.Field{Name: "zone", Type: reference("obj", "off", "len")},
			hdf5.Field{Name: "offset", Type: number(hdf5.Int, 4)})
		return true
	case locType:
		p.kind, p.enc = kLoc, true
		p.elem = p.kid(shell(byteType))
		p.form = packed(
			hdf5.Field{Name: "zone", Type: reference("obj", "off", "len")},
			hdf5.Field{Name: "offset", Type: number(hdf5.Int, 4)})
		return true
	case rtypeType:
		p.kind, p.enc = kType, true
		p.elem = p.kid(shell(byteType))
		p.form = reference("obj", "off", "len")
		return true
	case fileType:
		p.kind, p.enc = kFile, true
		p.form = reference("file")
		return true
	case syncMapType:
		p.kind, p.enc = kSyncMap, true
		p.form = reference("obj", "off", "len", "cap")
		p.elem = p.kid(shell(pairType))
		return true
	case timerTypes[0], timerTypes[1]:
		if !wholeProgram {
			return false
		}
		p.kind, p.enc = kTimer, true
		p.form = reference("obj", "size", "closed")
		p.elem = p.kid(shell(slotType(timeType)))
		return true
	}
	pkg, name := t.PkgPath(), t.Name()
	if name == "" {
		return false
	}
	if p.state = stateOf(t); p.state != nil {
		p.kind, p.enc, p.hasCodec = kCodec, true, true
		p.form = reference("obj", "off", "len", "cap")
		p.elem = p.kid(shell(recordType))
		return true
	}
	if t.Kind() == reflect.Struct && t.NumField() == 1 && t.Implements(cellType) {
		p.structure()
		if p.remote = true; p.enc || p.hasBool || p.size == 0 {
			p.opaque("arrays of devices hold numbers only")
			return true
		}
		p.form = p.fields[0].p.form
		return true
	}
	if pkg == "" {
		return false
	}
	if pkg == "sync/atomic" && strings.HasPrefix(name, "Pointer[") && t.Kind() == reflect.Struct && t.NumField() > 0 {
		// struct{_ [0]*T; _ noCopy; v unsafe.Pointer}
		if f := t.Field(0).Type; f.Kind() == reflect.Array && f.Elem().Kind() == reflect.Pointer && t.Size() == wordSize {
			p.kind, p.enc = kPtr, true
			p.form = reference("obj", "off")
			p.elem = p.kid(shell(f.Elem().Elem()))
			return true
		}
	}
	full := pkg + "." + name
	if wholeProgram && wholeTypes[full] {
		return false
	}
	switch full {
	case "sync.Pool", "sync.copyChecker", "sync.notifyList":
		// A restored Pool is empty, and a restored Cond is new: no goroutine
		// waits for it.
		p.kind, p.enc = kIgnore, true
		return true
	}
	reason, ok := opaqueTypes[full]
	if !ok && t.Kind() != reflect.Interface && t.Size() > 0 {
		reason, ok = opaquePackages[pkg]
	}
	if ok {
		p.opaque(reason)
	}
	return ok
}

// stateOf returns the function that saves and restores values of type t, or nil
// if t does not describe its own state.
func stateOf(t reflect.Type) func(v any, c *Coder) error {
	if k := t.Kind(); k == reflect.Interface || k == reflect.Pointer || t.Size() == 0 {
		return nil
	}
	for _, d := range describedTypes {
		if reflect.PointerTo(t).Implements(d.by) && !promoted(t, d.by) {
			return d.state
		}
	}
	return nil
}

// promoted reports whether *t implements by only through what t embeds.
func promoted(t, by reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	embedded := false
	for i := range t.NumField() {
		f := t.Field(i)
		embedded = embedded || f.Anonymous && (f.Type.Implements(by) || reflect.PointerTo(f.Type).Implements(by))
	}
	if !embedded {
		return false
	}
	method := by.Method(0)
	if method.PkgPath != "" { // unexported: only types of its package declare it
		return t.PkgPath() != method.PkgPath
	}
	m, _ := reflect.PointerTo(t).MethodByName(method.Name)
	fn := runtime.FuncForPC(m.Func.Pointer())
	if fn == nil {
		return false
	}
	file, _ := fn.FileLine(fn.Entry())
	return file == "<autogenerated>"
}
