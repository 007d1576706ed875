package engine

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/internal/graph"
)

// reshape lets a slice take the values of an array, and an array those of a
// slice: what is a slice in Go is an array in C. It returns roots with the
// types of the image, and a function that copies what was loaded into them to
// the program's variables. The function is nil if no root has changed.
func reshape(img *graph.Image, roots []graph.Root) (out []graph.Root, settle func() error) {
	saved := make(map[string]int, len(img.Vars))
	for i, v := range img.Vars {
		saved[v.Name] = i
	}
	var all []func() error
	var pools [][]int // of each variable; nil: not needed yet
	shapeOf := func(k int) ([]uint64, int) {
		if pools == nil {
			pools = poolsOf(img)
		}
		return dimensions(img, k, pools[k])
	}
	for i, r := range roots {
		k, ok := saved[r.Name]
		if !ok {
			continue
		}
		v := reflect.ValueOf(r.Ptr).Elem()
		text := img.Vars[k].Type
		var ptr reflect.Value
		var set func() error
		switch isSlice := strings.HasPrefix(text, "[]"); {
		case v.Kind() == reflect.Slice && !isSlice && strings.HasPrefix(text, "["):
			dims, _ := shapeOf(k)
			ptr, set = arrayFor(v, dims)
		case v.Kind() == reflect.Array && isSlice:
			_, slices := shapeOf(k)
			ptr, set = sliceFor(r.Name, v, slices)
		}
		if set == nil {
			continue
		}
		if out == nil {
			out = append(out, roots...)
		}
		out[i].Ptr = ptr.Interface()
		all = append(all, set)
	}
	if out == nil {
		return roots, nil
	}
	return out, func() error {
		for _, set := range all {
			if err := set(); err != nil {
				return err
			}
		}
		return nil
	}
}

// poolsOf returns the indices of the pools of each variable.
func poolsOf(img *graph.Image) [][]int {
	pools := make([][]int, len(img.Vars))
	for k := range img.Pools {
		if i := img.Pools[k].Var; i >= 0 && i < len(img.Vars) { // Load refuses others
			pools[i] = append(pools[i], k)
		}
	}
	return pools
}

// dimensions returns the shape of a variable of an image, whose pools are
// given, and how many of its dimensions are those of slices. These come first.
// If slices of one dimension differ in length, or if the variable is not an
// array, it returns nil.
func dimensions(img *graph.Image, index int, pools []int) (dims []uint64, slices int) {
	count := uint64(0) // of elements
	var heads []uint64 // of slices that are elements of slices
	for _, i := range pools {
		if q := &img.Pools[i]; q.Pointers {
			heads = append(heads, q.Count)
		} else {
			count = q.Count
		}
	}
	text := img.Vars[index].Type
	fixed := uint64(1)
	for strings.HasPrefix(text, "[") {
		dim, rest, _ := strings.Cut(text[1:], "]")
		n, err := strconv.ParseUint(dim, 10, 40)
		switch {
		case err == nil && n > 0 && fixed <= 1<<46/n:
			fixed *= n
		case dim == "" && slices == len(dims):
			slices++
		default:
			return nil, 0
		}
		dims, text = append(dims, n), rest
	}
	if slices > 2 || fixed > 0 && count%fixed != 0 || slices == 0 && count < fixed { // elements may be arrays
		return nil, 0
	}
	switch count /= fixed; {
	case slices == 1:
		dims[0] = count
	case slices == 2:
		rows := uint64(0)
		for _, n := range heads { // the variable itself is one of them
			rows = max(rows, n)
		}
		if rows > 0 && count%rows == 0 {
			dims[0], dims[1] = rows, count/rows
		}
	}
	return dims, slices
}

// plain reports whether values of a type are numbers without pointers.
func plain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return plain(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !plain(t.Field(i).Type) {
				return false
			}
		}
		return true
	}
	return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Complex128 && t.Kind() != reflect.Uintptr
}

// arrayFor returns a pointer to an array for the slice v, and a function that
// gives v its values.
func arrayFor(v reflect.Value, dims []uint64) (reflect.Value, func() error) {
	t, depth, total := v.Type(), 0, uint64(1)
	for t.Kind() == reflect.Slice {
		if depth == len(dims) {
			return v, nil
		}
		total *= dims[depth]
		t, depth = t.Elem(), depth+1
	}
	if !plain(t) || t.Size() == 0 {
		return v, nil
	}
	flat := v
	if depth > 1 || uint64(v.Len()) != total {
		flat = reflect.MakeSlice(reflect.SliceOf(t), int(total), int(total))
	}
	array := t
	for i := depth - 1; i >= 0; i-- {
		array = reflect.ArrayOf(int(dims[i]), array)
	}
	return reflect.NewAt(array, flat.UnsafePointer()), func() error {
		rows(v, flat, dims)
		return nil
	}
}

// rows sets the slice v to what is in flat.
func rows(v, flat reflect.Value, dims []uint64) {
	if v.Type().Elem().Kind() != reflect.Slice {
		v.Set(flat.Convert(v.Type()))
		return
	}
	n := int(dims[0])
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	for i := range n {
		k := flat.Len() / n
		rows(v.Index(i), flat.Slice3(i*k, (i+1)*k, (i+1)*k), dims[1:])
	}
}

// sliceFor returns a pointer to a slice (of slices, if depth is more than 1)
// for the array v, and a function that gives v its values.
func sliceFor(name string, v reflect.Value, depth int) (reflect.Value, func() error) {
	t := v.Type()
	for range depth {
		if t.Kind() != reflect.Array {
			return v, nil
		}
		t = t.Elem()
	}
	if !plain(t) || depth == 0 {
		return v, nil
	}
	for range depth {
		t = reflect.SliceOf(t)
	}
	ptr := reflect.New(t)
	if depth == 1 { // it is loaded in place
		ptr.Elem().Set(v.Slice(0, v.Len()))
	}
	return ptr, func() error {
		if err := elements(v, ptr.Elem()); err != nil {
			return fmt.Errorf("%w: variable %q: %w", ErrMismatch, name, err)
		}
		return nil
	}
}

// elements copies a slice to the array v.
func elements(v, from reflect.Value) error {
	if from.Len() != v.Len() {
		return fmt.Errorf("it has %d elements in the checkpoint, and %d in the program", from.Len(), v.Len())
	}
	if from.Type().Elem().Kind() != reflect.Slice {
		reflect.Copy(v, from)
		return nil
	}
	for i := range v.Len() {
		if err := elements(v.Index(i), from.Index(i)); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	return nil
}
