"""Rows of tables, positions that are written, largest elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._program import arithmetic, indexing, shapes
from .._program import known as tables
from .._program.builder import Builder
from .._program.dims import Dim
from .._program.lib import numpy
from .._program.program import Expression, Known, Stack, Tensor, Value


def gather(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Rows of a table by ids: `table[ids]`, `jnp.take`, `take_along_axis`; elements by several coordinates."""
    how, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    table = b.tensor(operands[0])
    out = equation.outvars[0].aval
    known = _known_places(operands[1], how.start_index_map)
    if known is not None:
        return [_part(b, table, known, sizes, how.collapsed_slice_dims)]
    found = _indices(
        b,
        operands[1],
        how.start_index_map,
        dict(zip(how.operand_batching_dims, how.start_indices_batching_dims)),
        table.shape,
        sizes,
    )
    if found is None:
        raise b.fail("`.shard` has no counterpart of this gather: its coordinates are not known one by one")
    along, batch = [at for at, _ in found.own], found.batch
    rest = [d for d in range(len(table.shape)) if d not in along and d not in batch]
    if any(sizes[d] != table.shape[d] for d in rest) or any(sizes[d] != 1 for d in along):
        raise b.fail("`.shard` has no counterpart of a gather of parts of rows")
    # A dim of which one position is taken, and which stays, has no name.
    stays = [d for d in range(len(table.shape)) if d not in (*how.collapsed_slice_dims, *how.operand_batching_dims)]
    offsets = dict(zip(stays, how.offset_dims))
    ones = sorted(offsets[d] for d in (*along, *batch) if d in offsets)
    short = [at for at in range(len(out.shape)) if at not in ones]
    of_rows = [short.index(offsets[d]) for d in rest]
    if found.is_all:
        (place,) = (at for at in range(len(out.shape)) if at not in how.offset_dims)
        moved = {place: table.positions[along[0]], **{offsets[d]: table.positions[d] for d in rest}}
        return [shapes.renewed(table, [moved.get(at) for at in range(len(out.shape))], out.shape)]
    ids = _flat(b, found.own, table.shape, equation.params.get("mode"))
    table, at, kept = indexing.merged(b, table, along)
    batch = {kept.index(d): of_ids for d, of_ids in batch.items()}
    made = indexing.take(b, table, ids, at, batch, of_rows, [out.shape[at] for at in short])
    positions: list[Dim | None] = [None] * len(out.shape)
    for place, dim in zip(short, made.positions):
        positions[place] = dim
    return [shapes.renewed(made, positions, out.shape)]


def _known_places(indices: Value, dims: Sequence[int]) -> dict[int, int] | None:
    """Where a part begins, by dim, if it is one part and known."""
    if not isinstance(indices, Known) or not indices.constant or indices.shape != (len(dims),):
        return None
    starts = tables.full(indices, ())
    return {at: int(start) for at, start in zip(dims, starts)}


def _part(b: Builder, table: Tensor, starts: dict[int, int], sizes: Sequence[int], away: Sequence[int]) -> Tensor:
    for at, start in starts.items():
        table = shapes.window(b, table, at, min(max(start, 0), table.shape[at] - sizes[at]), sizes[at])
    kept = [at for at in range(len(table.shape)) if at not in away]
    positions, shape = [table.positions[at] for at in kept], [table.shape[at] for at in kept]
    return Tensor(table.name, tuple(positions), tuple(shape), table.dtype)


@dataclass(frozen=True)
class _Indices:
    """Where rows are: for each dim that they lie along the ids, and other dims with the dim of the ids that they go with."""

    own: Sequence[tuple[int, Tensor]]
    batch: dict[int, int]
    is_all: bool = False
    """Whether the ids are all of one dim, in order."""


def _indices(
    b: Builder,
    value: Value,
    starts: Sequence[int],
    batch: dict[int, int],
    shape: Sequence[int],
    sizes: Sequence[int] | None,
) -> _Indices | None:
    """Coordinates one by one. Those of a dim that is taken whole, by `sizes`, say nothing."""
    last = len(value.shape) - 1
    if len(starts) == 1:
        is_all = not batch and _counts(value, shape[starts[0]])
        return _Indices([(starts[0], _without(b.tensor(value), last))], batch, is_all)
    parts = _columns(value) if isinstance(value, Known) else b.parts_of(value)
    if parts is None and isinstance(value, Tensor):
        parts = [shapes.window(b, value, last, at, 1) for at in range(len(starts))]
    if parts is None or any(part.shape[last] != 1 for part in parts):
        return None
    coordinates = [(at, part) for at, part in zip(starts, parts) if sizes is None or sizes[at] != shape[at]]
    own: list[tuple[int, Value]] = []
    for at, part in coordinates:
        along = tables.counts_along(part)
        if along is None or along in batch.values() or part.shape[along] != shape[at]:
            own.append((at, part))
        else:
            batch = {**batch, at: along}
    if not own and coordinates:  # all count: the last are ids
        own = coordinates[-1:]
        batch = {d: of_ids for d, of_ids in batch.items() if d != own[0][0]}
    if not own:
        return None
    is_all = len(own) == 1 and not batch and _counts(own[0][1], shape[own[0][0]])
    return _Indices([(at, _without(b.tensor(part), last)) for at, part in own], batch, is_all)


def _counts(value: Value, size: int) -> bool:
    """Whether ids are 0, 1, 2 and so on, for a given number of places."""
    return value.shape == (size, 1) and tables.counts_along(value) == 0


def _flat(b: Builder, own: Sequence[tuple[int, Tensor]], shape: Sequence[int], mode: Any) -> Tensor:
    """Several coordinates as the place in the dim made of all their dims; -1 where a coordinate is outside its dim."""
    word = str(mode)
    ids: list[Tensor] = [b.tensor(b.cast(one, "int32")) for _, one in own]
    if word.endswith("CLIP"):
        ids = [indexing.within(b, one, shape[at]) for (at, _), one in zip(own, ids)]
    made: Value = ids[0]
    for (at, _), one in zip(own[1:], ids[1:]):
        made = b.binary("+", b.binary("*", made, b.number(shape[at], one)), one)
    if len(own) == 1 or word.endswith(("CLIP", "PROMISE_IN_BOUNDS")):
        return b.tensor(made)
    for (at, _), one in zip(own, ids):
        beyond = b.number(shape[at], one), b.number(0, one)
        holds = [arithmetic.compare(b, word, one, bound) for word, bound in zip(("lt", "ge"), beyond)]
        made = arithmetic.choose(b, arithmetic.logic(b, "and", holds), made, b.number(-1, one), "int32")
    return b.tensor(made)


def _columns(indices: Known) -> list[Value] | None:
    """The coordinates of known places, each with a last dim of size 1."""
    if not indices.constant:
        return None
    whole = tables.full(indices, ())
    return [tables.constant(whole[..., at : at + 1]) for at in range(indices.shape[-1])]


def _without(value: Tensor, at: int) -> Tensor:
    positions, shape = value.positions, value.shape
    return Tensor(value.name, positions[:at] + positions[at + 1 :], shape[:at] + shape[at + 1 :], value.dtype)


def scatter_add(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """The gradient of `take`: each row gets the sum of the rows with its id."""
    how = equation.params["dimension_numbers"]
    base, updates = operands[0], b.tensor(operands[2], whole=True)
    known = _known_places(operands[1], how.scatter_dims_to_operand_dims)
    if known is not None:
        return [_add_part(b, equation, base, updates, known)]
    out = equation.outvars[0].aval
    found = _indices(
        b,
        operands[1],
        how.scatter_dims_to_operand_dims,
        dict(zip(how.operand_batching_dims, how.scatter_indices_batching_dims)),
        out.shape,
        None,
    )
    if found is None or any(at not in how.inserted_window_dims for at, _ in found.own):
        raise b.fail("`.shard` has no counterpart of this scatter: it adds to parts of rows")
    ids = _flat(b, found.own, out.shape, equation.params.get("mode"))
    along, *others = [at for at, _ in found.own]
    scattered = [d for d in range(len(updates.shape)) if d not in how.update_window_dims]
    of_updates = {d: scattered[of_ids] for d, of_ids in found.batch.items()}
    rest = [d for d in range(len(out.shape)) if d not in (along, *others) and d not in of_updates]
    of_updates.update(zip(rest, how.update_window_dims))
    kept = [d for d in range(len(out.shape)) if d not in others]
    sizes = [math.prod(out.shape[at] for at, _ in found.own) if d == along else out.shape[d] for d in kept]
    summed = [n for n in range(len(scattered)) if n not in found.batch.values()]
    places = [of_updates.get(d) for d in kept]
    made = indexing.scatter_add(b, updates, ids, scattered, summed, places, sizes)
    return [b.binary("+", base, indexing.parted(b, made, [at for at, _ in found.own], out.shape))]


def _add_part(b: Builder, equation: Any, base: Value, updates: Tensor, starts: dict[int, int]) -> Value:
    """A part that is added at a known place: it is padded with zeros."""
    shape, positions = list(updates.shape), list(updates.positions)
    for at in sorted(equation.params["dimension_numbers"].inserted_window_dims):
        shape.insert(at, 1)
        positions.insert(at, None)
    made = Tensor(updates.name, tuple(positions), tuple(shape), updates.dtype)
    dtype = str(equation.outvars[0].aval.dtype)
    for at, start in starts.items():
        behind = equation.outvars[0].aval.shape[at] - start - made.shape[at]
        made = shapes.padded(b, made, at, start, behind, 0, dtype)
    return b.binary("+", base, made)


def dynamic_slice(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Positions from a computed one on."""
    value: Value = operands[0]
    sizes = equation.params["slice_sizes"]
    if isinstance(value, Stack):
        start = tables.number(operands[1])
        if start is None or sizes[0] != 1 or tuple(sizes[1:]) != value.shape[1:]:
            raise b.fail("this takes a computed part of what a loop makes in its turns")
        return [Stack((value.parts[int(start)],), (1, *value.shape[1:]))]
    made = b.tensor(value)
    for at, (size, start_value) in enumerate(zip(sizes, operands[1:])):
        if size == made.shape[at]:
            continue
        start = tables.number(start_value)
        if start is not None:
            start = min(max(int(start), 0), made.shape[at] - size)  # as JAX clamps it
            made = shapes.window(b, made, at, start, size)
        else:
            made = _rows(b, made, at, start_value, size)
    return [made]


def _rows(b: Builder, value: Tensor, at: int, start: Value, size: int) -> Tensor:
    """`size` positions along a dim from a computed one on, as rows of a table."""
    value = b.materialise(value, [at], even_one=True)
    over = value.positions[at]
    assert over is not None
    ids = b.tensor(b.cast(start, "int32"))
    to: Dim | None = None
    if size > 1:
        to = b.dims.fresh(size)
        count = b.table("rows", (to,), numpy().arange(size, dtype="int32"), "int32")
        ids = b.emit(Expression("+", (count.name, ids.name)), (to,), (size,), "int32")
    positions = (*value.positions[:at], to, *value.positions[at + 1 :])
    shape = (*value.shape[:at], size, *value.shape[at + 1 :])
    return b.emit(Expression("take", (value.name, ids.name), (over,)), positions, shape, value.dtype)


def dynamic_update_slice(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """A cache with new positions written into it."""
    if isinstance(operands[0], Stack):
        raise b.fail("this writes into what a loop makes in its turns")
    return [indexing.write(b, b.tensor(operands[0], whole=True), b.tensor(operands[1]), list(operands[2:]))]


def scatter(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """`cache.at[:, position].set(new)`: one place that is written."""
    how = equation.params["dimension_numbers"]
    indices, updates = operands[1], b.tensor(operands[2])
    if indices.shape[:-1] or isinstance(operands[0], Stack):
        raise b.fail("`.shard` has no counterpart of a scatter to several places")
    cache = b.tensor(operands[0], whole=True)
    parts = b.parts_of(indices) if len(how.scatter_dims_to_operand_dims) > 1 else [indices]
    if parts is None:
        raise b.fail("`.shard` has no counterpart of this scatter")
    starts: list[Value] = [tables.filled((), 0, "int32")] * len(cache.shape)
    for at, part in zip(how.scatter_dims_to_operand_dims, parts):
        number = tables.number(part)
        starts[at] = part if number is None else tables.filled((), number, "int32")
    # Dims of which one position is written are not in the updates.
    shape, positions = list(updates.shape), list(updates.positions)
    for at in sorted(how.inserted_window_dims):
        shape.insert(at, 1)
        positions.insert(at, None)
    return [indexing.write(b, cache, Tensor(updates.name, tuple(positions), tuple(shape), updates.dtype), starts)]


def argmax(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """The first position of the largest element, or of the least."""
    value = b.tensor(operands[0])
    if equation.primitive.name == "argmin":
        value = b.map("neg", value)
    return [indexing.argmax(b, value, *equation.params["axes"])]


def top_k(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """The largest elements and where they are."""
    value = b.tensor(operands[0])
    at = equation.params.get("axis", len(value.shape) - 1) % len(value.shape)
    return list(indexing.top_k(b, value, at, equation.params["k"]))


def sort(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """In rising order, one key first."""
    if equation.params["num_keys"] != 1:
        raise b.fail("`.shard` has no counterpart of sorting by several keys")
    return indexing.sort(b, operands, equation.params["dimension"] % len(operands[0].shape))
