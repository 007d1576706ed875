"""Where arrays have their memory: NumPy, buffers, CUDA arrays and DLPack."""

from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any, NamedTuple, Optional

class Memory(NamedTuple):
    """An array's memory."""

    address: int
    typestr: str  # kind and bytes of an element, as in __array_interface__ without the byte order
    shape: tuple[int, ...]
    owner: Any  # keeps the memory


def memory(value: Any) -> Memory:
    """Return an array's memory. Raise TypeError if value is none, ValueError if it has gaps."""
    if hasattr(value, "__dlpack__") and hasattr(value, "detach"):  # a tensor of PyTorch
        if hasattr(value, "is_contiguous") and not value.is_contiguous():
            raise ValueError("it is not contiguous: protect a contiguous copy")
        return _of_dlpack(value.detach())
    for name in ("__cuda_array_interface__", "__array_interface__"):  # libcairn knows addresses of CUDA
        if hasattr(value, name):
            return _of_interface(value, getattr(value, name))
    try:
        view = memoryview(value)
    except TypeError:
        if hasattr(value, "__dlpack__"):
            return _of_dlpack(value)
        raise TypeError(f"a value of type {type(value).__name__} has no memory that a restart could fill: store it in run.state, or use an array") from None
    return _of_buffer(view)


def is_array(value: Any) -> bool:
    """Report whether a value is an array of NumPy, CuPy, PyTorch or the like."""
    return any(hasattr(value, a) for a in ("__array_interface__", "__cuda_array_interface__", "__dlpack__"))


def _of_buffer(view: memoryview) -> Memory:
    if view.readonly:
        raise TypeError("its memory is read-only: protect a bytearray, or an array")
    if not view.c_contiguous:
        raise ValueError("it is not contiguous: protect a contiguous copy")
    order, code = view.format[:-1], view.format[-1:]
    kind = {**dict.fromkeys("bhilqn", "i"), **dict.fromkeys("BHILQNc", "u"), **dict.fromkeys("efdg", "f"), "?": "b"}.get(code)
    if kind is None or order not in ("", "@", "=", "<" if sys.byteorder == "little" else ">"):
        raise TypeError(f"elements of format {view.format!r} cannot be stored")
    held = ctypes.c_char.from_buffer(view) if view.nbytes else view  # while it lives, the memory cannot move
    return Memory(ctypes.addressof(held) if view.nbytes else 0, f"{kind}{view.itemsize}", tuple(view.shape), held)


def _of_interface(value: Any, interface: dict[str, Any]) -> Memory:
    address, readonly = interface["data"]
    typestr = interface["typestr"]
    shape = tuple(interface["shape"])
    if readonly:
        raise TypeError("it is read-only")
    if interface.get("mask") is not None:
        raise TypeError("it has a mask: protect its data and its mask")
    if typestr[1] == "O" or getattr(getattr(value, "dtype", None), "hasobject", False):
        raise TypeError("an array of Python objects cannot be stored: use an array of numbers, or run.state")
    size = int(typestr[2:].partition("[")[0]) * (4 if typestr[1] == "U" else 1)
    if interface.get("strides") is not None and not _contiguous(shape, interface["strides"], size):
        if _contiguous(shape[::-1], interface["strides"][::-1], size):
            raise ValueError("it is in the order of Fortran: protect its transpose (u.T), which is stored with the dimensions reversed")
        raise ValueError("it is not contiguous: protect the whole array, or a copy")
    if typestr[0] == (">" if sys.byteorder == "little" else "<"):
        raise TypeError(f"it has the byte order of another machine ({typestr})")
    return Memory(address or 0, typestr[1:], shape, value)


def _contiguous(shape: tuple[int, ...], strides: tuple[int, ...], step: int) -> bool:
    if 0 in shape:
        return True
    for n, stride in zip(reversed(shape), reversed(strides)):
        if n > 1 and stride != step:
            return False
        step *= n
    return True


class _Device(ctypes.Structure):
    _fields_ = [("kind", c_int32), ("id", c_int32)]


class _DType(ctypes.Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class _Tensor(ctypes.Structure):  # DLTensor, with which a DLManagedTensor begins
    _fields_ = [
        ("data", c_void_p), ("device", _Device), ("ndim", c_int32), ("dtype", _DType),
        ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64),
    ]  # fmt: skip


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = c_void_p, [ctypes.py_object, ctypes.c_char_p]

# Codes of DLPack: types (2-byte floats have no type in a checkpoint: their bits
# are stored), and devices.
_CODES = {0: "i", 1: "u", 2: "f", 4: "bf", 5: "c", 6: "b"}
_DEVICES = (1, 2, 3, 11, 13)  # the host's memory, and CUDA's


def _of_dlpack(value: Any) -> Memory:
    capsule = value.__dlpack__()  # frees the memory when it is collected
    t = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    kind = _CODES.get(t.dtype.code)
    if kind is None or t.dtype.lanes != 1 or t.dtype.bits % 8:
        raise TypeError(f"elements of DLPack's type {t.dtype.code} with {t.dtype.bits} bits cannot be stored")
    if t.device.kind not in _DEVICES:
        raise TypeError(f"it is in the memory of a device that Cairn does not save (DLPack's device type {t.device.kind}): protect a copy in host memory")
    size = t.dtype.bits // 8
    shape = tuple(t.shape[i] for i in range(t.ndim))
    if t.strides and not _contiguous(shape, tuple(t.strides[i] * size for i in range(t.ndim)), size):
        raise ValueError("it is not contiguous: protect a contiguous copy")
    address = (t.data or 0) + t.byte_offset
    return Memory(address, f"{'u' if kind == 'bf' else kind}{size}", shape, (capsule, value))


# Type codes of cairn.h, by typestr. The bits of a 2-byte float and the ticks of
# a time are stored as integers.
TYPES = {
    "i1": 1, "i2": 2, "i4": 3, "i8": 4,
    "u1": 5, "u2": 6, "u4": 7, "u8": 8,
    "f2": 6, "f4": 9, "f8": 10, "c8": 11, "c16": 12, "f16": 13, "c32": 14, "b1": 15,
    "m8": 4, "M8": 4,
}  # fmt: skip

BYTES = 16  # without a type: a machine with another byte order refuses them

NAMES = {code: name for name, code in reversed(TYPES.items())}  # f2 is stored as u2, times as i8


def element(typestr: str) -> Optional[tuple[int, tuple[int, ...]]]:
    """Return the type code of an element, and the dimensions that it adds. None: there is no such type."""
    typestr = typestr.partition("[")[0]  # the unit of times
    if typestr in TYPES:
        return TYPES[typestr], ()
    kind, size = typestr[0], int(typestr[1:])
    code = {"S": TYPES["u1"], "U": TYPES["u4"], "V": BYTES}.get(kind)
    if code and size > 0:
        return code, (size,)
    return None
