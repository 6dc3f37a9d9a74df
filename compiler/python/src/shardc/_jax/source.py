"""The line of a program behind an equation."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._program.lib import module
from .._program.source import Frame, Origin

SUBSCRIPTS = re.compile(r"(?:^|/)([A-Za-z]*(?:,[A-Za-z]*)*->[A-Za-z]*)(?=/|$)")
"""The subscripts of an einsum in a name stack of JAX: `jit(f)/ble,ef->blf`."""

_PACKAGE = str(Path(__file__).parents[1])


def _is_theirs(frame: Any) -> bool:
    """Whether a frame stands inside the function: behind those of this package are those that call it."""
    return not str(frame.file_name).startswith(_PACKAGE)


def origin(equation: Any, outer: Sequence[Frame] = ()) -> Origin:
    """Where an equation comes from; `outer` are the frames of the call that it stands in, if it has none itself."""
    source_info_util = module("jax._src.source_info_util")
    info = equation.source_info
    try:
        frames = list(source_info_util.user_frames(info.traceback))
    except (AttributeError, TypeError):  # JAX before 0.6
        frames = list(source_info_util.user_frames(info))
    ours = tuple(Frame(f.file_name, f.start_line, f.function_name) for f in itertools.takewhile(_is_theirs, frames))
    ours = ours or tuple(outer)
    stack = str(info.name_stack)
    found = SUBSCRIPTS.findall(stack)
    return Origin(ours, "transpose(" in stack, found[-1] if found else None)
