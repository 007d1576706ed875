"""Runs: the program's connection to its checkpoints."""

from __future__ import annotations

import ctypes
import json
import os
import random
import weakref
from ctypes import byref, c_size_t, c_void_p
from typing import IO, Any, Callable, Iterator, Mapping, MutableMapping

from ._library import GATHER, HOOK, MAX, TYPES, Comm, Options, library


class CairnError(Exception):
    """An error of a run; its text says what to do."""


class NotSaved(CairnError):
    """A checkpoint was not saved. The program and older checkpoints are intact."""


class Mismatch(CairnError):
    """The program and its checkpoint do not fit."""


class Corrupt(CairnError):
    """No checkpoint can be loaded."""


class Finished(CairnError):
    """The run in the directory has finished; ``fresh=True`` starts over."""


class InUse(CairnError):
    """Another process uses the directory."""


class Stopped(Exception):
    """The state is saved, and the program should end (see Run.point)."""


_ERRORS = {-3: NotSaved, -4: Mismatch, -5: Corrupt, -6: Finished, -7: InUse}
_RESTORED, _STOPPED = 1, 2
_MISMATCH = -4


class State(MutableMapping[str, Any]):
    """Small values of a program, as attributes or items; stored as JSON.

    Values are what JSON has: numbers, texts, booleans, None, lists, and dicts
    with texts as keys.
    """

    _values: dict[str, Any]

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {})

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"the state has no {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._values[name] = value

    def __delattr__(self, name: str) -> None:
        del self._values[name]

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"State({self._values!r})"


def open(  # noqa: A001  (as io.open)
    dir: str | os.PathLike[str] | None = None,
    *,
    every: float | None = None,
    every_points: int | None = None,
    mtbf: float | None = None,
    keep: int | None = None,
    memory: int | None = None,
    compression: str | None = None,
    fresh: bool = False,
    comm: Any = None,
    helper: str | None = None,
) -> Run:
    """Start a run whose checkpoints are kept in ``dir``.

    A checkpoint is due ``every`` so many seconds, or after ``every_points``
    points; with neither, at Young's and Daly's optimum for a failure each
    ``mtbf`` seconds (a day). ``comm`` is a communicator of mpi4py. ``fresh``
    discards an earlier run in the directory.
    """
    o = Options(ctypes.sizeof(Options), every or 0, every_points or 0, mtbf or 0, keep or 0, 0, memory or 0)
    o.compression = compression.encode() if compression else None
    o.fresh = fresh
    o.helper = os.fsencode(helper) if helper else None
    return Run(dir, o, comm)


class Run:
    """A program's connection to its checkpoints; see cairn.open."""

    def __init__(self, dir: str | os.PathLike[str] | None, options: Options, comm: Any) -> None:
        self._lib = library()
        self._handle = c_void_p()
        self._kept: dict[str, Any] = {}  # what the library has addresses of
        self._packed: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {}  # what is stored as JSON
        self._restored = False
        self.state = State()
        self._comm = _comm(comm) if comm is not None and comm.Get_size() > 1 else None
        rc = self._lib.cairn_open_comm(byref(self._handle), os.fsencode(dir) if dir is not None else None, byref(options), byref(self._comm) if self._comm else None)
        try:
            self._check(rc)
        except CairnError:
            self._lib.cairn_close(self._handle)
            self._handle = c_void_p()
            raise
        me = weakref.ref(self)  # else the run would keep itself alive
        self._hook = HOOK(lambda _: _pack(me))
        self._failed: BaseException | None = None
        self._lib.cairn_before_save(self._handle, self._hook, None)

    def protect(self, name: str, value: Any) -> None:
        """Make an array, or several, part of the state.

        ``value`` is an array in host memory (NumPy, or anything else with the
        buffer protocol or __array_interface__), a dict or list of such arrays,
        random.Random, or numpy.random.Generator. Its memory must not move.
        """
        if isinstance(value, random.Random) or value is random:
            self._pack_as(name, lambda: _random_state(value.getstate()), lambda s: value.setstate((s[0], tuple(s[1]), s[2])))
        elif hasattr(value, "bit_generator"):
            generator = value.bit_generator
            self._pack_as(name, lambda: _plain(generator.state), lambda s: setattr(generator, "state", _arrays(s)))
        elif isinstance(value, Mapping):
            for key, part in value.items():
                self.protect(f"{name}.{key}", part)
        elif isinstance(value, (list, tuple)):
            for i, part in enumerate(value):
                self.protect(f"{name}.{i}", part)
        else:
            self._protect_array(name, value)

    def _protect_array(self, name: str, value: Any) -> None:
        address, typestr, shape, owner = _memory(value)
        code = TYPES.get(typestr)
        if code is None:
            raise TypeError(f"{name}: elements of type {typestr} cannot be stored")
        self._kept[name] = owner
        self._protect(name, address, code, shape)

    def _protect(self, name: str, address: int, code: int, shape: tuple[int, ...]) -> None:
        dims = (c_size_t * max(len(shape), 1))(*shape)
        self._check(self._lib.cairn_protect(self._handle, name.encode(), address, code, len(shape), dims))

    def unprotect(self, name: str) -> None:
        """Take a variable out of the state."""
        self._check(self._lib.cairn_unprotect(self._handle, name.encode()))
        self._kept.pop(name, None)

    def protect_file(self, file: IO[Any], path: str | None = None) -> None:
        """Make an open file part of the state: a restart cuts it back and positions it.

        Open it before restore(), in a mode that does not truncate ("a", "r+") or,
        on a first start, does. It is flushed by every save.
        """
        fd = file.fileno()
        self._check(self._lib.cairn_protect_fd(self._handle, fd, os.fsencode(path or file.name)))
        self._packed[f"file {fd}"] = (lambda: None if file.closed else file.flush(), lambda _: file.seek(os.lseek(fd, 0, os.SEEK_CUR)))

    def restore(self) -> bool:
        """Restore the newest good checkpoint into what is protected; False: there is none."""
        if not self._prepare_json():
            self._write_json(self._values())
        rc = self._check(self._lib.cairn_restore(self._handle))
        self._restored = True
        if rc != _RESTORED:
            return False
        values = json.loads(bytes(self._kept[_JSON]))
        self.state._values.clear()
        self.state._values.update(values.pop("state"))
        for name, (_, unpack) in self._packed.items():
            if name in values:
                unpack(values[name])
        return True

    def point(self) -> bool:
        """Save if a checkpoint is due; True: one was begun.

        Call it where the state is consistent. Raises Stopped when the program is
        to end, and NotSaved when a checkpoint could not be saved: the program
        may catch that, and continue.
        """
        rc = self._lib.cairn_point(self._handle)
        if rc == 0:
            return False
        self._raise_failed()
        if self._check(rc) == _STOPPED:
            raise Stopped("the state is saved; start the program again to resume")
        return True

    def checkpoint(self) -> None:
        """Save now, and return when the checkpoint is durable."""
        rc = self._lib.cairn_checkpoint(self._handle)
        self._raise_failed()
        self._check(rc)

    def request(self) -> None:
        """Make the next point save."""
        self._lib.cairn_request(self._handle)

    @property
    def last(self) -> int:
        """The index of the newest durable checkpoint; 0: none."""
        return int(self._lib.cairn_last(self._handle))

    @property
    def rank(self) -> int:
        return int(self._lib.cairn_rank(self._handle))

    @property
    def ranks(self) -> int:
        return int(self._lib.cairn_ranks(self._handle))

    def finish(self, status: int = 0) -> None:
        """Say that the work is done: the next start is told so."""
        self._check(self._lib.cairn_finish(self._handle, status))

    def close(self) -> None:
        """Wait for a checkpoint that is being written, and end the run."""
        if self._handle:
            handle, self._handle = self._handle, c_void_p()
            rc = self._lib.cairn_close(handle)
            if rc < 0:
                raise _ERRORS.get(rc, CairnError)("the last checkpoint was not saved")

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._lib.cairn_close(self._handle)

    def _check(self, rc: int) -> int:
        if rc < 0:
            text = self._lib.cairn_error(self._handle)
            raise _ERRORS.get(rc, CairnError)(text.decode(errors="replace") if text else f"status {rc}")
        return rc

    # Small values.

    def _pack_as(self, name: str, pack: Callable[[], Any], unpack: Callable[[Any], Any]) -> None:
        self._packed[name] = (pack, unpack)

    def _values(self) -> dict[str, Any]:
        values = {name: pack() for name, (pack, _) in self._packed.items()}
        values["state"] = self.state._values
        return values

    def _write_json(self, values: dict[str, Any]) -> None:
        text = json.dumps(values).encode()
        text += b" " * (-len(text) % 256)  # so that it changes its size seldom
        buffer = ctypes.create_string_buffer(text, len(text))
        self._protect(_JSON, ctypes.addressof(buffer), TYPES["u1"], (len(text),))
        self._kept[_JSON] = buffer

    def _prepare_json(self) -> bool:
        """Make memory for the values of the checkpoint to restore; False: there is none."""
        size = c_size_t()
        rc = self._lib.cairn_stored(self._handle, _JSON.encode(), None, 1, byref(size))
        if rc == _MISMATCH:
            return False
        self._check(rc)
        buffer = ctypes.create_string_buffer(size.value)
        self._protect(_JSON, ctypes.addressof(buffer), TYPES["u1"], (size.value,))
        self._kept[_JSON] = buffer
        return True

    def _raise_failed(self) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed


_JSON = "python"


def _pack(me: weakref.ref[Run]) -> int:
    run = me()
    if run is None:
        return 1
    try:
        run._write_json(run._values())
    except BaseException as e:  # C cannot raise it
        run._failed = e
        return 1
    return 0


def _memory(value: Any) -> tuple[int, str, tuple[int, ...], Any]:
    """Address, type and shape of an array's memory, and what keeps it alive."""
    interface = getattr(value, "__array_interface__", None)
    if interface is None:
        view = memoryview(value)
        if view.readonly:
            raise TypeError("the memory is read-only: protect a bytearray, or an array")
        if not view.c_contiguous:
            raise ValueError("the memory is not contiguous")
        typestr = {"b": "i", "h": "i", "i": "i", "l": "i", "q": "i", "f": "f", "d": "f", "?": "b"}.get(view.format, "u")
        address = ctypes.addressof(ctypes.c_char.from_buffer(view.cast("B"))) if view.nbytes else 0
        return address, f"{typestr}{view.itemsize}", tuple(view.shape), view
    address, readonly = interface["data"]
    if readonly:
        raise TypeError("the array is read-only")
    if interface.get("strides") is not None and not _contiguous(interface):
        raise ValueError("the array is not contiguous in C order: protect numpy.ascontiguousarray of it")
    typestr = interface["typestr"]
    if typestr[0] == (">" if _LITTLE else "<"):
        raise TypeError(f"the array has the byte order of another machine ({typestr})")
    return address, typestr[1:], tuple(interface["shape"]), value


_LITTLE = memoryview((1).to_bytes(2, "little")).cast("H")[0] == 1

def _contiguous(interface: Mapping[str, Any]) -> bool:
    step = int(interface["typestr"][2:])
    for n, stride in zip(reversed(interface["shape"]), reversed(interface["strides"])):
        if n > 1 and stride != step:
            return False
        step *= n
    return True


def _random_state(state: tuple[int, tuple[int, ...], float | None]) -> list[Any]:
    version, words, gauss = state
    return [version, list(words), gauss]


def _plain(v: Any) -> Any:
    """A generator's state, arrays as lists."""
    if isinstance(v, dict):
        return {k: _plain(x) for k, x in v.items()}
    if hasattr(v, "tolist"):
        return {"cairn.array": str(v.dtype), "values": v.tolist()} if getattr(v, "ndim", 0) else v.tolist()
    return v


def _arrays(v: Any) -> Any:
    if isinstance(v, dict) and "cairn.array" in v:
        import numpy

        return numpy.array(v["values"], dtype=v["cairn.array"])
    if isinstance(v, dict):
        return {k: _arrays(x) for k, x in v.items()}
    return v


def _comm(comm: Any) -> Comm:
    """What libcairn needs of a communicator of mpi4py."""
    own = comm.Dup()

    def gather(_: Any, mine: int, n: int, everything: int) -> int:
        try:
            send = (ctypes.c_char * n).from_address(mine)
            receive = (ctypes.c_char * (n * own.Get_size())).from_address(everything)
            own.Allgather([send, n, _byte()], [receive, n, _byte()])
            return 0
        except BaseException:  # C cannot raise it
            return 1

    def most(_: Any, values: Any, n: int) -> int:
        try:
            mine = [values[i] for i in range(n)]
            for part in own.allgather(mine):
                mine = [max(a, b) for a, b in zip(mine, part)]
            for i in range(n):
                values[i] = mine[i]
            return 0
        except BaseException:
            return 1

    return Comm(own.Get_rank(), own.Get_size(), None, GATHER(gather), MAX(most))


def _byte() -> Any:
    from mpi4py import MPI

    return MPI.BYTE
