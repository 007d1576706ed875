"""Tests with PyTorch and CuPy, on the host and on a GPU of NVIDIA. They are skipped without these."""

from __future__ import annotations

import importlib.util
import tempfile
import unittest
from pathlib import Path
from typing import Any

import cairn

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
cupy: Any = importlib.import_module("cupy") if importlib.util.find_spec("cupy") else None


class Training:
    """A model that is trained with random data."""

    def __init__(self, device: str, dtype: Any, optimizer: str) -> None:
        torch.manual_seed(1)
        nn = torch.nn
        self.model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)).to(device, dtype)
        options = {"SGD": {"momentum": 0.9}, "AdamW": {}}[optimizer]
        self.optimizer = getattr(torch.optim, optimizer)(self.model.parameters(), lr=0.01, **options)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=2, gamma=0.5)
        self.generator = torch.Generator(device)
        self.generator.manual_seed(2)

    def protect(self, run: cairn.Run) -> None:
        run.protect("model", self.model)
        run.protect("optimizer", self.optimizer)
        run.protect("scheduler", self.scheduler)
        run.protect("generator", self.generator)
        run.state.step = 0

    def train(self, run: cairn.Run, steps: int) -> None:
        first = next(self.model.parameters())
        for _ in range(steps):
            x = torch.randn(8, 16, generator=self.generator, device=first.device, dtype=first.dtype)
            self.optimizer.zero_grad()
            self.model(x).square().sum().backward()
            self.optimizer.step()
            self.scheduler.step()
            run.state.step += 1


class Case(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.dir = Path(holder.name) / "ckpt"

    def devices(self) -> list[str]:
        return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@unittest.skipIf(torch is None, "no PyTorch")
class PyTorch(Case):
    def test_training(self) -> None:
        for device in self.devices():
            for dtype, optimizer in ((torch.float32, "AdamW"), (torch.float64, "SGD"), (torch.bfloat16, "AdamW")):
                with self.subTest(f"{device} {dtype} {optimizer}"):
                    directory = self.dir.with_name(f"{device}{dtype}")
                    first = Training(device, dtype, optimizer)
                    with cairn.open(directory, every=1e6) as run:
                        first.protect(run)
                        self.assertFalse(run.restore())
                        run.checkpoint()
                        first.train(run, 3)
                        run.checkpoint()
                        first.train(run, 3)
                    second = Training(device, dtype, optimizer)
                    second.train(run, 1)  # the checkpoint replaces what it has
                    with cairn.open(directory, every=1e6) as run:
                        second.protect(run)
                        self.assertTrue(run.restore())
                        self.assertEqual(run.state.step, 3)
                        second.train(run, 3)
                        run.checkpoint()
                    for (name, a), b in zip(first.model.state_dict().items(), second.model.state_dict().values()):
                        self.assertTrue(torch.equal(a, b), name)
                    self.assertEqual(first.optimizer.param_groups[0]["lr"], second.optimizer.param_groups[0]["lr"])

    def test_tensors_in_place(self) -> None:
        types = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]
        for device in self.devices():
            with self.subTest(device):
                directory = self.dir.with_name(device)
                want = {str(t): torch.arange(6, device=device).reshape(2, 3).to(t) for t in types}
                want["parameter"] = torch.nn.Parameter(torch.ones(3, device=device))
                want["empty"] = torch.zeros(0, 3, device=device)
                want["scalar"] = torch.tensor(5.0, device=device)
                have = {k: torch.zeros_like(v) for k, v in want.items()}
                for tensors in (want, have):
                    with cairn.open(directory, every=1e6) as run:
                        run.protect("t", tensors)
                        if not run.restore():
                            run.checkpoint()
                for name, t in want.items():
                    self.assertTrue(torch.equal(t, have[name]), name)

    def test_saved_on_the_gpu_restored_on_the_host(self) -> None:
        if not torch.cuda.is_available():
            self.skipTest("no GPU")
        first, second = Training("cuda", torch.float32, "AdamW"), Training("cpu", torch.float32, "AdamW")
        with cairn.open(self.dir, every=1e6) as run:
            run.protect("model", first.model)
            run.protect("optimizer", first.optimizer)
            run.state.step = 0
            run.restore()
            first.train(run, 2)
            run.checkpoint()
        with cairn.open(self.dir, every=1e6) as run:
            run.protect("model", second.model)
            run.protect("optimizer", second.optimizer)
            run.state.step = 0
            self.assertTrue(run.restore())
        for a, b in zip(first.model.state_dict().values(), second.model.state_dict().values()):
            self.assertTrue(torch.equal(a.cpu(), b))

    def test_consistent_with_streams(self) -> None:
        if not torch.cuda.is_available():
            self.skipTest("no GPU")
        x = torch.zeros(1 << 22, device="cuda")
        stream = torch.cuda.Stream()
        with cairn.open(self.dir, every=1e6) as run:
            run.protect("x", x)
            run.restore()
            run.request()
            with torch.cuda.stream(stream):
                for _ in range(100):
                    x += 1
                while not run.point():
                    pass
                for _ in range(100):
                    x += 1
        y = torch.zeros(1 << 22)
        with cairn.open(self.dir, every=1e6) as run:
            run.protect("x", y)
            self.assertTrue(run.restore())
        self.assertEqual((y.min().item(), y.max().item()), (100, 100))

    def test_pinned(self) -> None:
        if not torch.cuda.is_available():
            self.skipTest("no GPU")
        x = torch.zeros(1 << 20).pin_memory()
        with cairn.open(self.dir, every=1e6) as run:
            run.protect("x", x)
            run.restore()
            run.checkpoint()
            x.copy_(torch.full((1 << 20,), 3.0, device="cuda"), non_blocking=True)  # the GPU writes it
            run.checkpoint()
        y = torch.zeros(1 << 20)
        with cairn.open(self.dir, every=1e6) as run:
            run.protect("x", y)
            self.assertTrue(run.restore())
        self.assertEqual((y.min().item(), y.max().item()), (3, 3))

    def test_refused(self) -> None:
        with cairn.open(self.dir, every=1e6) as run:
            for value, why in ((torch.zeros(4, 4)[:, 1], "contiguous"), (torch.zeros(2, 3).T, "contiguous")):
                with self.assertRaisesRegex(ValueError, why):
                    run.protect("x", value)


@unittest.skipIf(cupy is None, "no CuPy")
class CuPy(Case):
    def test_arrays(self) -> None:
        try:
            want = cupy.arange(1000, dtype="f8").reshape(10, 100)
        except cupy.cuda.runtime.CUDARuntimeError:
            self.skipTest("no GPU")
        have = cupy.zeros_like(want)
        for a in (want, have):
            with cairn.open(self.dir, every=1e6) as run:
                run.protect("a", a)
                if not run.restore():
                    run.checkpoint()
        self.assertTrue((want == have).all())
        with cairn.open(self.dir, fresh=True) as run, self.assertRaisesRegex(ValueError, "contiguous"):
            run.protect("a", want[:, ::2])


if __name__ == "__main__":
    unittest.main()
