"""An exported program of PyTorch as a `.shard` file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._equal import run_on
from ._function import explained
from ._program import known as tables
from ._program.builder import Builder
from ._program.dims import Dims
from ._program.errors import TranslationError
from ._program.lib import module
from ._program.program import Layer, Program, Result, Value
from ._program.translation import Translation, called, finished, shortest_names, whole
from ._results import Explanation, RunReport
from ._to_shard import HARDWARE
from ._torch.elementwise import TANH_GELU
from ._torch.evaluate import array_of, constant
from ._torch.node import dtype_name
from ._torch.placements import is_distributed, mesh_axes, mesh_of, spec_of
from ._torch.walk import known_operators, walk


@dataclass(frozen=True)
class Exported:
    """A program of `torch.export`, with the layouts of its parameters, inputs and results on a mesh."""

    program: Any
    args: Sequence[Any]
    mesh: Any
    placements: Mapping[str, Any] | None
    out_placements: Sequence[Any] | None
    weights: Sequence[str] | None
    hardware: None | str | os.PathLike[str]

    def translated(self, hardware: str | None = HARDWARE) -> Translation:
        """The file, and how its parts correspond to the program."""
        return _translate(self, hardware)

    def explained(self, options: Sequence[str]) -> Explanation:
        """The plan, its steps with the lines of Python."""
        return explained(self.translated(), [*options, *self._on_chip()])

    def run(self, options: Sequence[str]) -> RunReport:
        """The plan executed on the arguments, against the program."""
        made = self.translated()
        pytree = module("torch.utils._pytree")
        given = iter(pytree.tree_leaves(tuple(self.args)))
        flat = [next(given) if kept is None else kept for kept in made.flat]
        arrays = [array_of(one) if hasattr(one, "detach") else one for one in flat]
        results = pytree.tree_leaves(self.program.module()(*self.args))
        wanted = [array_of(one) for one in results]
        return run_on(made, arrays, wanted, [*options, *self._on_chip()], [*flat, *results])

    def _on_chip(self) -> list[str]:
        return [] if self.hardware is None else [f"--hardware={os.fspath(self.hardware)}"]


def _translate(asked: Exported, hardware: str | None) -> Translation:
    program = known_operators(asked.program)
    signature = program.graph_signature
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    vals = [node.meta.get("val") for node in placeholders]
    mesh = asked.mesh if asked.mesh is not None else mesh_of([*vals, *(asked.placements or {}).values()])
    if mesh is None:
        raise TypeError("mesh is missing: a program is laid out on one, and no parameter is a DTensor")
    axes = mesh_axes(mesh)
    name = _name(program)
    made = Program(Dims(), Layer(name), axes=tuple(axes.values()))
    b = Builder(made, made.main)
    specs = {spec.arg.name: spec for spec in signature.input_specs if hasattr(spec.arg, "name")}
    words = [str(specs[node.name].target or node.name) for node in placeholders]
    _no_strangers(asked, words)
    names = shortest_names([_path(word) for word in words])
    inputs: dict[str, Value] = {}
    flat: list[Any] = []
    for at, (node, val, word) in enumerate(zip(placeholders, vals, words)):
        spec = specs[node.name]
        kept = _kept(program, spec)
        flat.append(kept)
        placed = (asked.placements or {}).get(word)
        if placed is None and is_distributed(val):
            placed = val
        if placed is None and kept is not None and spec.kind.name != "PARAMETER" and _has_numbers(kept):
            inputs[node.name] = constant(kept, names[at])
            continue
        is_weight = spec.kind.name == "PARAMETER" if asked.weights is None else word in asked.weights
        inputs[node.name] = _argument(b, at, val, names[at], placed, axes, is_weight)
    results = walk(b, program.graph, inputs)
    _results(b, signature, results, asked.out_placements, axes)
    most = TANH_GELU if any("gelu of the error function" in note for note in made.notes) else 1e-4
    return finished(b, axes, hardware, f"{name}, from PyTorch", flat, most)


def _name(program: Any) -> str:
    """The class of the module, as it is named where the first operator comes from."""
    for node in program.graph.nodes:
        for _, kind in (node.meta.get("nn_module_stack") or {}).values():
            text = kind if isinstance(kind, str) else getattr(kind, "__name__", "main")
            word = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text.rsplit(".", 1)[-1]).lower()
            return word if word.isidentifier() else "main"
    return "main"


def _path(word: str) -> list[str]:
    """The parts of a name. The matrix is called `weight` in all modules, so this part is left out."""
    parts = word.split(".")
    return parts[:-1] if len(parts) > 1 and parts[-1] == "weight" else parts


def _no_strangers(asked: Exported, words: Sequence[str]) -> None:
    for what, given in (("placements", asked.placements or {}), ("weights", asked.weights or ())):
        unknown = [name for name in given if name not in words]
        if unknown:
            raise TypeError(f"{what} names {unknown[0]!r}, and the program has {', '.join(words)}")


def _kept(program: Any, spec: Any) -> Any:
    """What the program has of an input itself: a parameter, a buffer or a constant; None of what the caller gives."""
    if spec.target is None:
        return None
    found = program.state_dict.get(spec.target)
    return program.constants.get(spec.target) if found is None else found


def _has_numbers(tensor: Any) -> bool:
    """Whether it has real data, and is small enough for a table."""
    is_stand_in = type(tensor).__name__ == "FakeTensor" or str(getattr(tensor, "device", "")) == "meta"
    return hasattr(tensor, "numel") and not is_stand_in and tensor.numel() <= tables.MOST_ELEMENTS


def _argument(b: Builder, at: int, val: Any, name: str, placed: Any, axes: Mapping[str, int], is_weight: bool) -> Value:
    if not hasattr(val, "shape"):
        if isinstance(val, (bool, int, float)):
            return tables.filled((), val, "float32" if isinstance(val, float) else "int32")
        raise TranslationError(f"{name} is {type(val).__name__}: an argument is a tensor or a number")
    shape, dtype = tuple(val.shape), dtype_name(val.dtype)
    if any(not isinstance(n, int) for n in shape):
        raise TranslationError(f"{name} has the shape {shape}: sizes are numbers, so export without dynamic shapes")
    if not shape and dtype.startswith(("int", "uint", "bool")):
        return tables.argument(at, shape, dtype)
    return b.given(name, shape, dtype, lambda flat: flat[at], spec_of(placed, len(shape), axes, name), is_weight)


def _results(
    b: Builder, signature: Any, made: Sequence[Value | None], placements: Sequence[Any] | None, axes: Mapping[str, int]
) -> None:
    count = sum(spec.kind.name == "USER_OUTPUT" for spec in signature.output_specs)
    if placements is not None and len(placements) != count:
        raise TypeError(f"out_placements has {len(placements)} entries, and the program {count} results")
    for at, (spec, value) in enumerate(zip(signature.output_specs, made)):
        if spec.kind.name != "USER_OUTPUT":
            raise TranslationError(f"the program writes into {spec.target}: what it changes has to be a result")
        if value is None:
            raise TranslationError(f"result {at} is no tensor")
        tensor = whole(b, value)
        laid = spec_of(None if placements is None else placements[at], len(tensor.shape), axes, f"result {at}")
        b.layer.results.append(Result(tensor, called(b, tensor) or f"y{at}", laid, at))
