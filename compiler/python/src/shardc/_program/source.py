"""The line of a program behind a statement, and the variable that it is assigned to there."""

from __future__ import annotations

import ast
import functools
import linecache
from dataclasses import dataclass


@dataclass(frozen=True)
class Frame:
    """A place in the user's program: lines count from 1."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Origin:
    """Where a statement comes from: frames, the innermost first, and whether it was made by differentiation."""

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
                # The value of an expression that is not an assignment belongs to the line of the call.
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
