"""What a jitted function of JAX sends when it is compiled: `shardc audit`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._commands import command
from ._results import Place


@dataclass(frozen=True)
class Line:
    """What one line sends in one run; `source` is None for what XLA says no line of."""

    source: Place | None
    wire_bytes: int
    time_s: float | None
    share: float


@dataclass(frozen=True)
class Advice:
    """An edit of an annotation, and by how many bytes less is sent with it."""

    kind: str
    value: str
    old: str
    new: str
    saves_bytes: int
    source: Place | None


@dataclass(frozen=True)
class Audit:
    """What a compiled program sends; printed, it is the report for people."""

    wire_bytes: int
    time_s: float | None
    lines: Sequence[Line]
    advice: Sequence[Advice]
    text: str
    raw: Mapping[str, Any]

    def __str__(self) -> str:
        return self.text


def audit(jitted: Any, *args: Any, hardware: str | None = None, max_bytes: int | None = None, **kwargs: Any) -> Audit:
    """Compiles `jitted(*args, **kwargs)` for the devices at hand, and says what it sends.

    Arguments may be arrays or `jax.ShapeDtypeStruct`s with shardings. Above `max_bytes` it raises ProgramError.
    """
    lowered = jitted.lower(*args, **kwargs)
    try:
        before = lowered.as_text(debug_info=True)
    except TypeError:  # JAX before 0.5 writes no places
        before = lowered.as_text()
    after = lowered.compile().as_text()
    options = [] if hardware is None else ["--hardware", hardware]
    with tempfile.TemporaryDirectory(prefix="shardc") as folder:
        paths = [Path(folder, name) for name in ("after.hlo", "before.mlir")]
        for path, text in zip(paths, (after, before)):
            path.write_text(text, encoding="utf-8")
        words = ["audit", str(paths[0]), "--before", str(paths[1]), *options]
        raw: Mapping[str, Any] = json.loads(command(*words, "--emit", "json").out)
        text = command(*words).out
        if max_bytes is not None:
            command(*words, "--max-bytes", str(max_bytes))
    return Audit(
        wire_bytes=raw["totals"]["wire_bytes"],
        time_s=raw["totals"]["time_s"],
        lines=tuple(
            Line(_place(line["source"]), line["wire_bytes"], line["time_s"], line["share"]) for line in raw["lines"]
        ),
        advice=tuple(
            Advice(one["kind"], one["value"], one["from"], one["to"], one["saves_bytes"], _place(one["source"]))
            for one in raw["advice"]
        ),
        text=text,
        raw=raw,
    )


def _place(raw: Mapping[str, Any] | None) -> Place | None:
    return None if raw is None else Place(raw["file"], raw["line"])
