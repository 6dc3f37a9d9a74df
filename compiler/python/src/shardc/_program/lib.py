"""JAX, PyTorch and NumPy, imported when they are used: the package has no need of them otherwise."""

from __future__ import annotations

import importlib
from typing import Any


def module(name: str) -> Any:
    """A module of JAX, PyTorch or NumPy."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        of = "PyTorch" if name.startswith("torch") else "JAX"
        raise ModuleNotFoundError(f"this reads a program of {of}, and {missing.name} is not installed") from missing


def numpy() -> Any:
    """NumPy, which JAX brings."""
    return module("numpy")


def dtype_of(name: str) -> Any:
    """The dtype of NumPy by its name. One that only ml_dtypes has is float32 without it, which has all its numbers."""
    np = numpy()
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    except (ModuleNotFoundError, AttributeError):
        return np.dtype("float32")
