"""Tests of package cairn, for pytest and for "python3 -m unittest discover python/tests".

They need libcairn (CAIRN_LIBRARY), the cairn command (CAIRN_HELPER) and NumPy.
"""

from __future__ import annotations

import array
import collections
import ctypes
import enum
import gc
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import fake_torch
import numpy as np

import cairn


class Case(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.base = Path(holder.name)
        self.dir = self.base / "ckpt"

    def open(self, **options: Any) -> cairn.Run:
        return cairn.open(self.dir, **{"every": 1e6, **options})

    def save(self, name: str, value: Any) -> None:
        """Save a checkpoint of one value."""
        with self.open() as run:
            run.protect(name, value)
            self.assertFalse(run.restore())
            run.checkpoint()

    def load(self, name: str, value: Any) -> None:
        with self.open() as run:
            run.protect(name, value)
            self.assertTrue(run.restore())


class Arrays(Case):
    def test_every_type(self) -> None:
        types = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "g", "c8", "c16", "G", "?", "M8[s]", "m8[ms]", "S5", "U3", "V7"]
        made = {t: np.frombuffer(bytes(i % 2 for i in range(6 * np.dtype(t).itemsize)), dtype=t).reshape(2, 3).copy() for t in types}
        self.save("x", made)
        found = {t: np.zeros_like(a) for t, a in made.items()}
        self.load("x", found)
        for t, a in made.items():
            self.assertEqual(a.tobytes(), found[t].tobytes(), t)

    def test_variables(self) -> None:
        a, b, c = np.zeros((2, 3)), np.zeros((), np.int32), np.zeros(4, np.dtype([("x", "f8"), ("n", "i4")], align=True))
        with self.open() as run:
            self.assertEqual(run.variables(), {})
            for name, value in ("a", a), ("b", b), ("c", c), ("d", {"half": np.zeros(5, "f2")}), ("none", np.zeros((0, 3), "i4")):
                run.protect(name, value)
            run.state.step = 1
            self.assertFalse(run.restore())
            self.assertEqual(run.variables(), {})
            run.checkpoint()
            want = {"a": ("f8", (2, 3)), "b": ("i4", ()), "c": ("", (4,)), "d.half": ("u2", (5,)), "none": ("i4", (0, 3))}
            self.assertEqual(run.variables(), want)
            self.assertEqual(run.variables(1), want)
            with self.assertRaises(cairn.CairnError):
                run.variables(2)
            self.assertEqual(np.dtype(run.variables()["a"].dtype), a.dtype)
        with self.open() as run:  # a program that knows nothing of what was saved
            found = run.variables()
            self.assertEqual(found, want)
            arrays = {name: np.ones(v.shape, v.dtype) for name, v in found.items() if v.dtype}
            arrays["c"] = np.ones_like(c)
            for name, value in arrays.items():
                run.protect(name, value)
            self.assertTrue(run.restore())
            self.assertEqual(arrays["a"].sum(), 0)

    def test_structured(self) -> None:
        inner = np.dtype([("x", "f8"), ("tag", "S3")], align=True)
        aligned = np.dtype([("id", "i4"), ("at", "f8", (3,)), ("kind", "u1"), ("part", inner)], align=True)
        packed = np.dtype([("id", "i4"), ("at", "f8", (3,)), ("kind", "u1")])
        for dtype in (aligned, packed):
            with self.subTest(dtype):
                self.dir = self.base / f"{dtype.itemsize}"
                a = np.zeros(4, dtype)
                a["id"], a["at"], a["kind"] = np.arange(4), 0.5, 7
                self.save("a", a)
                b = np.zeros(4, dtype)
                self.load("a", b)
                np.testing.assert_array_equal(a, b)

    def test_shapes(self) -> None:
        for a in (np.array(5.0), np.zeros((0, 3)), np.ones((1, 1, 1)), np.arange(24.0).reshape(2, 3, 4)[1]):
            with self.subTest(a.shape):
                self.dir = self.base / f"{a.shape}"
                self.save("a", a)
                b = np.empty(a.shape)
                self.load("a", b)
                np.testing.assert_array_equal(a, b)

    def test_buffers(self) -> None:
        values: list[Any] = [array.array("d", [1, 2, 3]), bytearray(b"abc"), (ctypes.c_int * 3)(1, 2, 3)]
        empty: list[Any] = [array.array("d", [0, 0, 0]), bytearray(3), (ctypes.c_int * 3)()]
        self.save("b", values)
        self.load("b", empty)
        for v, e in zip(values, empty):
            self.assertEqual(bytes(v), bytes(e))

    def test_buffer_cannot_move(self) -> None:
        text = bytearray(b"abc")
        with self.open() as run:
            run.protect("text", text)
            with self.assertRaises(BufferError):
                text += b"def"

    def test_dlpack(self) -> None:
        class OnlyDLPack:
            def __init__(self, array: Any) -> None:
                self.array = array

            def __dlpack__(self) -> Any:
                return self.array.__dlpack__()

        for dtype in ("i4", "f8", "f2", "c16", "u1"):
            with self.subTest(dtype):
                self.dir = self.base / dtype
                self.save("a", OnlyDLPack(np.arange(6, dtype=dtype).reshape(2, 3)))
                b = np.zeros((2, 3), dtype)
                self.load("a", OnlyDLPack(b))
                np.testing.assert_array_equal(b, np.arange(6, dtype=dtype).reshape(2, 3))
        with self.open(fresh=True) as run, self.assertRaisesRegex(ValueError, "a: it is not contiguous"):
            run.protect("a", OnlyDLPack(np.zeros((4, 4))[:, 1]))

    def test_gpu_without_driver(self) -> None:
        class OnGPU:
            __cuda_array_interface__ = {"data": (1 << 40, False), "shape": (3,), "typestr": "<f4", "version": 3}

        with self.open() as run, self.assertRaisesRegex(cairn.CairnError, '"a".*CUDA driver'):
            run.protect("a", OnGPU())

    def test_other_device(self) -> None:
        class Elsewhere:
            array = np.zeros(3)

            def __dlpack__(self) -> Any:
                capsule = self.array.__dlpack__()
                tensor = cairn._arrays._Tensor.from_address(cairn._arrays._pointer(capsule, b"dltensor"))
                tensor.device.kind = 10
                return capsule

        with self.open() as run, self.assertRaisesRegex(TypeError, "a: .*device type 10.*copy in host memory"):
            run.protect("a", Elsewhere())

    def test_refused(self) -> None:
        read_only = np.zeros(3)
        read_only.flags.writeable = False
        for value, error, why in [
            (np.zeros((4, 4))[:, 1], ValueError, "u: it is not contiguous"),
            (np.zeros((4, 4))[::-1], ValueError, "not contiguous"),
            (np.zeros((4, 3), order="F"), ValueError, r"u\.T"),
            (np.zeros((2, 4), "M8[s]")[:, ::2], ValueError, "not contiguous"),
            (np.zeros((2, 4), "U3")[:, ::2], ValueError, "not contiguous"),
            (np.zeros(3, ">f8" if sys.byteorder == "little" else "<f8"), TypeError, "byte order"),
            (np.zeros(3, np.dtype([("x", ">f8" if sys.byteorder == "little" else "<f8")], align=True)), TypeError, "member x .* byte order"),
            (np.array([None, {}]), TypeError, "objects"),
            (read_only, TypeError, "read-only"),
            (b"abc", TypeError, "read-only"),
            (5, TypeError, "u: .*run.state"),
            ([1.5], TypeError, r"u\.0: .*run.state"),
            (random.SystemRandom(), NotImplementedError, ""),
        ]:
            with self.subTest(why), self.open(fresh=True) as run, self.assertRaisesRegex(error, why):
                run.protect("u", value)

    def test_options(self) -> None:
        for option, value in {"every": 1e9, "mtbf": -1, "keep": -1, "compression": "lz4"}.items():
            with self.subTest(option), self.assertRaisesRegex(cairn.CairnError, f"{option} is .*: give "):
                self.open(**{option: value})

    def test_names(self) -> None:
        for name in ["", "..", "a/b", "a\nb", 201 * "u"]:
            with self.subTest(name), self.open(fresh=True) as run, self.assertRaisesRegex(cairn.CairnError, "a name has"):
                run.protect(name, np.zeros(3))

    def test_taken_name(self) -> None:
        with self.open() as run, self.assertRaisesRegex(ValueError, "taken"):
            run.protect("python", np.zeros(3))

    def test_moved_and_resized(self) -> None:
        with self.open() as run:
            run.protect("a", np.zeros(3))
            run.restore()
            run.checkpoint()
            run.protect("a", np.arange(7.0))
            gc.collect()  # the first array is not needed any more
            run.checkpoint()
        a = np.zeros(7)
        self.load("a", a)
        np.testing.assert_array_equal(a, np.arange(7.0))

    def test_unprotect(self) -> None:
        with self.open() as run:
            run.protect("a", {"x": np.zeros(3), "y": np.zeros(2)})
            run.protect("rng", random.Random(1))
            run.protect("b", np.ones(2))
            run.restore()
            run.unprotect("a")
            run.unprotect("rng")
            with self.assertRaisesRegex(cairn.CairnError, "no variable"):
                run.unprotect("c")
            run.checkpoint()
        b = np.zeros(2)
        self.load("b", b)
        self.assertEqual(b.tolist(), [1, 1])

    def test_mismatch(self) -> None:
        self.save("a", np.zeros(3))
        for name, value in (("a", np.zeros(4)), ("a", np.zeros(3, "i8")), ("b", np.zeros(3))):
            with self.subTest(name), self.open() as run:
                run.protect(name, value)
                self.assertRaises(cairn.Mismatch, run.restore)


class Values(Case):
    def test_state(self) -> None:
        state = {
            "n": 3, "big": 1 << 90, "x": 0.1, "nothing": None, "yes": True, "text": "ä", "raw": b"\x00\xff", "z": 1 - 2j, "list": [1, [2, "3"]],
            "pair": (1, (2, 3)), "by_number": {1: "a", (2, 3): "b"}, "odd": {"cairn": "tuple"}, "inf": math.inf, "f4": np.float32(0.1), "a": np.arange(3, dtype="i2"),
        }  # fmt: skip
        with self.open() as run:
            run.restore()
            run.state.update(state)
            run.checkpoint()
        with self.open() as run:
            run.state.n = 0
            self.assertTrue(run.restore())
            self.assertEqual(list(run.state), list(state))
            for key, value in state.items():
                if key != "a":
                    self.assertEqual(run.state[key], value, key)
                self.assertIs(type(run.state[key]), type(value), key)
            self.assertEqual((run.state.a.tolist(), run.state.a.dtype), ([0, 1, 2], np.dtype("i2")))
            del run.state.n
            self.assertFalse(hasattr(run.state, "n"))

    def test_state_that_cannot_be_stored(self) -> None:
        with self.open() as run:
            run.state.good = 1
            run.restore()
            run.checkpoint()
            run.state.bad = {"x": [object()]}
            with self.assertRaisesRegex(TypeError, r"run\.state\.bad\.x\.0"):
                run.checkpoint()
            del run.state.bad
            run.checkpoint()
            self.assertEqual(run.last, 2)

    def test_state_with_arrays(self) -> None:
        state = {
            "z": np.array([1 + 2j, 3]), "one": np.complex64(1 - 1j), "text": np.array(["ab", "ä"]), "raw": np.array([b"a", b"\xff\x00b"]),
            "none": np.zeros((0, 3), "f4"), "zero": np.array(5, "u1"), "nan": np.array([math.nan, -0.0, math.inf]), "yes": np.array([[True], [False]]),
        }  # fmt: skip
        with self.open() as run:
            run.restore()
            run.state.update(state)
            run.checkpoint()
        with self.open() as run:
            self.assertTrue(run.restore())
            for key, value in state.items():
                found = run.state[key]
                self.assertEqual((type(found), found.dtype, found.shape, found.tobytes()), (type(value), value.dtype, value.shape, value.tobytes()), key)

    def test_state_that_would_change(self) -> None:
        class Kind(enum.IntEnum):
            A = 1

        pair = collections.namedtuple("pair", "x y")
        with self.open() as run:
            run.restore()
            for value, why in [
                (collections.Counter("a"), "Counter would be a dict"), ([collections.OrderedDict(a=1)], "OrderedDict would be a dict"), (Kind.A, "Kind would be a int"), (pair(1, 2), "pair would be a tuple"),
                (np.zeros(2, "i4,f8"), "protect the array"), (np.zeros(2, "M8[s]"), "protect the array"), (np.longdouble(1), "protect the array"), (np.array([None]), "protect the array"),
            ]:
                with self.subTest(why), self.assertRaisesRegex(TypeError, r"run\.state\.bad.*" + why):
                    run.state.bad = value
                    run.checkpoint()

    def test_state_of_other_programs(self) -> None:
        self.save("a", np.zeros(3))
        with self.open() as run:
            run.protect("a", np.zeros(3))
            run.state.step = 0
            self.assertRaisesRegex(cairn.Mismatch, "run.state", run.restore)

    def test_generators(self) -> None:
        def made() -> dict[str, Any]:
            return {
                "module": random, "python": random.Random(1), "numpy": np.random, "legacy": np.random.RandomState(2), "default": np.random.default_rng(3),
                "mt": np.random.Generator(np.random.MT19937(4)), "philox": np.random.Generator(np.random.Philox(5)), "sfc": np.random.Generator(np.random.SFC64(6)),
            }  # fmt: skip

        def numbers(generators: dict[str, Any]) -> list[Any]:
            return [g.random() for g in generators.values()] + [generators["python"].gauss(0, 1), generators["legacy"].standard_normal()]

        first = made()
        numbers(first)  # one half of a pair of normal numbers is kept
        with self.open() as run:
            run.protect("generators", first)
            run.restore()
            run.checkpoint()
        want = numbers(first)
        second = made()
        self.load("generators", second)
        self.assertEqual(numbers(second), want)
        with self.open() as run:
            self.assertRaisesRegex(cairn.Mismatch, "generators.default", run.restore)


class Objects(Case):
    def setUp(self) -> None:
        super().setUp()
        patch = mock.patch.dict(sys.modules, torch=fake_torch.module())
        patch.start()
        self.addCleanup(patch.stop)

    def train(self, run: cairn.Run, model: fake_torch.Module, optimizer: fake_torch.Adam, steps: int) -> None:
        for _ in range(steps):
            optimizer.step()
            run.state.step += 1

    def test_model_and_optimizer(self) -> None:
        def start() -> tuple[cairn.Run, fake_torch.Module, fake_torch.Adam, fake_torch.Generator]:
            model = fake_torch.Module(3)
            optimizer = fake_torch.Adam([model.weight, model.bias], lr=0.5)
            generator = fake_torch.Generator()
            run = self.open()
            run.state.step = 0
            run.protect("model", model)
            run.protect("optimizer", optimizer)
            run.protect("generator", generator)
            run.protect("u", np.full(2, run.state.step))
            return run, model, optimizer, generator

        run, model, optimizer, generator = start()
        with run:
            self.assertFalse(run.restore())
            run.checkpoint()  # before the optimizer has a state
            self.train(run, model, optimizer, 3)
            optimizer.lr = 0.25
            generator.numbers += 1
            run.checkpoint()
            self.train(run, model, optimizer, 2)
        run, other, optimizer, generator = start()
        weight = other.weight.array
        with run:
            self.assertTrue(run.restore())
            self.assertEqual((run.state.step, optimizer.lr, generator.numbers[0]), (3, 0.25, 1))
            self.train(run, other, optimizer, 2)
        np.testing.assert_array_equal(other.weight.array, model.weight.array)
        self.assertIs(weight, other.weight.array)
        self.assertEqual(optimizer.state[1]["step"].array, 5)

    def test_state_dict_in_place(self) -> None:
        model = fake_torch.Module(2)
        model.weight.array[...] = 3
        self.save("model", model.state_dict())
        other = fake_torch.Module(2)
        self.load("model", other.state_dict())
        self.assertEqual(other.weight.array.tolist(), [[3, 3], [3, 3]])

    def test_other_variables(self) -> None:
        self.save("model", fake_torch.Module(2))
        self.load("model", fake_torch.Module(2))
        with self.open() as run:
            run.protect("model", fake_torch.Module(2))
            run.protect("more", np.zeros(2))
            self.assertRaisesRegex(cairn.Mismatch, "more", run.restore)

    def test_empty_arrays(self) -> None:
        self.save("model", fake_torch.Module(0))
        self.load("model", fake_torch.Module(0))

    def test_written_without_objects(self) -> None:
        self.save("a", np.zeros(2))
        with self.open() as run:
            run.protect("a", np.zeros(2))
            run.protect("model", fake_torch.Module(2))
            self.assertRaises(cairn.Mismatch, run.restore)


class Files(Case):
    def test_open_file(self) -> None:
        path = self.base / "out"
        path.write_text("of another run\n")
        for start in range(3):  # each saves once more, and is interrupted
            with self.open() as run:
                out = run.open_file(path)
                restored = run.restore()
                self.assertEqual(restored, start > 0)
                print("saved", start, file=out)
                run.checkpoint()
                print("lost", start, file=out)
                out.close()
        with self.open() as run:
            run.open_file(path).close()  # it is not cut before restore()
        with self.open() as run, run.open_file(path):
            run.restore()
            self.assertEqual(path.read_text(), "saved 0\nsaved 1\nsaved 2\n")

    def test_finished_file(self) -> None:
        path = self.base / "out"
        with self.open() as run:
            out = run.open_file(path)
            run.restore()
            out.write("result")
            run.finish()
            self.assertEqual(path.read_text(), "result")  # a kill after the end loses nothing

    def test_protect_file(self) -> None:
        path = self.base / "data"
        path.write_bytes(b"0123456789")
        with open(path, "r+b") as f, self.open() as run:
            run.protect_file(f)
            run.restore()
            f.seek(4)
            f.write(b"x")
            run.checkpoint()
            f.write(b"yz and more")
        with open(path, "r+b") as f, self.open() as run:
            run.protect_file(f)
            self.assertTrue(run.restore())
            self.assertEqual(f.tell(), 5)
            self.assertEqual(path.stat().st_size, 10)

    def test_path_needed(self) -> None:
        with open(self.base / "x", "w") as f, os.fdopen(os.dup(f.fileno()), "w") as g, self.open() as run:
            self.assertRaisesRegex(TypeError, "path", run.protect_file, g)
            run.protect_file(g, self.base / "x")

    def test_not_regular(self) -> None:
        with open("/dev/null", "w") as f, self.open() as run:
            self.assertRaisesRegex(cairn.CairnError, "regular", run.protect_file, f)


class Runs(Case):
    def test_points(self) -> None:
        with self.open(every_points=3) as run:
            run.state.step = 0
            run.restore()
            begun = [run.point() for _ in range(3)]
            self.assertEqual(begun, [False, False, True])
            self.assertEqual((run.rank, run.ranks), (0, 1))

    def test_request(self) -> None:
        with self.open() as run:
            run.state.step = 0
            run.restore()
            run.request()
            while not run.point():  # it looks only every few points
                pass

    def test_save_and_wait(self) -> None:
        a = np.ones(1 << 20)
        with self.open() as run:
            run.protect("a", a)
            run.restore()
            run.save()
            a[:] = 2  # the checkpoint has it as it was
            run.wait()
            self.assertEqual(run.last, 1)
        self.load("a", a)
        self.assertEqual((a.min(), a.max()), (1, 1))

    def test_helper_lost_while_saving(self) -> None:
        with mock.patch.dict(os.environ, CAIRN_STEP="copy.begin#2=kill"), self.open() as run:  # each helper
            run.state.x = 1
            run.restore()
            for last in range(1, 4):
                run.checkpoint()
                self.assertEqual(run.last, last)
                with self.assertRaisesRegex(cairn.NotSaved, "another one has been started"):
                    run.checkpoint()

    def test_one_after_the_other(self) -> None:
        a = {"x": np.ones(3), "y": np.ones(3)}
        b = np.ones(3)
        with self.open() as run:
            run.protect("a", a)
            run.protect("b", b)
            run.restore()
            run.begin()
            run.add("a")
            a["x"][:] = a["y"][:] = b[:] = 2
            run.state.late = True
            run.commit()
            run.wait()
            self.assertRaisesRegex(cairn.CairnError, "cairn_begin", run.commit)
            run.begin()
            self.assertRaisesRegex(cairn.CairnError, '"c"', run.add, "c")
            run.cancel()
        with self.open() as run:
            run.protect("a", a)
            run.protect("b", b)
            run.restore()
            self.assertTrue(run.state.late)
        self.assertEqual((a["x"][0], a["y"][2], b[0]), (1, 1, 2))

    def test_object_is_saved_as_it_was_added(self) -> None:
        class Model:
            def __init__(self) -> None:
                self.w, self.step = np.zeros(3), 0

            def state_dict(self) -> dict[str, Any]:
                return {"w": self.w, "step": self.step, "moments": [np.full(2, self.step)] * (self.step > 0)}

            def load_state_dict(self, d: dict[str, Any]) -> None:
                self.w, self.step, self.moments = d["w"], d["step"], d["moments"]

        model = Model()
        with self.open() as run:
            run.protect("model", model)
            run.protect("random", random)
            run.restore()
            self.assertRaisesRegex(cairn.CairnError, "cairn_begin", run.add, "model")
            for step in 1, 2:
                model.w, model.step = np.full(3, step), step  # others than at the last save
                run.begin()
                run.add("model")
                self.assertRaisesRegex(ValueError, "random", run.add, "random")
                model.w[:] = -1
                model.w, model.step = np.full(3, -2), -2
                run.commit()
                run.wait()
        found = Model()
        with self.open() as run:
            run.protect("model", found)
            run.protect("random", random)
            self.assertTrue(run.restore())
        self.assertEqual((found.w.tolist(), found.step, found.moments[0].tolist()), ([2, 2, 2], 2, [2, 2]))

    def test_stop(self) -> None:
        with self.open() as run:
            run.state.step = 7
            run.restore()
            run.request_stop()
            with self.assertRaises(cairn.Stopped) as stopped:
                while True:
                    run.point()
            self.assertEqual(stopped.exception.code, 0)
        with self.open() as run:
            run.restore()
            self.assertEqual(run.state.step, 7)

    def test_sigterm_ends_a_program(self) -> None:
        program = "import cairn, os, signal\nwith cairn.open('ckpt') as run:\n run.state.x = 1\n run.restore()\n os.kill(os.getpid(), signal.SIGTERM)\n while True: run.point()"
        done = subprocess.run([sys.executable, "-c", program], cwd=self.base, stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        with self.open() as run:
            self.assertTrue(run.restore())

    def test_signals_left_alone(self) -> None:
        with self.open(signals=False) as run:
            run.restore()
            self.assertEqual(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)

    def test_finished(self) -> None:
        with self.open() as run:
            run.restore()
            run.finish()
        self.assertRaises(cairn.Finished, self.open)
        with self.open(fresh=True) as run:
            self.assertFalse(run.restore())

    def test_in_use(self) -> None:
        with self.open():
            self.assertRaises(cairn.InUse, self.open)

    def test_order_of_calls(self) -> None:
        with self.open() as run:
            self.assertRaisesRegex(cairn.CairnError, "cairn_restore", run.point)
            run.restore()
            self.assertRaises(cairn.CairnError, run.restore)
        self.assertRaisesRegex(cairn.CairnError, "closed", run.protect, "a", np.zeros(1))
        run.close()  # again: nothing

    def test_collected(self) -> None:
        run = self.open()
        run.state.x = 1
        run.restore()
        del run
        gc.collect()
        self.open().close()  # the directory is free

    def test_helper_missing(self) -> None:
        with self.assertRaisesRegex(cairn.CairnError, "no-such-cairn"):
            self.open(helper="/no-such-cairn")

    def test_library_missing(self) -> None:
        env = {**os.environ, "CAIRN_LIBRARY": "/no-such-library.so"}
        done = subprocess.run([sys.executable, "-c", "import cairn; cairn.open('x')"], cwd=self.base, env=env, stderr=subprocess.PIPE, text=True)
        self.assertIn("ImportError: libcairn cannot be loaded", done.stderr)
        self.assertIn("CAIRN_LIBRARY", done.stderr)


if __name__ == "__main__":
    unittest.main()
