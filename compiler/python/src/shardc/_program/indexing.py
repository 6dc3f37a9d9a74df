"""Rows of tables, positions that are written, largest elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import arithmetic, shapes
from . import known as tables
from .builder import Builder
from .dims import Dim
from .lib import numpy
from .program import Expression, Tensor, Value


def take(
    b: Builder,
    table: Tensor,
    ids: Tensor,
    at: int,
    batch: Mapping[int, int],
    of_rows: Sequence[int],
    shape: Sequence[int],
) -> Tensor:
    """Rows of a table along one dim by ids. `batch` has the other dims of the table that go with one of the ids, and
    `of_rows` the places in the result of those that go with none."""
    table = b.materialise(table, [at], even_one=True)
    ids, table = _batched(b, ids, table, at, batch)
    over = table.positions[at]
    assert over is not None
    rest = [d for d in range(len(table.shape)) if d != at and d not in batch]
    positions: list[Dim | None] = [None] * len(shape)
    for to, d in zip(of_rows, rest):
        positions[to] = table.positions[d]
    batch_dims = [d for d in range(len(shape)) if d not in of_rows]
    for n, to in enumerate(batch_dims):
        positions[to] = ids.positions[n]
        for d, of_ids in batch.items():
            if of_ids == n and positions[to] is None:
                positions[to] = table.positions[d]
    expression = Expression("take", (table.name, ids.name), (over,))
    return b.emit(expression, tuple(positions), shape, table.dtype)


def _batched(b: Builder, ids: Tensor, table: Tensor, at: int, batch: Mapping[int, int]) -> tuple[Tensor, Tensor]:
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


def one_hot(b: Builder, ids: Tensor, row: Dim, dtype: str) -> Tensor:
    """1 where an id is the row, else 0, in a dtype of the language; the dims of the ids, then that of the rows."""
    count = b.table("rows", (row,), numpy().arange(b.dims.size(row), dtype="int32"), "int32")
    shape = (*ids.shape, b.dims.size(row))
    wide = Tensor(ids.name, (*ids.positions, None), shape, ids.dtype)
    tall = Tensor(count.name, (None,) * len(ids.shape) + (row,), shape, "int32")
    chosen = b.tensor(arithmetic.compare(b, "eq", wide, tall))
    return b.emit(Expression("cast", (chosen.name,), word=dtype), chosen.positions, shape, dtype)


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
    return b.emit(expression, cache.positions, cache.shape, cache.dtype)


def argmax(b: Builder, value: Tensor, at: int) -> Value:
    """The first position of the largest element."""
    shape = value.shape[:at] + value.shape[at + 1 :]
    if value.shape[at] == 1:
        return tables.filled(shape, 0, "int32")
    value = b.materialise(value, [at])
    dim = value.positions[at]
    assert dim is not None
    positions = value.positions[:at] + value.positions[at + 1 :]
    return b.emit(Expression("argmax", (value.name,), (dim,)), positions, shape, "int32")


MOST_CHOICES = 16
"""`top_k` is written out, choice by choice."""


def top_k(b: Builder, value: Tensor, at: int, count: int, dtype: str) -> tuple[Tensor, Tensor]:
    """The largest elements and where they are, one after another; of a dtype by the name that JAX has for it."""
    if count > MOST_CHOICES:
        raise b.fail(f"`.shard` has no counterpart of top_k, and {count} choices are too many to write out")
    value = b.materialise(value, [at])
    reduced = value.shape[:at] + value.shape[at + 1 :]
    small = (*value.shape[:at], 1, *value.shape[at + 1 :])

    def kept(one: Value) -> Tensor:
        made = b.tensor(one)
        return Tensor(made.name, (*made.positions[:at], None, *made.positions[at:]), small, made.dtype)

    values: list[Tensor] = []
    places: list[Tensor] = []
    for turn in range(count):
        values.append(kept(b.reduce("max", value, [at], reduced)))
        places.append(kept(argmax(b, value, at)))
        dim = value.positions[at]
        if turn + 1 < count and dim is not None:  # the one that was found is out of the next choices
            here = b.emit(Expression("iota", (value.name,), (dim,)), value.positions, value.shape, "int32")
            found = Tensor(places[-1].name, places[-1].positions, value.shape, "int32")
            chosen = b.tensor(arithmetic.compare(b, "eq", here, found))
            value = b.tensor(arithmetic.choose(b, chosen, b.number(-1e30, value), value, dtype))
    return shapes.concatenate(b, values, at), shapes.concatenate(b, places, at)
