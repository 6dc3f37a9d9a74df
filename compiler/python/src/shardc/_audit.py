"""What a jitted function of JAX sends when it is compiled: `shardc audit`."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._binary import binary
from ._diagnostics import ProgramError, UsageError, read
from ._jax.compiler import Compiler
from ._results import Place


@dataclass(frozen=True)
class Line:
    """What one line sends in one run; `source` is None for collectives for which XLA gives no line."""

    source: Place | None
    wire_bytes: int
    time_s: float | None
    share: float


@dataclass(frozen=True)
class Advice:
    """An edit of an annotation, and the number of bytes that it saves; `tried` is `compiled` or `lowered`."""

    kind: str
    value: str
    old: str
    new: str
    saves_bytes: int
    source: Place | None
    tried: str


@dataclass(frozen=True)
class Recompiled:
    """What XLA sends after compiling the program again with the advice, beside the optimum for the same specs."""

    platform: str
    wire_bytes_as_is: int
    wire_bytes_edited: int
    wire_bytes_optimum: int
    constraints: int
    compilations: int


@dataclass(frozen=True)
class Audit:
    """What a compiled program sends; printed, it is the report for people."""

    wire_bytes: int
    time_s: float | None
    lines: Sequence[Line]
    advice: Sequence[Advice]
    compiled_again: Recompiled | None
    text: str
    raw: Mapping[str, Any]

    def __str__(self) -> str:
        return self.text


def audit(
    jitted: Any,
    *args: Any,
    hardware: str | None = None,
    max_bytes: int | None = None,
    recompile: bool = True,
    **kwargs: Any,
) -> Audit:
    """Compiles `jitted(*args, **kwargs)` for the devices at hand, and says what it sends.

    Arguments may be arrays or `jax.ShapeDtypeStruct`s with shardings, also on devices of a `topologies.get_topology_desc`
    that are not there. Edits are tried by compiling the program again with them; without `recompile` they are lowered
    alone. Above `max_bytes` it raises ProgramError.
    """
    lowered = jitted.lower(*args, **kwargs)
    try:
        before = lowered.as_text(debug_info=True)
    except TypeError:  # JAX before 0.5 writes no places
        before = lowered.as_text()
    compiled = lowered.compile()
    options = [] if hardware is None else ["--hardware", hardware]
    options += [] if max_bytes is None else ["--max-bytes", str(max_bytes)]
    with tempfile.TemporaryDirectory(prefix="shardc") as folder:
        paths = [Path(folder, name) for name in ("after.hlo", "before.mlir")]
        for path, text in zip(paths, (compiled.as_text(), before)):
            path.write_text(text, encoding="utf-8")
        words = ["audit", str(paths[0]), "--before", str(paths[1]), "--ask-compiler", *options]
        answer = _talk(words, Compiler(before, compiled) if recompile else None)
    raw: Mapping[str, Any] = json.loads(answer["audit"])
    again = raw["compiled_again"]
    return Audit(
        wire_bytes=raw["totals"]["wire_bytes"],
        time_s=raw["totals"]["time_s"],
        lines=tuple(
            Line(_place(line["source"]), line["wire_bytes"], line["time_s"], line["share"]) for line in raw["lines"]
        ),
        advice=tuple(
            Advice(
                one["kind"],
                one["value"],
                one["from"],
                one["to"],
                one["saves_bytes"],
                _place(one["source"]),
                one["tried"],
            )
            for one in raw["advice"]
        ),
        compiled_again=None
        if again is None
        else Recompiled(**{name: again[name] for name in Recompiled.__dataclass_fields__}),
        text=answer["text"],
        raw=raw,
    )


def _talk(words: Sequence[str], compiler: Compiler | None) -> Mapping[str, str]:
    """Runs the binary, and compiles what it asks for."""
    command = [str(binary()), *words, "--error-format", "json", "--progress", "never"]
    answer: Mapping[str, str] | None = None
    with tempfile.TemporaryFile() as said:
        running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said)
        with running:
            assert running.stdin is not None and running.stdout is not None
            for line in running.stdout:
                answer = json.loads(line)
                if "compile" not in answer:
                    break
                reply = {"error": "it was not asked for"} if compiler is None else compiler.reply(answer["compile"])
                running.stdin.write(json.dumps(reply).encode() + b"\n")
                running.stdin.flush()
            running.stdin.close()
            status = running.wait()
        said.seek(0)
        err = said.read().decode(errors="replace")
    if status != 0 or answer is None:
        diagnostics = read(err)
        text = "\n".join(map(str, diagnostics)) or err.strip() or f"shardc ended with status {status}"
        raise (ProgramError if status == 1 else UsageError)(text, status, diagnostics)
    return answer


def _place(raw: Mapping[str, Any] | None) -> Place | None:
    return None if raw is None else Place(raw["file"], raw["line"])
