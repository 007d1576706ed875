package resume

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/internal/control"
)

// countedLoop is a loop that counts to a known end, as the compiler describes
// it in a frame's type: see loopTag in its package emit.
type countedLoop struct {
	at      int64 // the place in the function
	counter string
	end     string // a field, len(field) or a number
	extra   int64  // 1 if the counter may reach the end
	where   string // main.go:12
}

// loops has the loops of frame types, once they are read.
var loops = make(map[reflect.Type][]countedLoop)

// currentLoop returns how far the program is in the outermost loop that counts,
// or nil.
func currentLoop(frames []any) *control.Loop {
	for _, f := range frames {
		v := reflect.ValueOf(f)
		if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct || v.Elem().NumField() == 0 {
			continue
		}
		v = v.Elem()
		list, ok := loops[v.Type()]
		if !ok {
			list = parseLoops(v.Type().Field(0).Tag.Get("loops"))
			loops[v.Type()] = list
		}
		if v.Field(0).Kind() != reflect.Int {
			continue
		}
		for _, l := range list {
			if l.at != v.Field(0).Int() {
				continue
			}
			done, ok := number(v, l.counter)
			total, ok2 := number(v, l.end)
			if ok && ok2 && done >= 0 && total+l.extra > done {
				return &control.Loop{Where: l.where, Done: done, Total: total + l.extra}
			}
		}
	}
	return nil
}

// parseLoops reads "1=i<n@main.go:12 2=k<=len(rows)@main.go:20".
func parseLoops(text string) (out []countedLoop) {
	for _, s := range strings.Fields(text) {
		var l countedLoop
		at, rest, _ := strings.Cut(s, "=")
		l.at, _ = strconv.ParseInt(at, 10, 64)
		l.counter, rest, _ = strings.Cut(rest, "<")
		if r, ok := strings.CutPrefix(rest, "="); ok {
			rest, l.extra = r, 1
		}
		l.end, l.where, _ = strings.Cut(rest, "@")
		out = append(out, l)
	}
	return out
}

// number returns the value of a field, or of the length of one, or a number.
func number(frame reflect.Value, text string) (int64, bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	name, length := strings.CutPrefix(text, "len(")
	v := frame.FieldByName(strings.TrimSuffix(name, ")"))
	for v.IsValid() && v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch {
	case !v.IsValid():
		return 0, false
	case length:
		switch v.Kind() {
		case reflect.Slice, reflect.Array, reflect.String:
			return int64(v.Len()), true
		}
		return 0, false
	case v.CanInt():
		return v.Int(), true
	case v.CanUint():
		return int64(v.Uint()), v.Uint() < 1<<63
	}
	return 0, false
}
