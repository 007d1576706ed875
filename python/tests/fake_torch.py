"""As much of PyTorch's interface as package cairn uses, over NumPy.

It shows the order of calls, not that PyTorch behaves so.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np

float32, float64, int64, uint8 = "torch.float32", "torch.float64", "torch.int64", "torch.uint8"


class Tensor:
    def __init__(self, array: Any, requires_grad: bool = False) -> None:
        self.array = array
        self.requires_grad = requires_grad

    dtype = property(lambda self: f"torch.{self.array.dtype}")
    shape = property(lambda self: self.array.shape)

    def detach(self) -> Tensor:
        return Tensor(self.array)

    def is_contiguous(self) -> bool:
        return bool(self.array.flags.c_contiguous)

    def __dlpack__(self) -> Any:
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        return self.array.__dlpack__()

    def reshape(self, shape: Any) -> Tensor:
        return Tensor(self.array.reshape(shape))

    def tolist(self) -> Any:
        return self.array.tolist()


Tensor.__module__ = "torch"


def _type(name: str) -> str:
    return name.rpartition(".")[2]


def empty(shape: Any, dtype: str) -> Tensor:
    return Tensor(np.empty(shape, dtype=_type(dtype)))


def tensor(values: Any, dtype: str) -> Tensor:
    return Tensor(np.array(values, dtype=_type(dtype)))


class Module:
    """A layer: its parameters keep their memory."""

    def __init__(self, n: int) -> None:
        self.weight = Tensor(np.zeros((n, n), np.float32), requires_grad=True)
        self.bias = Tensor(np.zeros(n, np.float32), requires_grad=True)

    def state_dict(self) -> dict[str, Tensor]:
        return {"weight": self.weight.detach(), "bias": self.bias.detach()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.weight.array[...] = state["weight"].array
        self.bias.array[...] = state["bias"].array


class Adam:
    """An optimizer: it has no state before its first step, and copies what it loads."""

    def __init__(self, parameters: list[Tensor], lr: float) -> None:
        self.parameters = parameters
        self.lr = lr
        self.state: dict[int, dict[str, Tensor]] = {}

    def step(self) -> None:
        for i, p in enumerate(self.parameters):
            s = self.state.setdefault(i, {"step": tensor(0.0, float32), "exp_avg": Tensor(np.zeros_like(p.array))})
            s["step"].array += 1
            s["exp_avg"].array += np.float32(i + 1)
            p.array -= np.float32(self.lr) * s["exp_avg"].array

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.state, "param_groups": [{"lr": self.lr, "betas": (0.9, 0.999), "params": list(range(len(self.parameters)))}]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state["param_groups"][0]["betas"] == (0.9, 0.999)
        self.lr = state["param_groups"][0]["lr"]
        self.state = {i: {k: Tensor(t.array.copy()) for k, t in s.items()} for i, s in state["state"].items()}


class Generator:
    def __init__(self) -> None:
        self.numbers = np.arange(16, dtype=np.uint8)

    def get_state(self) -> Tensor:
        return Tensor(self.numbers.copy())

    def set_state(self, state: Tensor) -> None:
        self.numbers = state.array


def module() -> types.ModuleType:
    """The module torch, to be put into sys.modules."""
    m = types.ModuleType("torch")
    m.__dict__.update(float32=float32, float64=float64, int64=int64, uint8=uint8, Tensor=Tensor, empty=empty, tensor=tensor)
    return m
