"""libcairn, found and declared."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path

__all__ = ["CLOSE", "Comm", "GATHER", "MAX", "HOOK", "Field", "Options", "Variable", "byref", "library"]


class Options(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t), ("every", c_double), ("every_points", c_uint64), ("mtbf", c_double),
        ("keep", c_int), ("max_bases", c_int), ("memory", c_uint64), ("compression", c_char_p),
        ("fresh", c_int), ("no_signals", c_int), ("no_tracking", c_int), ("group", c_int), ("any_owner", c_int),
        ("helper", c_char_p), ("tiers", c_char_p),
    ]  # fmt: skip


class Field(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("type", c_int), ("offset", c_size_t), ("ndim", c_int), ("dims", c_size_t * 4)]


class Variable(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("type", c_int), ("ndim", c_int), ("dims", POINTER(c_size_t))]


GATHER = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_void_p)
MAX = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(c_uint64), c_int)
CLOSE = ctypes.CFUNCTYPE(None, c_void_p)
HOOK = ctypes.CFUNCTYPE(c_int, c_void_p)


class Comm(ctypes.Structure):
    _fields_ = [("rank", c_int), ("size", c_int), ("context", c_void_p), ("gather", GATHER), ("max", MAX), ("close", CLOSE)]


def _find() -> str:
    """The path of the shared library: CAIRN_LIBRARY, beside this file, or the system's."""
    if name := os.environ.get("CAIRN_LIBRARY"):
        return name
    for name in ("libcairn.so", "libcairn.so.0"):
        path = Path(__file__).with_name(name)
        if path.exists():
            return str(path)
    return ctypes.util.find_library("cairn") or "libcairn.so.0"


_loaded: ctypes.CDLL | None = None


def library() -> ctypes.CDLL:
    """libcairn, loaded once."""
    global _loaded
    if _loaded is not None:
        return _loaded
    name = _find()
    try:
        lib = ctypes.CDLL(name)
    except OSError as e:
        raise ImportError(f"libcairn cannot be loaded ({e}); install it with 'make install', or name it in CAIRN_LIBRARY") from e
    run = c_void_p
    for function, result, arguments in [
        ("cairn_open_comm", c_int, [POINTER(run), c_char_p, POINTER(Options), POINTER(Comm)]),
        ("cairn_protect", c_int, [run, c_char_p, c_void_p, c_int, c_int, POINTER(c_size_t)]),
        ("cairn_unprotect", c_int, [run, c_char_p]),
        ("cairn_stored", c_int, [run, c_char_p, POINTER(c_int), c_int, POINTER(c_size_t)]),
        ("cairn_variables", c_int, [run, c_uint64, POINTER(POINTER(Variable))]),
        ("cairn_struct", c_int, [run, c_char_p, c_size_t, c_int, POINTER(Field), POINTER(c_int)]),
        ("cairn_restore", c_int, [run]),
        ("cairn_resume", c_int, [run]),
        ("cairn_stored_in", c_int, [run, c_uint64, c_char_p, POINTER(c_int), c_int, POINTER(c_size_t)]),
        ("cairn_read", c_int, [run, c_uint64, c_char_p, c_void_p, c_int, c_int, POINTER(c_size_t)]),
        ("cairn_point", c_int, [run]),
        ("cairn_checkpoint", c_int, [run]),
        ("cairn_save", c_int, [run]),
        ("cairn_wait", c_int, [run]),
        ("cairn_begin", c_int, [run]),
        ("cairn_add", c_int, [run, c_char_p]),
        ("cairn_commit", c_int, [run]),
        ("cairn_cancel", None, [run]),
        ("cairn_request", None, [run]),
        ("cairn_request_stop", None, [run]),
        ("cairn_before_save", None, [run, HOOK, c_void_p]),
        ("cairn_last", c_uint64, [run]),
        ("cairn_fopen", c_void_p, [run, c_char_p, c_char_p]),
        ("cairn_fclose", c_int, [run, c_void_p]),
        ("cairn_protect_fd", c_int, [run, c_int, c_char_p]),
        ("cairn_finish", c_int, [run, c_int]),
        ("cairn_close", c_int, [run]),
        ("cairn_error", c_char_p, [run]),
        ("cairn_rank", c_int, [run]),
        ("cairn_ranks", c_int, [run]),
    ]:
        f = getattr(lib, function)
        f.restype, f.argtypes = result, arguments
    _loaded = lib
    return lib
