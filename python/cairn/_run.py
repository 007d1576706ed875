"""Runs: the program's connection to its checkpoints."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import weakref
from ctypes import POINTER, byref, c_int, c_size_t, c_void_p
from typing import IO, Any, Callable, Iterable, Iterator, Mapping, MutableMapping, NamedTuple

from ._arrays import NAMES, TYPES, element, memory
from ._library import CLOSE, GATHER, HOOK, MAX, Comm, Field, Options, Variable, library
from ._values import decode, empty, encode, fits, variables


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


class Stopped(SystemExit):
    """The state is saved, and the program should end (see Run.point).

    A program that does not catch it ends with status 0.
    """

    def __init__(self) -> None:
        super().__init__(0)

    def __str__(self) -> str:
        return "the state is saved; start the program again to resume"


class Stored(NamedTuple):
    """A variable in a checkpoint: see Run.variables."""

    dtype: str  # of the elements, as numpy.dtype takes it: "f8"; "": a struct, or a type of another language
    shape: tuple[int, ...]


class _Variable(NamedTuple):
    """What libcairn knows of a variable."""

    address: int
    code: int
    shape: tuple[int, ...]
    owner: Any  # keeps the memory


_JSON = "python"  # the variable with all that is stored as JSON
_ERRORS = {-3: NotSaved, -4: Mismatch, -5: Corrupt, -6: Finished, -7: InUse}
_RESTORED, _STOPPED = 1, 2
_MISMATCH = -4


class State(MutableMapping[str, Any]):
    """Small values of a program, as attributes or items; stored as JSON.

    Values are numbers, texts, bytes, booleans, None, and lists, tuples, dicts and
    small arrays of NumPy with such values. Objects of classes that are derived
    from these are refused: a Counter would be a plain dict after restore(). Values
    are read when a checkpoint is saved, and are new objects after restore().
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
    max_bases: int | None = None,
    memory: int | None = None,
    compression: str | None = None,
    fresh: bool = False,
    signals: bool = True,
    tracking: bool = True,
    group: bool = False,
    any_owner: bool = False,
    comm: Any = None,
    helper: str | os.PathLike[str] | None = None,
    tiers: str | None = None,
) -> Run:
    """Start a run whose checkpoints are kept in ``dir``; None: where 'cairn run' says.

    A checkpoint is due ``every`` so many seconds, or after ``every_points``
    points; with neither, at Young's and Daly's optimum for a failure each
    ``mtbf`` seconds (a day). The newest ``keep`` checkpoints are kept (2), each
    of which may need ``max_bases`` older files (64; negative: none).
    ``compression`` is "none", "zstd" or "gzip", ``memory`` bounds the helper's
    memory for copies in bytes. ``fresh`` discards an earlier run in the
    directory. ``signals=False`` leaves SIGTERM (save and stop) and SIGUSR1
    (save) alone. ``tracking=False`` is needed if another process or the network
    writes memory that is protected. ``group`` and ``any_owner`` are as the
    options of 'cairn run'. ``comm`` is a communicator of mpi4py; then all its processes
    open the run. ``helper`` is the path of the cairn command.
    ``tiers`` says where checkpoints are kept besides, as 'cairn run --tiers' (else
    CAIRN_TIERS in the environment); ``dir`` is then the run directory.
    """
    o = Options(ctypes.sizeof(Options), every or 0, every_points or 0, mtbf or 0, keep or 0, max_bases or 0, memory or 0)
    o.compression = compression.encode() if compression else None
    o.fresh, o.no_signals, o.no_tracking = fresh, not signals, not tracking
    o.group, o.any_owner = group, any_owner
    o.helper = os.fsencode(helper) if helper else None
    o.tiers = tiers.encode() if tiers else None
    return Run(dir, o, comm)


class Run:
    """A program's connection to its checkpoints; see cairn.open.

    One thread at a time uses a run. Use it in a with statement, or close() it.
    """

    state: State

    def __init__(self, dir: str | os.PathLike[str] | None, options: Options, comm: Any) -> None:
        self._lib = library()
        self._handle = c_void_p()
        self._variables: dict[str, _Variable] = {}
        self._types: dict[str, int] = {}  # types of structured arrays
        self._packed: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {}  # what is stored as JSON
        self._objects: dict[str, Any] = {}  # what has a state_dict
        self._names: dict[str, set[str]] = {}  # variables of each of these
        self._files: list[tuple[IO[Any], int | None]] = []  # with libcairn's stream
        self._has_json = False
        self._failed: BaseException | None = None
        self._begun = False  # begin() was called
        self._added: dict[str, Any] = {}  # … and add() with these objects: their values that are no arrays
        self._supervised = bool(os.environ.get("CAIRN_CONTROL"))  # 'cairn run' makes stdout part of the state
        self.state = State()
        self._comm = _comm(comm) if comm is not None and comm.Get_size() > 1 else None
        rc = self._lib.cairn_open_comm(byref(self._handle), os.fsencode(dir) if dir is not None else None, byref(options), byref(self._comm) if self._comm else None)
        try:
            self._check(rc)
        except CairnError:
            handle, self._handle = self._handle, c_void_p()
            self._lib.cairn_close(handle)
            raise
        if self._supervised:  # libcairn has told its environment: programs that this one starts are not the rank
            for name in ("CAIRN_CONTROL", "CAIRN_WRITER"):
                os.environ.pop(name, None)
        me = weakref.ref(self)  # else the run would keep itself alive
        self._hook = HOOK(lambda _: _before_save(me))
        self._lib.cairn_before_save(self._handle, self._hook, None)

    def protect(self, name: str, value: Any) -> None:
        """Make a value part of the state.

        ``value`` is one of:

        - an array of NumPy, CuPy or PyTorch, or anything else with the buffer
          protocol, ``__array_interface__``, ``__cuda_array_interface__`` or
          DLPack, in host memory or on a GPU of NVIDIA. restore() writes into it.
          Its memory must not move; call protect again with another array.
        - a dict, list or tuple of such arrays, as model.state_dict() returns:
          the variables are named ``name.key``.
        - an object with ``state_dict`` and ``load_state_dict``: a model, an
          optimizer or a scheduler of PyTorch. Its arrays are saved from where
          they are, its other values as JSON.
        - a generator of random numbers: the module random, random.Random,
          numpy.random, numpy.random.Generator, RandomState, torch.Generator.
        """
        if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
            self._objects[name] = value
            self._added.pop(name, None)
        elif hasattr(value, "getstate") and hasattr(value, "setstate"):
            self._pack_as(name, value.getstate, value.setstate)
        elif hasattr(value, "get_state") and hasattr(value, "set_state"):
            self._pack_as(name, value.get_state, value.set_state)
        elif hasattr(value, "bit_generator"):
            generator = value.bit_generator
            self._pack_as(name, lambda: generator.state, lambda s: setattr(generator, "state", s))
        elif isinstance(value, Mapping):
            for key, part in value.items():
                self.protect(f"{name}.{key}", part)
        elif isinstance(value, (list, tuple)):
            for i, part in enumerate(value):
                self.protect(f"{name}.{i}", part)
        else:
            self._protect_array(name, value)

    def _protect_array(self, name: str, value: Any) -> None:
        if name == _JSON:
            raise ValueError(f"the name {_JSON!r} is taken: it holds run.state in the file")
        self._protect(name, self._described(name, value))

    def _described(self, name: str, value: Any) -> _Variable:
        try:
            m = memory(value)
        except (TypeError, ValueError) as e:
            raise type(e)(f"{name}: {e}") from e
        dtype = getattr(value, "dtype", None)
        if getattr(dtype, "isalignedstruct", False):
            return _Variable(m.address, self._struct(name, dtype), m.shape, m.owner)
        found = element(m.typestr)
        if found is None:
            raise TypeError(f"{name}: elements of type {m.typestr} cannot be stored")
        return _Variable(m.address, found[0], m.shape + found[1], m.owner)

    def _struct(self, name: str, dtype: Any) -> int:
        """The type code of an aligned structured type of NumPy."""
        if str(dtype) in self._types:
            return self._types[str(dtype)]
        fields = (Field * len(dtype.names))()
        for f, key in zip(fields, dtype.names):
            base, offset = dtype.fields[key][:2]
            dims: tuple[int, ...] = ()
            if base.subdtype is not None:
                base, dims = base.subdtype
            if not base.isnative:
                raise TypeError(f"{name}: member {key} has the byte order of another machine ({base.str})")
            found = (self._struct(name, base), ()) if base.isalignedstruct else element(base.str[1:])
            if found is None or len(dims) + len(found[1]) > 4:
                raise TypeError(f"{name}: member {key} of type {base} cannot be stored")
            dims += found[1]
            f.name, f.type, f.offset, f.ndim = key.encode(), found[0], offset, len(dims)
            f.dims[: len(dims)] = dims
        code = c_int()
        self._check(self._lib.cairn_struct(self._handle, b"numpy", dtype.itemsize, len(fields), fields, byref(code)))
        self._types[str(dtype)] = code.value
        return code.value

    def _protect(self, name: str, v: _Variable) -> None:
        self._check(self._lib.cairn_protect(self._handle, name.encode(), v.address, v.code, len(v.shape), _dims(v.shape)))
        self._variables[name] = v

    def unprotect(self, name: str) -> None:
        """Take what protect() got under a name out of the state."""
        if self._packed.pop(name, None) is not None:
            return
        parts = self._parts(name)
        if self._objects.pop(name, None) is not None:
            self._names.pop(name, None)
            self._added.pop(name, None)
        for part in parts:
            self._unprotect(part)

    def _parts(self, name: str) -> set[str]:
        """The variables that protect() has made under a name."""
        if name in self._objects:
            return set(self._names.get(name, ()))
        return {n for n in self._variables if n.startswith(name + ".")} or {name}

    def _unprotect(self, name: str) -> None:
        self._check(self._lib.cairn_unprotect(self._handle, name.encode()))
        self._variables.pop(name, None)

    def open_file(self, path: str | os.PathLike[str], mode: str = "w") -> IO[Any]:
        """Open a file that is part of the state: a restart cuts it back to its length at the checkpoint.

        Call it before restore(). Unlike open(), mode "w" keeps the file if there
        is a checkpoint to restore.
        """
        flags = mode.replace("b", "").replace("t", "")
        stream = self._lib.cairn_fopen(self._handle, os.fsencode(path), flags.encode())
        if not stream:
            self._check(-1)
        fd = os.dup(_libc.fileno(stream))  # with the stream's position
        file: IO[Any] = os.fdopen(fd, mode.replace("x", "w"))
        self._files.append((file, stream))
        return file

    def protect_file(self, file: IO[Any], path: str | os.PathLike[str] | None = None) -> None:
        """Make an open file part of the state: a restart cuts it back and positions it.

        Open it before restore(), in a mode that does not truncate ("a", "r+").
        ``path`` is needed if file.name is not the path.
        """
        name = path if path is not None else getattr(file, "name", None)
        if not isinstance(name, (str, bytes, os.PathLike)):
            raise TypeError("the path of the file is not known: give it as path")
        file.flush()
        self._check(self._lib.cairn_protect_fd(self._handle, file.fileno(), os.fsencode(name)))
        self._files.append((file, None))

    def variables(self, index: int = 0) -> dict[str, Stored]:
        """Return the names of the arrays in a checkpoint, with their types and shapes.

        ``index`` 0 is the newest checkpoint, and before restore() the one that
        it is going to load; if there is none, the dict is empty. What is stored
        as JSON, such as run.state, is not in it. With several ranks, all call it
        before restore() if one does, and any rank alone after it.
        """
        found = POINTER(Variable)()
        n = self._check(self._lib.cairn_variables(self._handle, index, byref(found)))
        listed = (found[i] for i in range(n))
        return {v.name.decode(): Stored(NAMES.get(v.type, ""), tuple(v.dims[: v.ndim])) for v in listed if v.name != _JSON.encode()}

    def restore(self) -> bool:
        """Restore the newest good checkpoint into what is protected; False: there is none.

        Call it once, before the first point. After an exception, what is
        protected may have the checkpoint's values, or some of them.
        """
        restored = self._restore_objects() if self._objects else self._restore_all()
        for file, _ in self._files:  # libcairn has moved their descriptors
            if not file.closed:
                file.seek(os.lseek(file.fileno(), 0, os.SEEK_CUR))
        return restored

    def _restore_all(self) -> bool:
        text = self._json_buffer(lambda size: self._lib.cairn_stored(self._handle, _JSON.encode(), None, 1, size))
        if text is not None:
            self._protect(_JSON, text)
        self._has_json = bool(text or self.state._values or self._packed)
        if self._check(self._lib.cairn_restore(self._handle)) != _RESTORED:
            return False
        self._unpack(_loads(text))
        return True

    def _restore_objects(self) -> bool:
        """Restore with objects whose variables only the checkpoint knows."""
        self._has_json = True
        if self._check(self._lib.cairn_resume(self._handle)) != _RESTORED:
            return False
        text = self._json_buffer(lambda size: self._lib.cairn_stored_in(self._handle, 0, _JSON.encode(), None, 1, size))
        if text is not None:
            self._read(_JSON, text)
        values = _loads(text)
        trees = values["objects"]
        held = values["variables"]
        expected = set(self._variables).union(*(variables(tree) for tree in trees.values()))
        if expected != set(held):
            raise Mismatch(f"the program and its checkpoint do not both have the variables {_listed(expected ^ set(held))}")
        self._unpack(values)
        for name, v in self._variables.items():
            self._read(name, v)
        for name, value in self._objects.items():
            arrays: dict[str, Any] = {}
            encode(value.state_dict(), name, arrays)
            for part, description in variables(trees[name]).items():
                if part not in arrays or not fits(arrays[part], description):
                    arrays[part] = empty(description)
                self._read(part, self._described(part, arrays[part]))
            value.load_state_dict(decode(trees[name], arrays))
        return True

    def _json_buffer(self, stored: Callable[[Any], int]) -> _Variable | None:
        """Memory for the values in the checkpoint; None: it has none."""
        size = c_size_t()
        rc = stored(byref(size))
        if rc == _MISMATCH:
            return None
        self._check(rc)
        buffer = ctypes.create_string_buffer(size.value)
        return _Variable(ctypes.addressof(buffer), TYPES["u1"], (size.value,), buffer)

    def _read(self, name: str, v: _Variable) -> None:
        address = v.address or ctypes.addressof(self._handle)  # of an empty array: any
        self._check(self._lib.cairn_read(self._handle, 0, name.encode(), address, v.code, len(v.shape), _dims(v.shape)))

    def _unpack(self, values: dict[str, Any]) -> None:
        """Set values from a checkpoint."""
        if self.state._values and values["state"] is None:
            raise Mismatch("the checkpoint has no values for run.state: a program that does not use it has saved it")
        for what, ours in (("packed", self._packed), ("objects", self._objects)):
            if set(values[what]) != set(ours):
                raise Mismatch(f"the program and its checkpoint do not both protect {_listed(set(values[what]) ^ set(ours))}")
        self.state._values.clear()
        self.state._values.update(decode(values["state"] or {}))
        for name, (_, unpack) in self._packed.items():
            unpack(decode(values["packed"][name]))

    def point(self) -> bool:
        """Save if a checkpoint is due; True: one was begun.

        Call it where the state is consistent. Raises Stopped when the program is
        to end: the state is saved. Raises NotSaved when a checkpoint could not
        be saved: the program may catch that, and continue. With several ranks,
        all call it at the same places, and no message may cross it.
        """
        rc = self._lib.cairn_point(self._handle)
        if rc == 0:
            return False
        self._raise_failed()
        if self._check(rc) == _STOPPED:
            raise Stopped
        return True

    def checkpoint(self) -> None:
        """Save now, and return when the checkpoint is durable."""
        rc = self._lib.cairn_checkpoint(self._handle)
        self._raise_failed()
        self._check(rc)

    def save(self) -> None:
        """Begin a checkpoint, and return when the state may change; wait() waits until it is durable."""
        rc = self._lib.cairn_save(self._handle)
        self._raise_failed()
        self._check(rc)

    def wait(self) -> None:
        """Wait until the checkpoint that was begun is durable; NotSaved: it was not saved."""
        self._check(self._lib.cairn_wait(self._handle))

    def begin(self) -> None:
        """Begin a checkpoint of arrays that become ready one after the other: see add() and commit()."""
        self._check(self._lib.cairn_begin(self._handle))
        self._begun = True

    def add(self, name: str) -> None:
        """Copy what protect() got under a name into the checkpoint that was begun: it may change then.

        Random generators and run.state are saved as they are at commit().
        """
        if name in self._packed:
            raise ValueError(f"{name}: only arrays and objects with a state_dict can be added; commit() saves this")
        tree = self._protect_object(name, self._objects[name]) if name in self._objects else None
        for part in self._parts(name):
            self._check(self._lib.cairn_add(self._handle, part.encode()))
        if self._begun and name in self._objects:
            self._added[name] = tree

    def commit(self) -> None:
        """Copy what was not added, and end what begin() has begun, as save()."""
        rc = self._lib.cairn_commit(self._handle)
        self._end_parts()
        self._raise_failed()
        self._check(rc)

    def cancel(self) -> None:
        """Forget what begin() has begun."""
        self._lib.cairn_cancel(self._handle)
        self._end_parts()

    def _end_parts(self) -> None:
        self._begun = False
        self._added.clear()

    def request(self) -> None:
        """Make the next point save. Any thread may call it."""
        self._lib.cairn_request(self._handle)

    def request_stop(self) -> None:
        """Make the next point save and raise Stopped. Any thread may call it."""
        self._lib.cairn_request_stop(self._handle)

    @property
    def last(self) -> int:
        """The index of the newest durable checkpoint; 0: none."""
        return int(self._lib.cairn_last(self._handle))

    @property
    def rank(self) -> int:
        """Which one this process is, from 0."""
        return int(self._lib.cairn_rank(self._handle))

    @property
    def ranks(self) -> int:
        """How many processes there are."""
        return int(self._lib.cairn_ranks(self._handle))

    def finish(self, status: int = 0) -> None:
        """Say that the work is done: the next start is told so."""
        self._flush()
        self._check(self._lib.cairn_finish(self._handle, status))

    def close(self) -> None:
        """Wait for a checkpoint that is being written, and end the run."""
        if not self._handle:
            return
        handle, self._handle = self._handle, c_void_p()
        rc = self._lib.cairn_close(handle)
        for _, stream in self._files:
            if stream is not None:
                _libc.fclose(stream)
        self._files.clear()
        self._variables.clear()
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
            text = self._lib.cairn_error(self._handle) if self._handle else b"the run is closed"
            raise _ERRORS.get(rc, CairnError)(text.decode(errors="replace"))
        return rc

    def _pack_as(self, name: str, pack: Callable[[], Any], unpack: Callable[[Any], Any]) -> None:
        encode(pack(), name)  # what cannot be stored is refused now
        self._packed[name] = (pack, unpack)

    def _flush(self) -> None:
        """Write what is in buffers of files that belong to the state, and forget closed ones."""
        for output in (sys.stdout, sys.__stdout__) if self._supervised else ():
            if output is not None and not output.closed:
                output.flush()
        for entry in list(self._files):
            file, stream = entry
            if not file.closed:
                file.flush()
                continue
            if stream is not None:
                self._lib.cairn_fclose(self._handle, stream)
            self._files.remove(entry)

    def _pack(self) -> None:
        """Prepare what changes its place or its size for a checkpoint."""
        self._flush()
        trees = {name: self._added[name] if name in self._added else self._protect_object(name, value) for name, value in self._objects.items()}
        self._has_json = self._has_json or bool(self.state._values or self._packed or trees)
        if not self._has_json:
            return
        values: dict[str, Any] = {
            "state": encode(self.state._values, "run.state"),
            "packed": {name: encode(pack(), name) for name, (pack, _) in self._packed.items()},
            "objects": trees,
        }
        if trees:
            values["variables"] = sorted(set(self._variables) - {_JSON})
        text = json.dumps(values).encode()
        text += b" " * (-len(text) % 256)  # so that it changes its size seldom
        buffer = ctypes.create_string_buffer(text, len(text))
        self._protect(_JSON, _Variable(ctypes.addressof(buffer), TYPES["u1"], (len(text),), buffer))

    def _protect_object(self, name: str, value: Any) -> Any:
        """Protect an object's arrays where they are now, and return its other values."""
        arrays: dict[str, Any] = {}
        tree = encode(value.state_dict(), name, arrays)
        before = self._names.get(name, set())
        for part, array in arrays.items():
            if part in self._variables and part not in before:
                raise ValueError(f"{part}: two variables have this name")
            self._protect_array(part, array)
        for part in before - set(arrays):
            self._unprotect(part)
        self._names[name] = set(arrays)
        return tree

    def _raise_failed(self) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed


def _before_save(me: weakref.ref[Run]) -> int:
    run = me()
    if run is None:
        return 1
    try:
        run._pack()
    except BaseException as e:  # C cannot raise it
        run._failed = e
        return 1
    return 0


_libc = ctypes.CDLL(None)
_libc.fileno.argtypes = _libc.fclose.argtypes = [c_void_p]


def _dims(shape: tuple[int, ...]) -> Any:
    return (c_size_t * max(len(shape), 1))(*shape)


def _loads(text: _Variable | None) -> dict[str, Any]:
    if text is None:
        return {"state": None, "packed": {}, "objects": {}, "variables": []}
    return dict(json.loads(bytes(text.owner)))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _comm(comm: Any) -> Comm:
    """What libcairn needs of a communicator of mpi4py."""
    from mpi4py import MPI

    own = comm.Dup()

    def gather(_: Any, mine: int, n: int, everything: int) -> int:
        try:
            send = (ctypes.c_char * n).from_address(mine)
            receive = (ctypes.c_char * (n * own.Get_size())).from_address(everything)
            own.Allgather([send, n, MPI.BYTE], [receive, n, MPI.BYTE])
            return 0
        except BaseException:  # C cannot raise it
            return 1

    def most(_: Any, values: Any, n: int) -> int:
        try:
            buffer = (ctypes.c_uint64 * n).from_address(ctypes.addressof(values.contents))
            own.Allreduce(MPI.IN_PLACE, [buffer, n, MPI.UINT64_T], op=MPI.MAX)
            return 0
        except BaseException:
            return 1

    def close(_: Any) -> None:
        if not MPI.Is_finalized():
            own.Free()

    return Comm(own.Get_rank(), own.Get_size(), None, GATHER(gather), MAX(most), CLOSE(close))
