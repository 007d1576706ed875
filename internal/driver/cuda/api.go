package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/cairnrun/cairn/internal/dl"
)

// api holds the addresses of the driver's functions. A function that an older
// driver lacks has address 0.
type api struct {
	Init, DriverGetVersion, GetErrorName, GetErrorString uintptr

	DeviceGetCount, DeviceGet, DeviceGetName, DeviceTotalMem, DeviceGetAttribute uintptr
	PrimaryCtxRetain, PrimaryCtxRelease, PrimaryCtxGetState                      uintptr
	CtxPush, CtxPop, CtxSynchronize                                              uintptr

	MemGetInfo, MemAlloc, MemFree, MemHostRegister, MemHostUnregister uintptr
	PointerGetAttributes                                              uintptr
	HtoDAsync, DtoHAsync, DtoDAsync, Copy3DAsync, PeerAsync           uintptr
	CanAccessPeer, EnablePeer                                         uintptr

	StreamCreate, StreamDestroy, StreamWaitEvent, StreamQuery        uintptr
	EventCreate, EventDestroy, EventRecord, EventQuery, EventSync    uintptr
	ModuleLoadDataEx, ModuleUnload, ModuleGetFunction                uintptr
	FuncGetAttribute, FuncSetAttribute, FuncGetParamInfo, LaunchKern uintptr
}

// Constants of CUDA that this package uses.
const (
	success            = 0
	errOutOfMemory     = 2
	errInvalidValue    = 1
	errNotReady        = 600
	errNotFound        = 500
	errInvalidContext  = 201
	errHostRegistered  = 712
	errHostNotRegister = 713

	attrMaxThreads     = 1
	attrMaxBlock       = 2 // 3 and 4 for y and z
	attrMaxGrid        = 5 // 6 and 7 for y and z
	attrMaxShared      = 8
	attrUnits          = 16
	attrMajor          = 75
	attrMinor          = 76
	attrMaxSharedOptin = 97

	errPeerEnabled = 704

	memoryDevice = 2 // CU_MEMORYTYPE_DEVICE

	streamNonBlocking = 1
	eventBlocking     = 1
	eventNoTiming     = 2
	hostPortable      = 1

	pointerContext       = 1
	pointerMemoryType    = 2
	pointerIsManaged     = 8
	pointerDeviceOrdinal = 9
	memoryHost           = 1

	funcMaxThreads  = 0
	funcSharedBytes = 1
	funcMaxDynamic  = 8

	jitErrorLog     = 5
	jitErrorLogSize = 6
)

func loadAPI(names []string) (*api, error) {
	lib, err := dl.Open(names...)
	if err != nil {
		return nil, err
	}
	a := &api{}
	for _, f := range []struct {
		to   *uintptr
		name string
	}{
		{&a.Init, "cuInit"},
		{&a.DriverGetVersion, "cuDriverGetVersion"},
		{&a.GetErrorName, "cuGetErrorName"},
		{&a.GetErrorString, "cuGetErrorString"},
		{&a.DeviceGetCount, "cuDeviceGetCount"},
		{&a.DeviceGet, "cuDeviceGet"},
		{&a.DeviceGetName, "cuDeviceGetName"},
		{&a.DeviceTotalMem, "cuDeviceTotalMem_v2"},
		{&a.DeviceGetAttribute, "cuDeviceGetAttribute"},
		{&a.PrimaryCtxRetain, "cuDevicePrimaryCtxRetain"},
		{&a.PrimaryCtxRelease, "cuDevicePrimaryCtxRelease"},
		{&a.PrimaryCtxGetState, "cuDevicePrimaryCtxGetState"},
		{&a.CtxPush, "cuCtxPushCurrent_v2"},
		{&a.CtxPop, "cuCtxPopCurrent_v2"},
		{&a.CtxSynchronize, "cuCtxSynchronize"},
		{&a.MemGetInfo, "cuMemGetInfo_v2"},
		{&a.MemAlloc, "cuMemAlloc_v2"},
		{&a.MemFree, "cuMemFree_v2"},
		{&a.MemHostRegister, "cuMemHostRegister_v2"},
		{&a.MemHostUnregister, "cuMemHostUnregister"},
		{&a.PointerGetAttributes, "cuPointerGetAttributes"},
		{&a.HtoDAsync, "cuMemcpyHtoDAsync_v2"},
		{&a.DtoHAsync, "cuMemcpyDtoHAsync_v2"},
		{&a.DtoDAsync, "cuMemcpyDtoDAsync_v2"},
		{&a.Copy3DAsync, "cuMemcpy3DAsync_v2"},
		{&a.PeerAsync, "cuMemcpyPeerAsync"},
		{&a.CanAccessPeer, "cuDeviceCanAccessPeer"},
		{&a.EnablePeer, "cuCtxEnablePeerAccess"},
		{&a.StreamCreate, "cuStreamCreate"},
		{&a.StreamDestroy, "cuStreamDestroy_v2"},
		{&a.StreamWaitEvent, "cuStreamWaitEvent"},
		{&a.StreamQuery, "cuStreamQuery"},
		{&a.EventCreate, "cuEventCreate"},
		{&a.EventDestroy, "cuEventDestroy_v2"},
		{&a.EventRecord, "cuEventRecord"},
		{&a.EventQuery, "cuEventQuery"},
		{&a.EventSync, "cuEventSynchronize"},
		{&a.ModuleLoadDataEx, "cuModuleLoadDataEx"},
		{&a.ModuleUnload, "cuModuleUnload"},
		{&a.ModuleGetFunction, "cuModuleGetFunction"},
		{&a.FuncGetAttribute, "cuFuncGetAttribute"},
		{&a.FuncSetAttribute, "cuFuncSetAttribute"},
		{&a.LaunchKern, "cuLaunchKernel"},
	} {
		if *f.to, err = lib.Lookup(f.name); err != nil {
			return nil, fmt.Errorf("the NVIDIA driver is too old: %w", err)
		}
	}
	// Version 2 of this function differs only in its effect on other users.
	if addr, err := lib.Lookup("cuDevicePrimaryCtxRelease_v2"); err == nil {
		a.PrimaryCtxRelease = addr
	}
	a.FuncGetParamInfo, _ = lib.Lookup("cuFuncGetParamInfo")
	return a, nil
}

// text returns the meaning of a result.
func (a *api) text(code int32) string {
	var name, what uintptr
	dl.Call(a.GetErrorName, uintptr(code), uintptr(unsafe.Pointer(&name)))
	dl.Call(a.GetErrorString, uintptr(code), uintptr(unsafe.Pointer(&what)))
	switch {
	case name == 0:
		return "unknown error"
	case what == 0:
		return cString(name)
	}
	return cString(name) + ", " + cString(what)
}

// cString copies a C string.
func cString(addr uintptr) string {
	// The address belongs to C, not to Go. This conversion is accepted by go
	// vet.
	p := *(*unsafe.Pointer)(unsafe.Pointer(&addr))
	n := 0
	for n < 1<<16 && *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}

// cBytes returns s with a zero byte at the end.
func cBytes(s string) []byte { return append([]byte(s), 0) }

// nvrtc holds the addresses of the compiler's functions.
type nvrtc struct {
	lib                                                    string
	Version, GetErrorString, CreateProgram, DestroyProgram uintptr
	CompileProgram, GetProgramLogSize, GetProgramLog       uintptr
	GetCUBINSize, GetCUBIN, GetPTXSize, GetPTX             uintptr
	GetNumSupportedArchs, GetSupportedArchs                uintptr
}

func loadNVRTC(names []string) (*nvrtc, error) {
	lib, err := dl.Open(names...)
	if err != nil {
		return nil, err
	}
	n := &nvrtc{lib: lib.Name()}
	for _, f := range []struct {
		to   *uintptr
		name string
	}{
		{&n.Version, "nvrtcVersion"},
		{&n.GetErrorString, "nvrtcGetErrorString"},
		{&n.CreateProgram, "nvrtcCreateProgram"},
		{&n.DestroyProgram, "nvrtcDestroyProgram"},
		{&n.CompileProgram, "nvrtcCompileProgram"},
		{&n.GetProgramLogSize, "nvrtcGetProgramLogSize"},
		{&n.GetProgramLog, "nvrtcGetProgramLog"},
		{&n.GetCUBINSize, "nvrtcGetCUBINSize"},
		{&n.GetCUBIN, "nvrtcGetCUBIN"},
		{&n.GetPTXSize, "nvrtcGetPTXSize"},
		{&n.GetPTX, "nvrtcGetPTX"},
		{&n.GetNumSupportedArchs, "nvrtcGetNumSupportedArchs"},
		{&n.GetSupportedArchs, "nvrtcGetSupportedArchs"},
	} {
		if *f.to, err = lib.Lookup(f.name); err != nil {
			return nil, fmt.Errorf("NVRTC is too old, version 11.2 is needed: %w", err)
		}
	}
	return n, nil
}

func driverNames() []string {
	return []string{"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1", "libcuda.so"}
}

// nvrtcNames lists where NVRTC may be: on the loader's path, in a toolkit, and
// in Python packages such as those of PyTorch.
func nvrtcNames() []string {
	files := []string{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"}
	names := append([]string(nil), files...)
	var dirs []string
	for _, v := range []string{"CUDA_HOME", "CUDA_PATH"} {
		if d := os.Getenv(v); d != "" {
			dirs = append(dirs, filepath.Join(d, "lib64"))
		}
	}
	dirs = append(dirs, "/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64", "/opt/cuda/lib64")
	var roots []string
	for _, v := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if d := os.Getenv(v); d != "" {
			roots = append(roots, d)
			dirs = append(dirs, filepath.Join(d, "lib"))
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		roots = append(roots, filepath.Join(home, ".local"))
	}
	for _, r := range append(roots, "/usr/local", "/usr", "/opt/conda") {
		for _, packages := range []string{"lib/python3*/site-packages", "lib/python3*/dist-packages", "lib/python3/dist-packages"} {
			for _, p := range []string{"nvidia/cu1*/lib", "nvidia/cuda_nvrtc/lib", "torch/lib"} {
				dirs = append(dirs, filepath.Join(r, packages, p))
			}
		}
	}
	for _, d := range dirs {
		for _, f := range files {
			// An invalid pattern, or one that matches nothing, gives no result.
			found, _ := filepath.Glob(filepath.Join(d, f))
			names = append(names, found...)
		}
	}
	return names
}
