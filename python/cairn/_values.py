"""Values as JSON. What JSON does not have is an object with the key "cairn"."""

from __future__ import annotations

import base64
import importlib
from typing import Any, Optional

from ._arrays import is_array

_KEY = "cairn"


def encode(value: Any, where: str, arrays: Optional[dict[str, Any]] = None) -> Any:
    """Return what json.dumps takes. With arrays, put arrays there, by name, instead of their elements."""
    if _is_array(value):
        kind = type(value).__module__.partition(".")[0]
        out = {_KEY: "array", "kind": kind, "dtype": str(value.dtype), "shape": list(value.shape)}
        if kind not in ("numpy", "torch"):
            raise TypeError(f"{where}: an array of type {type(value).__name__} cannot be made again: use one of NumPy or PyTorch")
        scalar = kind == "numpy" and not hasattr(value, "__setitem__")  # it has no memory of its own
        if arrays is None or scalar:
            if kind == "numpy" and (value.dtype.kind not in "biufcSU" or value.dtype.char in "gG"):
                raise TypeError(f"{where}: elements of type {value.dtype} have no form in JSON: protect the array under a name of its own")
            values = value.tolist()
            out["values"] = encode(values, where) if "complex" in str(value.dtype) or "S" in str(value.dtype) else values
            out["scalar"] = scalar
        else:
            name = where
            while name in arrays:
                name += "_"
            arrays[name] = value
            out["name"] = name
        return out
    if arrays is None:  # a state_dict says itself what it takes
        for base in (int, float, complex, str, bytes, bytearray, list, tuple, dict):
            if isinstance(value, base) and type(value) not in (base, bool):
                raise TypeError(f"{where}: a value of type {type(value).__name__} would be a {base.__name__} after a restart: store {base.__name__}(…)")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        if all(isinstance(k, str) for k in value) and _KEY not in value:
            return {k: encode(v, f"{where}.{k}", arrays) for k, v in value.items()}
        return {_KEY: "dict", "items": [[encode(k, where), encode(v, f"{where}.{k}", arrays)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        items = [encode(v, f"{where}.{i}", arrays) for i, v in enumerate(value)]
        return items if isinstance(value, list) else {_KEY: "tuple", "items": items}
    if isinstance(value, (bytes, bytearray)):
        return {_KEY: type(value).__name__, "base64": base64.b64encode(value).decode()}
    if isinstance(value, complex):
        return {_KEY: "complex", "items": [value.real, value.imag]}
    raise TypeError(f"{where}: a value of type {type(value).__name__} cannot be stored; use numbers, texts, lists, tuples, dicts and arrays")


def decode(value: Any, arrays: Optional[dict[str, Any]] = None) -> Any:
    """Return what encode got. arrays are those that it put there."""
    if isinstance(value, list):
        return [decode(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    what = value.get(_KEY)
    if what is None:
        return {k: decode(v, arrays) for k, v in value.items()}
    if what == "dict":
        return {decode(k): decode(v, arrays) for k, v in value["items"]}
    if what == "tuple":
        return tuple(decode(v, arrays) for v in value["items"])
    if what == "complex":
        return complex(*value["items"])
    if what in ("bytes", "bytearray"):
        raw = base64.b64decode(value["base64"])
        return bytearray(raw) if what == "bytearray" else raw
    if what == "array" and "name" in value and arrays is not None:
        return arrays[value["name"]]
    if what == "array" and value["kind"] == "numpy":
        array = _library("numpy").array(decode(value["values"]), dtype=value["dtype"]).reshape(value["shape"])
        return array[()] if value.get("scalar", True) else array
    if what == "array" and value["kind"] == "torch":
        torch = _library("torch")
        return torch.tensor(decode(value["values"]), dtype=_torch_type(torch, value["dtype"])).reshape(value["shape"])
    raise ValueError(f"a value of kind {what!r} in a checkpoint: it was written by a newer version of cairn")


def variables(value: Any) -> dict[str, dict[str, Any]]:
    """Return the descriptions of the arrays in what encode returned, by name."""
    if isinstance(value, list):
        return {k: v for x in value for k, v in variables(x).items()}
    if not isinstance(value, dict):
        return {}
    if value.get(_KEY) == "array" and "name" in value:
        return {value["name"]: value}
    return {k: v for x in value.values() for k, v in variables(x).items()}


def empty(description: dict[str, Any]) -> Any:
    """Make an array as one was that is in a checkpoint."""
    if description["kind"] == "torch":
        torch = _library("torch")
        return torch.empty(tuple(description["shape"]), dtype=_torch_type(torch, description["dtype"]))
    return _library("numpy").empty(tuple(description["shape"]), dtype=description["dtype"])


def fits(value: Any, description: dict[str, Any]) -> bool:
    """Report whether an array is as the one that is in a checkpoint."""
    return str(value.dtype) == description["dtype"] and list(value.shape) == description["shape"]


def _is_array(value: Any) -> bool:
    return is_array(value) and hasattr(value, "dtype") and hasattr(value, "shape")


def _library(name: str) -> Any:
    if name not in ("numpy", "torch"):  # a checkpoint names no other modules to import
        raise ValueError(f"arrays of {name!r} in a checkpoint")
    return importlib.import_module(name)


def _torch_type(torch: Any, name: str) -> Any:
    return getattr(torch, name.rpartition(".")[2])
