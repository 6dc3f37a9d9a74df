"""JAX and NumPy, imported when they are used: the package has no need of them otherwise."""

from __future__ import annotations

import importlib
from typing import Any


def module(name: str) -> Any:
    """A module of JAX or NumPy."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(f"this reads a function of JAX, and {missing.name} is not installed") from missing


def numpy() -> Any:
    """NumPy, which JAX brings."""
    return module("numpy")
