"""What has no counterpart in the language."""

from __future__ import annotations

from .._diagnostics import ShardcError
from .source import Origin


class TranslationError(ShardcError):
    """A function of JAX that cannot be written as a `.shard` file: which primitive, and on which line."""

    def __init__(self, said: str, primitive: str | None = None, origin: Origin | None = None) -> None:
        place = origin.place if origin else None
        where = f"{place.file}:{place.line}: " if place else ""
        line = f"\n    {origin.text()}" if origin and origin.text() else ""
        super().__init__(f"{where}{said}{line}", 1, ())
        self.primitive = primitive
        self.file = place.file if place else None
        self.line = place.line if place else None
