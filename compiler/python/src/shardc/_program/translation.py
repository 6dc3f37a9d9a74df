"""From statements to the text, and how what runs of it belongs to the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import text
from .builder import Builder
from .layouts import axis_words
from .program import Known, Program, Tensor, Value
from .rewrite import rewrite
from .source import Frame


@dataclass(frozen=True)
class Translation:
    """A program as a `.shard` file, and how the two belong together."""

    text: str
    lines: dict[int, Frame]
    """Line of the text to the line of Python that it comes from."""
    inputs: dict[str, Callable[[Sequence[Any]], Any]]
    """By the name that `run --input` has for it: the data of a parameter, of the arrays of the call."""
    outputs: Sequence[tuple[str, int, int | None]]
    """Results by name: which output of the program each is, and which part of it where it is a stack."""
    flat: Sequence[Any]
    """The arrays of the call."""
    most: float = 1e-4
    """How far a result may be off, in parts of the largest element: the program computes in float32."""


def finished(
    b: Builder, axes: Mapping[str, int], hardware: str | None, title: str, flat: Sequence[Any], most: float = 1e-4
) -> Translation:
    """The text of all that a builder has made, shortened."""
    program = b.program
    for parameter in program.main.parameters:
        if parameter.tensor.name in b.caches and not parameter.kind:
            parameter.kind = "cache"
    rewrite(program)
    writer = text.Writer(program, axes, axis_words(axes), hardware)
    _say_dims(program)
    written = writer.write(title)
    return Translation(written, writer.lines, _inputs(program, writer), _outputs(program, writer), flat, most)


def shortest_names(words: Sequence[Sequence[str]]) -> list[str]:
    """Of each path of words the shortest end that is a word and no other path's."""
    names: list[str] = []
    for one in words:
        for count in range(1, len(one) + 1):
            end = one[-count:]
            alone = sum(other[-count:] == end for other in words) == 1
            if alone and not end[0].isdigit():
                break
        names.append("_".join(end))
    return names


def whole(b: Builder, value: Value) -> Tensor:
    """A result with all its dims."""
    tensor = b.tensor(value, whole=True) if isinstance(value, (Tensor, Known)) else b.tensor(value)
    return tensor


def called(b: Builder, tensor: Tensor) -> str | None:
    """The name that the program has for a value, if it has one."""
    for statement in reversed(b.layer.statements):
        if statement.value.name == tensor.name:
            variable = statement.origin.variable if statement.origin else None
            return b.program.called.get(tensor.name) or (variable[0] if variable else None)
    return None


def _say_dims(program: Program) -> None:
    """Dims of made-up parameters have comments too, where no argument has them."""
    for parameter in program.main.parameters:
        for place, dim in enumerate(parameter.tensor.positions):
            if parameter.made_up and dim is not None and not program.dims.users(dim):
                program.dims.used_by(dim, f"{parameter.wanted}[{place}]")


def _inputs(program: Program, writer: text.Writer) -> dict[str, Callable[[Sequence[Any]], Any]]:
    found: dict[str, Callable[[Sequence[Any]], Any]] = {}
    for parameter in program.main.parameters:
        if parameter.data is not None:
            found[writer.parameters[parameter.tensor.name]] = parameter.data
    for call in program.calls.values():
        for name, datas in call.owned.items():
            if name in writer.parameters:
                found.update({f"{writer.parameters[name]}.{turn}": data for turn, data in enumerate(datas)})
    return found


def _outputs(program: Program, writer: text.Writer) -> list[tuple[str, int, int | None]]:
    found: list[tuple[str, int, int | None]] = [
        (name, result.output, result.part) for name, result in zip(writer.results, program.main.results)
    ]
    for call in program.calls.values():
        for output, cache in call.states.items():
            found += [(f"{writer.states[cache]}.{turn}", output, turn) for turn in range(call.layer.repeat)]
    return found
