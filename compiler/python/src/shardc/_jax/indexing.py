"""Rows of tables, positions that are written, largest elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import arithmetic, shapes
from . import known as tables
from .builder import Builder
from .dims import Dim
from .lib import numpy
from .program import Expression, Known, Stack, Tensor, Value


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
    whole = all(n == table.shape[d] for d, n in enumerate(sizes) if d != at and d not in batch)
    if not whole or sizes[at] != 1 or at not in how.collapsed_slice_dims:
        raise b.fail("`.shard` has no counterpart of a gather of parts of rows")
    table = b.materialise(table, [at], even_one=True)
    ids, table = _batched(b, ids, table, at, batch)
    over = table.positions[at]
    assert over is not None
    rest = [d for d in range(len(table.shape)) if d != at and d not in batch]
    positions: list[Dim | None] = [None] * len(out.shape)
    for to, d in zip(how.offset_dims, rest):
        positions[to] = table.positions[d]
    batch_dims = [d for d in range(len(out.shape)) if d not in how.offset_dims]
    for n, to in enumerate(batch_dims):
        positions[to] = ids.positions[n]
        for d, of_ids in batch.items():
            if of_ids == n and positions[to] is None:
                positions[to] = table.positions[d]
    expression = Expression("take", (table.name, ids.name), (over,))
    return [b.emit(expression, tuple(positions), out.shape, table.dtype)]


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
    return Tensor(table.name, tuple(positions), tuple(shape), table.dtype, table.truth)


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
        along = _counts_along(part)
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


def _counts_along(value: Value) -> int | None:
    """The dim along which a known tensor is 0, 1, 2 and so on."""
    if not isinstance(value, Known) or not value.constant or sum(value.real) != 1:
        return None
    array = numpy().asarray(value.data(())).reshape(-1)
    counts = bool((array == numpy().arange(array.size)).all())
    return value.real.index(True) if counts and array.size == value.shape[value.real.index(True)] else None


def _batched(b: Builder, ids: Tensor, table: Tensor, at: int, batch: dict[int, int]) -> tuple[Tensor, Tensor]:
    """Ids and table with one name for the dims that go together, and for no others."""
    wanted: list[Dim | None] = [None] * len(table.shape)
    for d, of_ids in batch.items():
        wanted[d] = ids.positions[of_ids]
    table = b.meet(tuple(wanted), table)
    root = b.dims.root
    shared = {root(dim) for d, dim in enumerate(table.positions) if d in batch and dim is not None}
    pairs = [
        (dim, b.dims.fresh(b.dims.size(dim), like=dim))
        for d, dim in enumerate(table.positions)
        if dim is not None and d not in batch and root(dim) not in shared and root(dim) in {root(i) for i in ids.dims}
    ]
    return ids, b.rename(table, pairs)


def scatter_add(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """What `take` is differentiated to: each row gets the sum of what its ids bring. A product with ones and zeros."""
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
    windows = list(how.update_window_dims)
    rest = [d for d in range(len(out.shape)) if d != at and d not in batch]
    scattered = [d for d in range(len(updates.shape)) if d not in windows]
    wanted: list[Dim | None] = [None] * len(updates.shape)
    for n, d in enumerate(scattered):
        wanted[d] = ids.positions[n]
    updates = b.meet(tuple(wanted), updates)
    row = b.dims.fresh(out.shape[at])
    chosen = one_hot(b, ids, row, updates.dtype)
    positions: list[Dim | None] = [None] * len(out.shape)
    positions[at] = row
    for d, of_ids in batch.items():
        positions[d] = updates.positions[scattered[of_ids]]
    for d, window in zip(rest, windows):
        positions[d] = updates.positions[window]
    dims = tuple(dim for dim in positions if dim is not None)
    made = b.emit(Expression("einsum", (chosen.name, updates.name), dims), tuple(positions), out.shape, updates.dtype)
    return [b.binary("+", base, made)]


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


def one_hot(b: Builder, ids: Tensor, row: Dim, dtype: str) -> Tensor:
    """1 where an id is the row, else 0; the dims of the ids, then that of the rows."""
    count = b.table("rows", (row,), numpy().arange(b.dims.size(row), dtype="int32"), "int32")
    shape = (*ids.shape, b.dims.size(row))
    wide = Tensor(ids.name, (*ids.positions, None), shape, ids.dtype)
    tall = Tensor(count.name, (None,) * len(ids.shape) + (row,), shape, "int32")
    chosen = b.tensor(arithmetic.negation(b, arithmetic.differ(b, wide, tall)))
    if chosen.dtype == dtype:
        return chosen
    return b.emit(Expression("cast", (chosen.name,), word=dtype), chosen.positions, shape, dtype)


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
    return b.emit(Expression("take", (value.name, ids.name), (over,)), positions, shape, value.dtype, value.truth)


def dynamic_update_slice(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """A cache with new positions written into it."""
    if isinstance(operands[0], Stack):
        raise b.fail("this writes into what a loop makes in its turns")
    return [write(b, b.tensor(operands[0], whole=True), b.tensor(operands[1]), list(operands[2:]))]


def write(b: Builder, cache: Tensor, new: Tensor, starts: Sequence[Value]) -> Tensor:
    """The cache with `new` at these positions: at its end where they are computed."""
    differ = [at for at, (n, m) in enumerate(zip(cache.shape, new.shape)) if n != m]
    if not differ:
        return new
    numbers = {at: tables.number(starts[at]) for at in differ}
    if len(differ) > 1:
        at = next((at for at in differ if numbers[at] is not None), None)
        if at is None:
            raise b.fail("`.shard` has no counterpart of a part that is written at computed positions of several dims")
        start = int(numbers[at] or 0)
        old = shapes.window(b, cache, at, start, new.shape[at])
        return _between(b, cache, write(b, old, new, starts), at, start)
    at = differ[0]
    end = cache.shape[at] - new.shape[at]
    start_at = numbers[at]
    if start_at is not None and int(start_at) < end:
        return _between(b, cache, new, at, int(start_at))
    if start_at is None:
        b.note("written at a position that is computed: taken to be the end of the cache")
    return _append(b, cache, new, at)


def _between(b: Builder, cache: Tensor, new: Tensor, at: int, start: int) -> Tensor:
    behind = cache.shape[at] - start - new.shape[at]
    made = new
    if start:
        made = shapes.join(b, shapes.window(b, cache, at, 0, start), made, at)
    if behind:
        made = shapes.join(b, made, shapes.window(b, cache, at, cache.shape[at] - behind, behind), at)
    dim = cache.positions[at]
    return b.meet((*cache.positions[:at], dim, *cache.positions[at + 1 :]), made)


def _append(b: Builder, cache: Tensor, new: Tensor, at: int) -> Tensor:
    new = b.materialise(new, range(len(new.shape)))
    new = b.materialise(new, [at], even_one=True)
    new = b.meet((*cache.positions[:at], None, *cache.positions[at + 1 :]), new)
    short, long = new.positions[at], cache.positions[at]
    assert short is not None and long is not None
    b.caches.add(cache.name)
    expression = Expression("append", (cache.name, new.name), (short,), (long,))
    return b.emit(expression, cache.positions, cache.shape, cache.dtype, cache.truth)


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
    return [write(b, cache, Tensor(updates.name, tuple(positions), tuple(shape), updates.dtype), starts)]


def argmax(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """The first position of the largest element."""
    value = b.tensor(operands[0])
    if equation.primitive.name == "argmin":
        value = b.map("neg", value)
    (at,) = equation.params["axes"]
    shape = value.shape[:at] + value.shape[at + 1 :]
    if value.shape[at] == 1:
        return [tables.filled(shape, 0, "int32")]
    value = b.materialise(b.tensor(value), [at])
    dim = value.positions[at]
    assert dim is not None
    positions = value.positions[:at] + value.positions[at + 1 :]
    return [b.emit(Expression("argmax", (value.name,), (dim,)), positions, shape, "int32")]


def _first_largest(b: Builder, value: Tensor, at: int) -> tuple[Tensor, Tensor, Tensor]:
    """Position and value of the first largest element along a dim, which has size 1 in both; and 1 where it is."""
    size, dim = value.shape[at], value.positions[at]
    small = (*value.shape[:at], 1, *value.shape[at + 1 :])
    reduced = (*value.shape[:at], *value.shape[at + 1 :])

    def kept(one: Tensor) -> Tensor:
        return Tensor(one.name, (*one.positions[:at], None, *one.positions[at:]), small, one.dtype)

    largest = kept(b.reduce("max", value, [at], reduced))
    if dim is None:
        zero = b.tensor(b.binary("*", largest, b.number(0, largest)), whole=True)
        return zero, largest, largest
    # Positions from behind, where the element is the largest: the largest of these is the first. They are whole numbers,
    # and float32 has them all up to 2^24.
    where = b.cast(arithmetic.negation(b, arithmetic.differ(b, value, largest)), "float32")
    backwards = b.table("places", (dim,), numpy().arange(size, 0, -1).astype("float32"), "f32")
    ranks = Tensor(backwards.name, tuple(dim if p == at else None for p in range(len(value.shape))), value.shape, "f32")
    best = kept(b.reduce("max", b.tensor(b.binary("*", where, ranks)), [at], reduced))
    place = b.tensor(b.binary("-", b.number(size, best), best))
    here = arithmetic.negation(b, arithmetic.differ(b, ranks, best))
    return place, largest, b.tensor(here)


MOST_CHOICES = 16
"""`top_k` is written out, choice by choice."""


def top_k(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """The largest elements and where they are, one after another."""
    count = equation.params["k"]
    value = b.tensor(operands[0])
    at = equation.params.get("axis", len(value.shape) - 1) % len(value.shape)
    value = b.materialise(value, [at])
    if count > MOST_CHOICES:
        raise b.fail(f"`.shard` has no counterpart of top_k, and {count} choices are too many to write out")
    values: list[Tensor] = []
    places: list[Tensor] = []
    for _ in range(count):
        place, largest, here = _first_largest(b, value, at)
        values.append(largest)
        places.append(b.tensor(b.cast(place, "int32")))
        dtype = str(equation.outvars[0].aval.dtype)
        value = b.tensor(arithmetic.choose(b, here, b.number(-1e30, value), value, dtype))
    made: list[Value] = []
    for parts in (values, places):
        whole = parts[0]
        for part in parts[1:]:
            whole = shapes.join(b, whole, part, at)
        made.append(whole)
    return made
