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
// bufio.Reader must hold io.EOF itself. Where a state reaches one of these, the
// image names it as a variable of its own, which every program has.

// knownPrefix marks the names of such variables.
const knownPrefix = "std:"

var knownErrors = []struct {
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

// IsKnown reports whether a variable of an image is one that every program has.
func IsKnown(name string) bool { return strings.HasPrefix(name, knownPrefix) }

// known returns the variable of that name.
func known(name string) (rootVar, bool) {
	if ptr, ok := staticVar(name); ok {
		return rootVar{ptr: ptr}, true
	}
	for i := range knownErrors {
		if knownPrefix+knownErrors[i].name == name {
			return knownVar(i)
		}
	}
	return rootVar{}, false
}

func knownVar(i int) (rootVar, bool) {
	v := reflect.ValueOf(knownErrors[i].err)
	if v.Kind() != reflect.Pointer || v.Type().Elem().Size() == 0 {
		return rootVar{}, false
	}
	return rootVar{v.UnsafePointer(), planOf(v.Type().Elem())}, true
}

// knownVars names the variables of that sort that were reached.
func (c *Collector) knownVars(img *Image) {
	guess := 0
	for i := range knownErrors {
		r, ok := knownVar(i)
		if !ok {
			continue
		}
		k := c.pieces.find(uintptr(r.ptr), &guess)
		if k < 0 || c.held[uint32(k)] {
			continue
		}
		if lo, _, p := c.extent(k); lo != uintptr(r.ptr) || p != r.p {
			continue
		}
		r.p.finish()
		c.held[uint32(k)] = true
		img.Vars = append(img.Vars, Var{Name: knownPrefix + knownErrors[i].name, Type: r.p.text, Region: uint64(c.pieces.num.S[k])})
	}
	if whole {
		c.staticVars(img)
	}
}
