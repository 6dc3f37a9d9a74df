"""The line of a program behind an equation, and the variable that it is assigned to there."""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .dims import SUBSCRIPTS
from .lib import module


@dataclass(frozen=True)
class Frame:
    """A place in the user's program: lines count from 1."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Origin:
    """Where an equation comes from: frames, the innermost first, and whether it was made by differentiation."""

    frames: tuple[Frame, ...]
    of_gradient: bool
    subscripts: str | None = None

    @property
    def place(self) -> Frame | None:
        """The innermost line of the user's program."""
        return self.frames[0] if self.frames else None

    @property
    def variable(self) -> tuple[str, object] | None:
        """The variable that is assigned, and what tells this assignment from others of the same name."""
        for depth, frame in enumerate(self.frames):
            found = _assignments(frame.file).get(frame.line)
            if found is None:
                continue
            name, first = found
            if name is None:
                # The value of an expression that is no assignment is one of the line that calls.
                continue
            return (f"d_{name}" if self.of_gradient else name), (first, self.frames[depth:], self.of_gradient)
        return None

    def text(self) -> str:
        """The line as it is written."""
        return linecache.getline(self.place.file, self.place.line).strip() if self.place else ""


@functools.lru_cache(maxsize=256)
def _assignments(file: str) -> dict[int, tuple[str | None, int]]:
    """Line to the name that the innermost statement over it assigns, if it is one name, and its first line."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return {}
    found: dict[int, tuple[str | None, int]] = {}
    for node in ast.walk(tree):  # outer statements come first
        if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)):
            continue
        name = None
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)) and isinstance(node.target, ast.Name):
            name = node.target.id
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            found[line] = (name, node.lineno)
    return found


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
