package opencl

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/cairnrun/cairn/internal/dl"
	"github.com/cairnrun/cairn/internal/driver"
)

// localAlign is the largest alignment of local memory.
const localAlign = 128

// operand is an argument of a launch that is a buffer.
type operand struct {
	arg    int // index of the argument
	b      *buffer
	r      region
	mem    uintptr // the memory that the kernel gets
	part   bool    // mem is a part of b
	moved  bool    // mem is a copy, because the part is not aligned
	shared bool    // mem is the copy of an earlier operand
	writes bool
}

func (q *queue) Launch(v driver.Kernel, global, local [3]int, args []driver.Arg) error {
	k, ok := v.(*kernel)
	if !ok || k.d != q.d {
		return q.d.wrong("Launch", "the kernel belongs to another device")
	}
	dims, err := k.shape(&global, &local)
	if err != nil {
		return err
	}
	if len(args) != len(k.args) {
		return q.d.wrong(k.op, "it takes %d arguments, not %d", len(k.args), len(args))
	}
	var few [8]operand
	operands := few[:0]
	number := int64(0) // number of the command
	defer func() {
		for i := range operands {
			if o := &operands[i]; o.part && number > 0 {
				o.b.given(q, number)
			}
		}
		for i := range operands {
			operands[i].b.unuse()
		}
	}()
	moved, shared := false, k.local
	for i := range args {
		if err := k.fits(i, &args[i]); err != nil {
			return err
		}
		if args[i].Buffer == nil {
			shared += roundUp(args[i].Local, localAlign)
			continue
		}
		o, err := k.operand(i, &args[i])
		if err != nil {
			return err
		}
		operands = append(operands, o)
		moved = moved || o.moved
	}
	if shared > q.d.info.LocalMemory { // PoCL would crash
		return q.d.wrong(k.op, "its groups share %d bytes of local memory, and the device has %d", shared, q.d.info.LocalMemory)
	}
	if moved {
		if err := k.overlaps(operands); err != nil {
			return err
		}
	}

	if err := q.begin(k.op); err != nil {
		return err
	}
	number = q.given + 1
	err = q.launch(k, dims, &global, &local, args, operands)
	for i := range operands {
		if o := &operands[i]; o.moved && !o.shared && o.mem != 0 {
			dl.Call(q.d.a.releaseMem, o.mem) // OpenCL keeps it until the commands are done
		}
	}
	if err != nil {
		q.mu.Unlock()
		return err
	}
	return q.end(k.op)
}

// launch issues the commands of a launch. The caller has locked the queue.
func (q *queue) launch(k *kernel, dims int, global, local *[3]int, args []driver.Arg, operands []operand) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.h == 0 {
		return q.d.wrong(k.op, "its program was closed")
	}
	a := q.d.a
	for i := range operands {
		if o := &operands[i]; o.moved {
			if err := q.move(k, operands, o); err != nil {
				return err
			}
		}
	}
	for i, at := 0, 0; i < len(args); i++ {
		var code int32
		switch arg := &args[i]; {
		case arg.Buffer != nil:
			k.mem = operands[at].mem
			at++
			code = int32(dl.Call(a.setArg, k.h, uintptr(i), unsafe.Sizeof(k.mem), uintptr(unsafe.Pointer(&k.mem))))
		case arg.Local > 0:
			code = int32(dl.Call(a.setArg, k.h, uintptr(i), uintptr(arg.Local), 0))
		default:
			code = int32(dl.Call(a.setArg, k.h, uintptr(i), uintptr(len(arg.Value)), uintptr(unsafe.Pointer(&arg.Value[0]))))
		}
		if code != 0 {
			return q.d.fail(fmt.Sprintf("%s: argument %d", k.op, i), "clSetKernelArg", code, 0)
		}
	}
	for i := range 3 {
		q.sizes[0][i], q.sizes[1][i] = uintptr(global[i]), uintptr(local[i])
	}
	code := int32(dl.Call(a.enqueueKernel, q.h, k.h, uintptr(dims), 0, uintptr(unsafe.Pointer(&q.sizes[0])), uintptr(unsafe.Pointer(&q.sizes[1])), 0, 0, 0))
	if code != 0 {
		return q.d.fail(fmt.Sprintf("%s with %d×%d×%d items in groups of %d×%d×%d", k.op, global[0], global[1], global[2], local[0], local[1], local[2]),
			"clEnqueueNDRangeKernel", code, q.h)
	}
	for i := range operands {
		if o := &operands[i]; o.moved && !o.shared && o.writes {
			if err := q.copyBuffer(k.op+": copy", o.b.mem, o.r.off, o.mem, 0, o.r.n); err != nil {
				return q.d.late(k.op, "clEnqueueCopyBuffer", int32(err.(*driver.Error).Code)) // the kernel has some new arguments by now, but not this one
			}
		}
	}
	return nil
}

// move copies an operand to separate memory.
func (q *queue) move(k *kernel, operands []operand, o *operand) error {
	for i := range operands {
		p := &operands[i]
		if p == o {
			break
		}
		if p.moved && p.b == o.b && p.r == o.r {
			o.mem, o.shared = p.mem, true
			p.writes = p.writes || o.writes // only the first of them is copied back
			return nil
		}
	}
	mem, err := q.d.alloc(fmt.Sprintf("%s: %d bytes for argument %d, which is not aligned", k.op, o.r.n, o.arg), o.r.n)
	if err != nil {
		return err
	}
	o.mem = mem
	return q.copyBuffer(k.op+": copy", mem, 0, o.b.mem, o.r.off, o.r.n)
}

// overlaps refuses overlapping operands if a copy of one would hide what the
// kernel writes to the other.
func (k *kernel) overlaps(operands []operand) error {
	for i := range operands {
		for j := range i {
			o, p := &operands[i], &operands[j]
			if o.b != p.b || !o.moved && !p.moved || !o.writes && !p.writes || o.r == p.r || !o.r.overlaps(p.r) {
				continue
			}
			return k.d.wrong(k.op, "arguments %d and %d overlap, bytes %d to %d and %d to %d of a buffer, and this device needs parts at multiples of %d bytes; pass the whole buffer and an index, or declare both const if they are only read",
				p.arg, o.arg, p.r.off, p.r.end(), o.r.off, o.r.end(), k.d.align)
		}
	}
	return nil
}

// operand prepares argument i, a buffer. The caller calls unuse.
func (k *kernel) operand(i int, arg *driver.Arg) (operand, error) {
	o := operand{arg: i, r: region{arg.Off, arg.Len}, writes: !k.args[i].reads}
	if o.r.n == 0 {
		o.r.n = max(arg.Buffer.Size()-o.r.off, 0)
	}
	b, err := k.d.use(k.op, arg.Buffer, o.r)
	if err != nil {
		return operand{}, err
	}
	o.b = b
	switch {
	case o.r.n == 0:
		err = k.d.wrong(k.op, "argument %d is an empty part of a buffer", i)
	case o.r.off == 0:
		o.mem = b.mem
	case o.r.off%k.d.align == 0:
		o.part = true
		o.mem, err = b.part(k.op, o.r)
	default:
		o.moved = true
	}
	if err != nil {
		b.unuse()
		return operand{}, err
	}
	return o, nil
}

// fits checks that an argument has the kind that the kernel declares. Drivers
// treat any eight bytes as a buffer, and crash.
func (k *kernel) fits(i int, arg *driver.Arg) error {
	given := "a value"
	switch {
	case arg.Buffer != nil && len(arg.Value) == 0 && arg.Local == 0:
		given = "a buffer"
	case arg.Buffer == nil && len(arg.Value) == 0 && arg.Local > 0 && arg.Local <= math.MaxInt32:
		given = "local memory"
	case arg.Buffer != nil || len(arg.Value) == 0 || arg.Local != 0:
		return k.d.wrong(k.op, "argument %d is not one of a buffer, a value and local memory", i)
	}
	declared := given
	switch k.args[i].space {
	case spaceGlobal, spaceConstant:
		declared = "a buffer"
	case spaceLocal:
		declared = "local memory"
	case spacePrivate:
		declared = "a value"
	}
	if given != declared {
		return k.d.wrong(k.op, "argument %d is %s, and the kernel wants %s", i, given, declared)
	}
	return nil
}

// shape checks the sizes of a launch, chooses groups if none are given, rounds
// up to whole groups, and returns the number of dimensions.
func (k *kernel) shape(global, local *[3]int) (dims int, err error) {
	for i, n := range global {
		if n < 1 {
			return 0, k.d.wrong(k.op, "%d work items in dimension %d; there is one at least", n, i)
		}
	}
	if local[0] == 0 {
		*local = k.groups(*global)
	}
	dims = 1
	for i := range 3 {
		if local[i] < 1 || global[i] > math.MaxInt-local[i] {
			return 0, k.d.wrong(k.op, "%d work items in groups of %d in dimension %d", global[i], local[i], i)
		}
		if global[i] = roundUp(global[i], local[i]); global[i] > 1 {
			dims = i + 1
		}
	}
	return dims, nil
}

// groups chooses the size of groups. A driver would do it, too, but PoCL
// chooses another size for almost every number of items, and compiles the
// kernel again for each. There are few powers of two. The best one divides the
// number of items and is not too small; otherwise one that leaves few items
// idle is chosen.
func (k *kernel) groups(global [3]int) [3]int {
	if k.required[0] != 0 {
		return k.required
	}
	budget, least := 256, 32
	if k.d.info.Kind == driver.CPU {
		budget, least = 64, 16
	}
	for budget > max(k.maxGroup, 1) {
		budget /= 2
	}
	var local [3]int
	for i, n := range global {
		size := budget
		for size > 1 && size/2 >= n {
			size /= 2
		}
		for fit := size; fit >= min(least, n); fit /= 2 {
			if n%fit == 0 {
				size = fit
				break
			}
		}
		for size > 8 && roundUp(n, size)-n > n/8 {
			size /= 2
		}
		local[i] = size
		budget /= size
	}
	return local
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
