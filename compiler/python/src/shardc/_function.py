"""A function of JAX, explained and run as the program that `to_shard` makes of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ._commands import Source, _json, _on
from ._equal import run_on
from ._jax import specs
from ._program.lib import module, numpy
from ._program.translation import Translation
from ._results import ExplainedLayer, Explanation, Instruction, Place, RunReport
from ._to_shard import HARDWARE, translate


@dataclass(frozen=True)
class LaidFunction:
    """A function of JAX with its arguments, and their layouts on a mesh."""

    fn: Callable[..., Any]
    args: Sequence[Any]
    mesh: Any
    in_specs: Any
    out_specs: Any
    weights: Sequence[str] | None
    hardware: None | str | os.PathLike[str]

    def explained(self, options: Sequence[str]) -> Explanation:
        """The plan, its steps with the lines of Python."""
        made, on_chip = self._translated()
        return explained(made, [*options, *on_chip])

    def run(self, options: Sequence[str]) -> RunReport:
        """The plan executed on the arguments, against the function."""
        made, on_chip = self._translated()
        np = numpy()
        with specs.within(self.mesh):
            wanted = module("jax").tree_util.tree_leaves(self.fn(*self.args))
        # Keys of random numbers are no numbers.
        flat = [leaf if str(getattr(leaf, "dtype", "")).startswith("key") else np.asarray(leaf) for leaf in made.flat]
        return run_on(made, flat, [np.asarray(one) for one in wanted], [*options, *on_chip], [*wanted, *flat])

    def _translated(self) -> tuple[Translation, list[str]]:
        if self.mesh is None:
            raise TypeError("mesh is missing: a function of JAX is laid out on one")
        # A chip may be a file; only the command line takes its path relative to the current folder.
        on_chip = [] if self.hardware is None else [f"--hardware={os.fspath(self.hardware)}"]
        laid = (self.in_specs, self.out_specs)
        return translate(self.fn, self.args, self.mesh, *laid, HARDWARE, self.weights), on_chip


def explained(made: Translation, options: Sequence[str]) -> Explanation:
    """The plan of a program that was translated, its steps with the lines of Python."""
    ran = _on("explain", Source(made.text), [*options, "--format=json"])
    found = Explanation.of(_json(ran), ran.diagnostics)
    layers = tuple(_with_places(layer, made) for layer in found.layers)
    return replace(found, layers=layers, program=made.text)


def _with_places(layer: ExplainedLayer, made: Translation) -> ExplainedLayer:
    return replace(layer, instructions=tuple(_with_place(step, made) for step in layer.instructions))


def _with_place(step: Instruction, made: Translation) -> Instruction:
    frame = None if step.line is None else made.lines.get(step.line)
    return step if frame is None else replace(step, source=Place(frame.file, frame.line))
