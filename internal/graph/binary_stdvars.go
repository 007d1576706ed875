package graph

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"reflect"
	"strconv"
	"strings"
)

// Programs compare some errors of the standard library by identity: a restored
// bufio.Reader must hold io.EOF itself. If a state refers to such an error, the
// image has a variable for it, with a name that is the same in every program.

// stdPrefix marks the names of such variables.
const stdPrefix = "std:"

var stdErrors = []struct {
	name string
	err  error
}{
	{"io.EOF", io.EOF},
	{"io.ErrUnexpectedEOF", io.ErrUnexpectedEOF},
	{"io.ErrShortWrite", io.ErrShortWrite},
	{"io.ErrShortBuffer", io.ErrShortBuffer},
	{"io.ErrNoProgress", io.ErrNoProgress},
	{"io.ErrClosedPipe", io.ErrClosedPipe},
	{"fs.ErrInvalid", fs.ErrInvalid},
	{"fs.ErrPermission", fs.ErrPermission},
	{"fs.ErrExist", fs.ErrExist},
	{"fs.ErrNotExist", fs.ErrNotExist},
	{"fs.ErrClosed", fs.ErrClosed},
	{"fs.SkipDir", fs.SkipDir},
	{"fs.SkipAll", fs.SkipAll},
	{"os.ErrProcessDone", os.ErrProcessDone},
	{"bufio.ErrInvalidUnreadByte", bufio.ErrInvalidUnreadByte},
	{"bufio.ErrInvalidUnreadRune", bufio.ErrInvalidUnreadRune},
	{"bufio.ErrBufferFull", bufio.ErrBufferFull},
	{"bufio.ErrNegativeCount", bufio.ErrNegativeCount},
	{"bufio.ErrTooLong", bufio.ErrTooLong},
	{"bufio.ErrFinalToken", bufio.ErrFinalToken},
	{"bytes.ErrTooLarge", bytes.ErrTooLarge},
	{"context.Canceled", context.Canceled},
	{"errors.ErrUnsupported", errors.ErrUnsupported},
	{"strconv.ErrRange", strconv.ErrRange},
	{"strconv.ErrSyntax", strconv.ErrSyntax},
}

// IsStdVar reports whether a variable of an image is an error that every
// program has.
func IsStdVar(name string) bool { return strings.HasPrefix(name, stdPrefix) }

// stdVar returns the variable with that name.
func stdVar(name string) (rootVar, bool) {
	if ptr, ok := staticVar(name); ok {
		return rootVar{ptr: ptr}, true
	}
	for i := range stdErrors {
		if stdPrefix+stdErrors[i].name == name {
			return stdVarAt(i)
		}
	}
	return rootVar{}, false
}

func stdVarAt(i int) (rootVar, bool) {
	v := reflect.ValueOf(stdErrors[i].err)
	if v.Kind() != reflect.Pointer || v.Type().Elem().Size() == 0 {
		return rootVar{}, false
	}
	return rootVar{v.UnsafePointer(), planOf(v.Type().Elem())}, true
}

// stdVars names the pieces that are such variables.
func (c *Collector) stdVars(img *Image) {
	guess := 0
	for i := range stdErrors {
		r, ok := stdVarAt(i)
		if !ok {
			continue
		}
		k := c.pieces.find(uintptr(r.ptr), &guess)
		if k < 0 || c.covered[uint32(k)] {
			continue
		}
		if lo, _, p := c.extent(k); lo != uintptr(r.ptr) || p != r.p {
			continue
		}
		r.p.finish()
		c.covered[uint32(k)] = true
		img.Vars = append(img.Vars, Var{Name: stdPrefix + stdErrors[i].name, Type: r.p.text, Region: uint64(c.pieces.num.S[k])})
	}
	if wholeProgram {
		c.staticVars(img)
	}
}
