package resume

import (
	"reflect"
	"slices"
	"sync"
)

// repeatedCall is a call of a function of the standard library that has set or
// registered something for the whole process. A restart makes it again.
type repeatedCall struct {
	Name string // of the function
	F    any
	Args []any
}

var repeated struct {
	sync.Mutex
	calls []repeatedCall
}

// settings are functions of which only the last call counts. A call whose
// argument is smaller than the value only asks for the setting.
var settings = map[string]int64{
	"syscall.Umask": 0, "runtime.GOMAXPROCS": 1, "runtime/debug.SetMemoryLimit": 0,
	"runtime/debug.SetGCPercent": -1 << 63, "runtime/debug.SetMaxStack": -1 << 63, "runtime/debug.SetMaxThreads": -1 << 63,
	"log/slog.SetLogLoggerLevel": -1 << 63,
}

// Repeated returns a function that does the same as f, which has a name, and
// records its calls. init calls f again itself.
func Repeated[F any](name string, f F) F {
	if run == nil {
		return f
	}
	v := reflect.ValueOf(f)
	return reflect.MakeFunc(v.Type(), func(args []reflect.Value) []reflect.Value {
		out := v.Call(args)
		if begun.Load() {
			noteRepeated(name, f, args)
		}
		return out
	}).Interface().(F)
}

func noteRepeated(name string, f any, args []reflect.Value) {
	c := repeatedCall{Name: name, F: f}
	for _, a := range args {
		c.Args = append(c.Args, a.Interface())
	}
	repeated.Lock()
	defer repeated.Unlock()
	if least, ok := settings[name]; ok {
		if args[0].CanInt() && args[0].Int() < least {
			return
		}
		repeated.calls = slices.DeleteFunc(repeated.calls, func(c repeatedCall) bool { return c.Name == name })
	}
	repeated.calls = append(repeated.calls, c)
}

// repeatedCalls returns the calls, to be saved.
func repeatedCalls() []repeatedCall {
	repeated.Lock()
	defer repeated.Unlock()
	return slices.Clone(repeated.calls)
}

// repeat makes the calls of the restored checkpoint.
func repeat(calls []repeatedCall) {
	repeated.Lock()
	repeated.calls = calls
	repeated.Unlock()
	for _, c := range calls {
		f := reflect.ValueOf(c.F)
		var args []reflect.Value
		for i, a := range c.Args {
			v := reflect.ValueOf(a)
			if a == nil {
				v = reflect.Zero(f.Type().In(i))
			}
			args = append(args, v)
		}
		f.Call(args)
	}
}
