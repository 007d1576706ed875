package opencl

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cairnrun/cairn/internal/dl"
	"github.com/cairnrun/cairn/internal/driver"
)

// api holds the addresses of the library's functions.
type api struct {
	getPlatformIDs, getDeviceIDs, getDeviceInfo        uintptr
	createContext, releaseContext                      uintptr
	createQueue, releaseQueue, flush, finish           uintptr
	createBuffer, createSubBuffer, releaseMem          uintptr
	write, read, copy, copyRect                        uintptr
	marker, barrier                                    uintptr
	waitForEvents, getEventInfo, releaseEvent          uintptr
	createProgram, buildProgram, releaseProgram        uintptr
	getBuildInfo, getProgramInfo                       uintptr
	createKernel, releaseKernel, setArg, enqueueKernel uintptr
	getKernelInfo, getKernelArgInfo, getGroupInfo      uintptr
}

// libraries lists names of the ICD loader.
var libraries = []string{"libOpenCL.so.1", "libOpenCL.so", "/usr/local/cuda/lib64/libOpenCL.so.1"}

// load opens the first ICD loader with one of these names.
func load(names ...string) (*api, error) {
	lib, err := dl.Open(names...)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, fmt.Errorf("no OpenCL: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("OpenCL is not there: %w; install an ICD loader and a driver (as the packages ocl-icd-libopencl1 and pocl-opencl-icd)", err)
	}
	a := new(api)
	for _, f := range []struct {
		addr *uintptr
		name string
	}{
		{&a.getPlatformIDs, "clGetPlatformIDs"},
		{&a.getDeviceIDs, "clGetDeviceIDs"},
		{&a.getDeviceInfo, "clGetDeviceInfo"},
		{&a.createContext, "clCreateContext"},
		{&a.releaseContext, "clReleaseContext"},
		{&a.createQueue, "clCreateCommandQueue"},
		{&a.releaseQueue, "clReleaseCommandQueue"},
		{&a.flush, "clFlush"},
		{&a.finish, "clFinish"},
		{&a.createBuffer, "clCreateBuffer"},
		{&a.createSubBuffer, "clCreateSubBuffer"},
		{&a.releaseMem, "clReleaseMemObject"},
		{&a.write, "clEnqueueWriteBuffer"},
		{&a.read, "clEnqueueReadBuffer"},
		{&a.copy, "clEnqueueCopyBuffer"},
		{&a.copyRect, "clEnqueueCopyBufferRect"},
		{&a.marker, "clEnqueueMarkerWithWaitList"},
		{&a.barrier, "clEnqueueBarrierWithWaitList"},
		{&a.waitForEvents, "clWaitForEvents"},
		{&a.getEventInfo, "clGetEventInfo"},
		{&a.releaseEvent, "clReleaseEvent"},
		{&a.createProgram, "clCreateProgramWithSource"},
		{&a.buildProgram, "clBuildProgram"},
		{&a.releaseProgram, "clReleaseProgram"},
		{&a.getBuildInfo, "clGetProgramBuildInfo"},
		{&a.getProgramInfo, "clGetProgramInfo"},
		{&a.createKernel, "clCreateKernel"},
		{&a.releaseKernel, "clReleaseKernel"},
		{&a.setArg, "clSetKernelArg"},
		{&a.enqueueKernel, "clEnqueueNDRangeKernel"},
		{&a.getKernelInfo, "clGetKernelInfo"},
		{&a.getKernelArgInfo, "clGetKernelArgInfo"},
		{&a.getGroupInfo, "clGetKernelWorkGroupInfo"},
	} {
		if *f.addr, err = lib.Lookup(f.name); err != nil {
			return nil, fmt.Errorf("OpenCL is older than 1.2: %w; install a newer ICD loader", err)
		}
	}
	return a, nil
}

// From CL/cl.h.
const (
	deviceTypeAll         = 0xFFFFFFFF
	deviceType            = 0x1000
	deviceUnits           = 0x1002
	deviceMaxGroup        = 0x1004
	deviceMaxAlloc        = 0x1010
	deviceBaseAlign       = 0x1019 // in bits
	deviceSingle          = 0x101B
	deviceMemory          = 0x101F
	deviceLocalMemory     = 0x1023
	deviceLittleEndian    = 0x1026
	deviceAvailable       = 0x1027
	deviceCompiler        = 0x1028
	deviceName            = 0x102B
	deviceDriver          = 0x102D
	deviceVersion         = 0x102F
	deviceExtensions      = 0x1030
	deviceDouble          = 0x1032
	typeCPU               = 1 << 1
	typeGPU               = 1 << 2
	correctlyRounded      = 1 << 7
	memReadWrite          = 1 << 0
	createTypeRegion      = 0x1220
	eventStatus           = 0x11D3
	programLog            = 0x1183
	programKernels        = 0x1168
	kernelArgs            = 0x1191
	kernelArgAddress      = 0x1196
	kernelArgQualifier    = 0x1199
	kernelMaxGroup        = 0x11B0
	kernelRequired        = 0x11B1
	kernelLocalMemory     = 0x11B2
	argConst              = 1 << 0
	spaceGlobal           = 0x119B
	spaceLocal            = 0x119C
	spaceConstant         = 0x119D
	spacePrivate          = 0x119E
	codeDeviceNotFound    = -1
	codeNotAvailable      = -2
	codeAllocation        = -4
	codeResources         = -5
	codeHostMemory        = -6
	codeBuild             = -11
	codeFailedInList      = -14
	codeInvalidContext    = -34
	codeInvalidQueue      = -36
	codeInvalidKernelName = -46
	codeBufferSize        = -61
	codeNoPlatform        = -1001
	codeNVIDIAFault       = -9999
)

// bytesOf queries a value of any length with one of the clGet…Info functions.
// obj are the arguments before param.
func bytesOf(fn uintptr, param uintptr, obj ...uintptr) ([]byte, int32) {
	ask := func(n uintptr, p unsafe.Pointer, size *uintptr) int32 {
		switch len(obj) {
		case 1:
			return int32(dl.Call(fn, obj[0], param, n, uintptr(p), uintptr(unsafe.Pointer(size))))
		}
		return int32(dl.Call(fn, obj[0], obj[1], param, n, uintptr(p), uintptr(unsafe.Pointer(size))))
	}
	var size uintptr
	if code := ask(0, nil, &size); code != 0 || size == 0 {
		return nil, code
	}
	p := make([]byte, size)
	if code := ask(size, unsafe.Pointer(&p[0]), &size); code != 0 {
		return nil, code
	}
	return p[:min(size, uintptr(len(p)))], 0
}

// text queries a string. It returns "" if that fails.
func text(fn uintptr, param uintptr, obj ...uintptr) string {
	p, _ := bytesOf(fn, param, obj...)
	for len(p) > 0 && p[len(p)-1] == 0 {
		p = p[:len(p)-1]
	}
	return string(p)
}

// number queries a number of 1 to 8 bytes. It returns 0 if that fails.
func number(fn uintptr, param uintptr, obj ...uintptr) uint64 {
	p, _ := bytesOf(fn, param, obj...)
	var v uint64
	for i := min(len(p), 8) - 1; i >= 0; i-- {
		v = v<<8 | uint64(p[i])
	}
	return v
}

// words describes an error code.
func words(code int32) string {
	if s, ok := codes[code]; ok {
		return s
	}
	return fmt.Sprintf("an error of the driver's own, %d", code)
}

// kind classifies an error that a call returned at once. Late errors, of
// commands that were accepted and then failed, are all driver.ErrLost, because
// their effect on memory is unknown.
func kind(code int32) error {
	switch code {
	case codeAllocation, codeHostMemory, codeBufferSize:
		return driver.ErrMemory
	case codeNotAvailable, codeInvalidContext, codeInvalidQueue, codeNVIDIAFault:
		return driver.ErrLost
	}
	return nil
}

var codes = map[int32]string{
	-1:    "CL_DEVICE_NOT_FOUND: no such device",
	-2:    "CL_DEVICE_NOT_AVAILABLE: the device is not available",
	-3:    "CL_COMPILER_NOT_AVAILABLE: the driver has no compiler",
	-4:    "CL_MEM_OBJECT_ALLOCATION_FAILURE: the device has no memory for it",
	-5:    "CL_OUT_OF_RESOURCES: the device has no resources for it, or a kernel failed",
	-6:    "CL_OUT_OF_HOST_MEMORY: the driver has no host memory",
	-7:    "CL_PROFILING_INFO_NOT_AVAILABLE: there is no profile",
	-8:    "CL_MEM_COPY_OVERLAP: source and destination overlap",
	-9:    "CL_IMAGE_FORMAT_MISMATCH: the formats of images differ",
	-10:   "CL_IMAGE_FORMAT_NOT_SUPPORTED: the format of an image is unknown",
	-11:   "CL_BUILD_PROGRAM_FAILURE: the compiler found errors",
	-12:   "CL_MAP_FAILURE: memory cannot be mapped",
	-13:   "CL_MISALIGNED_SUB_BUFFER_OFFSET: a part of a buffer is not aligned",
	-14:   "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST: a command failed",
	-15:   "CL_COMPILE_PROGRAM_FAILURE: the compiler found errors",
	-16:   "CL_LINKER_NOT_AVAILABLE: the driver has no linker",
	-17:   "CL_LINK_PROGRAM_FAILURE: the linker found errors",
	-18:   "CL_DEVICE_PARTITION_FAILED: the device cannot be divided",
	-19:   "CL_KERNEL_ARG_INFO_NOT_AVAILABLE: nothing is known of the arguments",
	-30:   "CL_INVALID_VALUE: a value is out of range",
	-31:   "CL_INVALID_DEVICE_TYPE: no such type of devices",
	-32:   "CL_INVALID_PLATFORM: no such platform",
	-33:   "CL_INVALID_DEVICE: no such device",
	-34:   "CL_INVALID_CONTEXT: the context is not valid",
	-35:   "CL_INVALID_QUEUE_PROPERTIES: the queue cannot be like that",
	-36:   "CL_INVALID_COMMAND_QUEUE: the queue is not valid, as after a kernel that failed",
	-37:   "CL_INVALID_HOST_PTR: the host memory is not valid",
	-38:   "CL_INVALID_MEM_OBJECT: the buffer is not valid",
	-39:   "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR: the format of an image is not valid",
	-40:   "CL_INVALID_IMAGE_SIZE: an image is too large",
	-41:   "CL_INVALID_SAMPLER: the sampler is not valid",
	-42:   "CL_INVALID_BINARY: the compiled program is not valid",
	-43:   "CL_INVALID_BUILD_OPTIONS: the compiler does not know an option",
	-44:   "CL_INVALID_PROGRAM: the program is not valid",
	-45:   "CL_INVALID_PROGRAM_EXECUTABLE: the program was not built for the device",
	-46:   "CL_INVALID_KERNEL_NAME: no kernel has that name",
	-47:   "CL_INVALID_KERNEL_DEFINITION: the kernel is not the same everywhere",
	-48:   "CL_INVALID_KERNEL: the kernel is not valid",
	-49:   "CL_INVALID_ARG_INDEX: the kernel has fewer arguments",
	-50:   "CL_INVALID_ARG_VALUE: the argument is of another kind",
	-51:   "CL_INVALID_ARG_SIZE: the argument is of another size",
	-52:   "CL_INVALID_KERNEL_ARGS: not all arguments are set",
	-53:   "CL_INVALID_WORK_DIMENSION: too few or too many dimensions",
	-54:   "CL_INVALID_WORK_GROUP_SIZE: the groups are too large for the kernel or the device, or not what the kernel requires",
	-55:   "CL_INVALID_WORK_ITEM_SIZE: the groups are too large in a dimension",
	-56:   "CL_INVALID_GLOBAL_OFFSET: the offset is too large",
	-57:   "CL_INVALID_EVENT_WAIT_LIST: an event to wait for is not valid",
	-58:   "CL_INVALID_EVENT: the event is not valid",
	-59:   "CL_INVALID_OPERATION: the device cannot do that",
	-60:   "CL_INVALID_GL_OBJECT: the graphics object is not valid",
	-61:   "CL_INVALID_BUFFER_SIZE: the buffer is larger than the device allows",
	-62:   "CL_INVALID_MIP_LEVEL: no such level",
	-63:   "CL_INVALID_GLOBAL_WORK_SIZE: too many work items",
	-64:   "CL_INVALID_PROPERTY: no such property",
	-65:   "CL_INVALID_IMAGE_DESCRIPTOR: the image's description is not valid",
	-66:   "CL_INVALID_COMPILER_OPTIONS: the compiler does not know an option",
	-67:   "CL_INVALID_LINKER_OPTIONS: the linker does not know an option",
	-68:   "CL_INVALID_DEVICE_PARTITION_COUNT: the device cannot be divided like that",
	-69:   "CL_INVALID_PIPE_SIZE: the pipe is too large",
	-70:   "CL_INVALID_DEVICE_QUEUE: the device's queue is not valid",
	-71:   "CL_INVALID_SPEC_ID: no such constant",
	-72:   "CL_MAX_SIZE_RESTRICTION_EXCEEDED: too large",
	-1001: "CL_PLATFORM_NOT_FOUND_KHR: no driver is installed",
	-9999: "the driver says that a kernel read or wrote outside of its buffers",
}
