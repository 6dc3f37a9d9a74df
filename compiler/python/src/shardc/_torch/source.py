"""The line of a program behind a node."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .._program.lib import module
from .._program.source import Frame, Origin

_LINE = re.compile(r'^\s*File "(.+)", line (\d+), in (\S+)', re.MULTILINE)


def origin(node: Any) -> Origin:
    """Where a node comes from: frames of PyTorch itself are left out."""
    theirs = str(Path(module("torch").__file__).parent)
    found = _LINE.findall(str(node.meta.get("stack_trace") or ""))
    frames = [Frame(file, int(line), function) for file, line, function in found if not file.startswith(theirs)]
    # The innermost frame is written last.
    return Origin(tuple(reversed(frames)), False)
