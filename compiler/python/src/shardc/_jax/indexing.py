"""Rows of tables, positions that are written, largest elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._program import indexing, shapes
from .._program import known as tables
from .._program.builder import Builder
from .._program.dims import Dim
from .._program.lib import numpy
from .._program.program import Expression, Known, Stack, Tensor, Value


def gather(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Rows of a table by ids: `table[ids]`, `jnp.take`, `take_along_axis`."""
    how = equation.params["dimension_numbers"]
    table = b.tensor(operands[0])
    out = equation.outvars[0].aval
    known = _known_places(operands[1], how.start_index_map)
    if known is not None:
        return [_part(b, table, known, equation.params["slice_sizes"], how.collapsed_slice_dims)]
    indices = _indices(b, operands[1], how.start_index_map, how.operand_batching_dims, how.start_indices_batching_dims)
    if indices is None:
        raise b.fail("`.shard` has no counterpart of this gather: it takes rows along one dim by one tensor of ids")
    at, ids, batch = indices
    sizes = equation.params["slice_sizes"]
    if str(equation.params.get("mode", "")).endswith("CLIP"):
        ids = indexing.within(b, ids, table.shape[at])
    whole = all(n == table.shape[d] for d, n in enumerate(sizes) if d != at and d not in batch)
    if not whole or sizes[at] != 1 or at not in how.collapsed_slice_dims:
        raise b.fail("`.shard` has no counterpart of a gather of parts of rows")
    return [indexing.take(b, table, ids, at, batch, how.offset_dims, out.shape)]


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


def _indices(
    b: Builder, value: Value, starts: Sequence[int], table_batch: Sequence[int], ids_batch: Sequence[int]
) -> tuple[int, Tensor, dict[int, int]] | None:
    """The dim that ids go along, the ids, and the other dims of the table with the dim of the ids that they go with."""
    batch = dict(zip(table_batch, ids_batch))
    if len(starts) == 1:
        last = len(value.shape) - 1
        ids = b.tensor(value)
        return starts[0], _without(ids, last), batch
    parts = _columns(value) if isinstance(value, Known) else b.parts_of(value)
    if parts is None or len(parts) != len(starts):
        return None
    own: list[tuple[int, Value]] = []
    for at, part in zip(starts, parts):
        along = tables.counts_along(part)
        if along is None or batch.get(at) is not None:
            own.append((at, part))
        else:
            batch[at] = along
    if not own and batch:  # a diagonal
        own = [(starts[-1], parts[-1])]
        del batch[starts[-1]]
    if len(own) != 1:
        return None
    ids = b.tensor(own[0][1])
    return own[0][0], _without(ids, len(ids.shape) - 1), batch


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
    """What `take` is differentiated to: each row gets the sum of what its ids bring."""
    how = equation.params["dimension_numbers"]
    base, updates = operands[0], b.tensor(operands[2], whole=True)
    known = _known_places(operands[1], how.scatter_dims_to_operand_dims)
    if known is not None:
        return [_add_part(b, equation, base, updates, known)]
    indices = _indices(
        b, operands[1], how.scatter_dims_to_operand_dims, how.operand_batching_dims, how.scatter_indices_batching_dims
    )
    if indices is None or indices[0] not in how.inserted_window_dims:
        raise b.fail("`.shard` has no counterpart of this scatter: it adds to rows along one dim by one tensor of ids")
    at, ids, batch = indices
    out = equation.outvars[0].aval
    if str(equation.params.get("mode", "")).endswith("CLIP"):
        ids = indexing.within(b, ids, out.shape[at])
    windows = list(how.update_window_dims)
    scattered = [d for d in range(len(updates.shape)) if d not in windows]
    places: list[int | None] = [None] * len(out.shape)
    for d, of_ids in batch.items():
        places[d] = scattered[of_ids]
    for d, window in zip([d for d in range(len(out.shape)) if d != at and d not in batch], windows):
        places[d] = window
    summed = [n for n in range(len(scattered)) if n not in batch.values()]
    return [b.binary("+", base, indexing.scatter_add(b, updates, ids, scattered, summed, places, out.shape))]


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
    # The dims that are written one position of are not in the updates.
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
