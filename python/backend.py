"""A build backend without requirements: a wheel is a zip archive of the package."""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_NAME = "cairn"
_VERSION = re.findall(r'__version__ = "(.*)"', (_HERE / _NAME / "__init__.py").read_text())[0]
_INFO = f"{_NAME}-{_VERSION}.dist-info"


def _metadata() -> dict[str, str]:
    return {
        f"{_INFO}/METADATA": f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: {_VERSION}\nSummary: Checkpoints for long-running Python programs\nRequires-Python: >=3.9\n",
        f"{_INFO}/WHEEL": "Wheel-Version: 1.0\nGenerator: cairn\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }


def build_wheel(directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    files = {f"{_NAME}/{p.name}": p.read_bytes() for p in sorted((_HERE / _NAME).iterdir()) if p.suffix in (".py", ".typed", ".so")}
    files.update({name: text.encode() for name, text in _metadata().items()})
    record = "".join(f"{n},sha256={base64.urlsafe_b64encode(hashlib.sha256(b).digest()).rstrip(b'=').decode()},{len(b)}\n" for n, b in files.items())
    files[f"{_INFO}/RECORD"] = (record + f"{_INFO}/RECORD,,\n").encode()
    name = f"{_NAME}-{_VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(Path(directory) / name, "w", zipfile.ZIP_DEFLATED) as z:
        for path, content in files.items():
            z.writestr(path, content)
    return name


def build_sdist(directory: str, config_settings: Any = None) -> str:
    raise NotImplementedError("install from the source tree: pip install ./python")
