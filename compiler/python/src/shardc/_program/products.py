"""Products of two tensors: what `@`, `einsum` and the like become."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import known as tables
from .builder import Builder
from .dims import Dim
from .program import Expression, Tensor, Value


@dataclass(frozen=True)
class Pairs:
    """Which positions of the left and of the right side are summed over together, and which only go together."""

    summed: tuple[Sequence[int], Sequence[int]]
    batch: tuple[Sequence[int], Sequence[int]] = ((), ())


def product(b: Builder, one: Value, other: Value, pairs: Pairs, shape: Sequence[int], dtype: str) -> Value:
    """A product of two tensors in a dtype: first the dims that go together, then those of the left side alone, then those
    of the right side."""
    (sum_a, sum_b), (batch_a, batch_b) = pairs.summed, pairs.batch
    for at, (number_of, tensor_of) in enumerate([(one, other), (other, one)]):
        number = tables.number(number_of)
        if number is not None:
            return _by_number(b, pairs, b.tensor(tensor_of), 1 - at, number, shape, dtype)
    a, c = b.tensor(b.numbers(one)), b.tensor(b.numbers(other))
    for at_a, at_c in zip([*batch_a, *sum_a], [*batch_b, *sum_b]):
        a, c = side_by_side(b, a, c, at_a, at_c)
    free_a = [at for at in range(len(a.shape)) if at not in (*batch_a, *sum_a)]
    free_c = [at for at in range(len(c.shape)) if at not in (*batch_b, *sum_b)]
    # A free dim of the right side that the left side also has is renamed.
    ours = {b.dims.root(dim) for dim in a.dims}
    for at in free_c:
        dim = c.positions[at]
        if dim is not None and b.dims.root(dim) in ours:
            c = b.rename(c, [(dim, b.dims.fresh(c.shape[at]))])
    _vote(b, a, c, (sum_a, sum_b), (batch_a, batch_b))
    positions = [a.positions[i] if a.positions[i] is not None else c.positions[j] for i, j in zip(batch_a, batch_b)]
    positions += [a.positions[at] for at in free_a] + [c.positions[at] for at in free_c]
    dims = tuple(dim for dim in positions if dim is not None)
    word = b.dtype(dtype)
    unstated = natural(a.dtype, c.dtype)
    expression = Expression("einsum", (a.name, c.name), dims, word="" if unstated == word else word)
    made = b.emit(expression, tuple(positions), tuple(shape), word)
    both = [a.positions[i] is None and c.positions[j] is None for i, j in zip(sum_a, sum_b)]
    times = math.prod(a.shape[at] for at, neither in zip(sum_a, both) if neither)
    return b.binary("*", made, b.number(times, made))


def natural(one: str, other: str) -> str:
    """The dtype of a product for which none is stated."""
    if one == other:
        return "int32" if one == "int8" else one
    return "f32" if "f32" in (one, other) else next((t for t in (one, other) if t in ("bf16", "f16")), one)


def side_by_side(b: Builder, a: Tensor, c: Tensor, at_a: int, at_c: int) -> tuple[Tensor, Tensor]:
    """The two with one name for a dim of both."""
    one, other = a.positions[at_a], c.positions[at_c]
    if one is None or other is None or b.dims.unify(one, other):
        return a, c
    here, there = b.dims.root(one), b.dims.root(other)
    # The right side may have this name for another of its dims: then the left side, an activation, is renamed.
    if here in {b.dims.root(dim) for dim in c.dims} and there not in {b.dims.root(dim) for dim in a.dims}:
        return b.rename(a, [(one, other)]), c
    return a, b.rename(c, [(other, one)])


def _by_number(
    b: Builder, pairs: Pairs, value: Tensor, side: int, number: float, shape: Sequence[int], dtype: str
) -> Value:
    """A product with a tensor of one number."""
    contracted, batch = pairs.summed[side], list(pairs.batch[side])
    kept = [at for at in range(len(value.shape)) if at not in contracted]
    reduced = b.reduce("sum", b.tensor(b.numbers(value)), contracted, [value.shape[at] for at in kept])
    positions: list[Dim | None] = [None] * len(shape)
    free = [at for at in kept if at not in batch]
    first = len(batch) if side == 0 else len(shape) - len(free)
    places = {at: n for n, at in enumerate(batch)}
    places.update({at: first + n for n, at in enumerate(free)})
    for at, dim in zip(kept, reduced.positions):
        positions[places[at]] = dim
    made = Tensor(reduced.name, tuple(positions), tuple(shape), reduced.dtype)
    return b.binary("*", b.cast(made, dtype), b.number(number, made))


def _vote(b: Builder, a: Tensor, c: Tensor, sums: Sequence[Any], batches: Sequence[Any]) -> None:
    """The letters that the program's einsum has, for the operands as far as they are its own."""
    text = b.origin.subscripts if b.origin else None
    if text is None or (b.origin is not None and b.origin.of_gradient):
        return
    inputs = text.split("->")[0].split(",")
    if len(inputs) != 2:
        return
    for one, other in ((inputs[0], inputs[1]), (inputs[1], inputs[0])):
        if len(one) != len(a.shape) or len(other) != len(c.shape):
            continue
        pairs = [*zip(sums[0], sums[1]), *zip(batches[0], batches[1])]
        if any(one[i] != other[j] for i, j in pairs):
            continue
        for letters, value in ((one, a), (other, c)):
            for letter, dim in zip(letters, value.positions):
                if dim is not None:
                    b.dims.vote(dim, letter)
        return
