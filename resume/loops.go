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
	at      int64  // the place in the function
	counter string // a field; "": the loop does not tell when it ends
	begin   string // "", a field or a number
	end     string // a field, len(field) or a number
	extra   int64  // of the end: more iterations
	where   string // main.go:12
}

// loops has the loops of frame types, once they are read.
var loops = make(map[reflect.Type][]countedLoop)

// currentLoop returns how far the program is in its outermost loop, or nil if
// that does not tell.
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
			return l.progress(v)
		}
	}
	return nil
}

// limit bounds counters, so that their differences are numbers, too.
const limit = 1 << 60

// progress returns how far the loop of a frame is, or nil if that makes no
// sense: the program may change the counter and the end.
func (l *countedLoop) progress(frame reflect.Value) *control.Loop {
	done, ok := number(frame, l.counter)
	end, ok2 := number(frame, l.end)
	begin := int64(0)
	if l.begin != "" && ok {
		begin, ok = number(frame, l.begin)
	}
	for _, n := range []int64{done, end, begin, l.extra} {
		ok = ok && -limit < n && n < limit
	}
	done -= begin
	total := end - begin + l.extra
	if !ok || !ok2 || done < 0 || done >= total {
		return nil
	}
	return &control.Loop{Where: l.where, Done: done, Total: total}
}

// parseLoops reads "1=i<n@main.go:12 2=k-5<=len(rows)-1@main.go:20 3=?".
func parseLoops(text string) (out []countedLoop) {
	for _, s := range strings.Fields(text) {
		var l countedLoop
		at, rest, _ := strings.Cut(s, "=")
		l.at, _ = strconv.ParseInt(at, 10, 64)
		if rest != "?" {
			l.counter, rest, _ = strings.Cut(rest, "<")
			l.counter, l.begin, _ = strings.Cut(l.counter, "-")
			rest, l.where, _ = strings.Cut(rest, "@")
			if r, ok := strings.CutPrefix(rest, "="); ok {
				rest, l.extra = r, 1
			}
			l.end = rest
			if i := strings.LastIndexAny(rest, "+-"); i > 0 {
				n, _ := strconv.ParseInt(rest[i:], 10, 64)
				l.end, l.extra = rest[:i], l.extra+n
			}
		}
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
