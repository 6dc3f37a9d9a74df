"""Rows of tables, positions that are written, largest elements."""

from __future__ import annotations

import math
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
    b.dims.tensor((*table.dims, *ids.dims))
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


FEW = 4
"""Parts give their own largest where these are at most one in so many of all elements."""


def _parts(b: Builder, size: int, count: int) -> int:
    """In how many parts a dim is searched, so that axes of the mesh may split it."""
    found = {1}
    for axis in b.program.axes:
        found |= {parts * axis for parts in found}
    return max(parts for parts in found if size % parts == 0 and (parts == 1 or FEW * parts * count <= size))


def top_k(b: Builder, value: Tensor, at: int, count: int) -> tuple[Value, Value]:
    """The largest elements in falling order, and where they are; of equal ones the first before the others."""
    shape = (*value.shape[:at], count, *value.shape[at + 1 :])
    if value.shape[at] == 1:
        return value, tables.filled(shape, 0, "int32")
    value = b.materialise(value, [at])
    if count == 1:
        reduced = value.shape[:at] + value.shape[at + 1 :]
        both = b.reduce("max", value, [at], reduced), b.tensor(argmax(b, value, at))
        largest, place = (
            Tensor(one.name, (*one.positions[:at], None, *one.positions[at:]), shape, one.dtype) for one in both
        )
        return largest, place
    parts = _parts(b, value.shape[at], count)
    best, places = _largest(b, value, at, count * parts, parts)
    if parts == 1:
        return best, places
    largest, chosen = _largest(b, best, at, count, 1)
    over = places.positions[at]
    assert over is not None
    return largest, b.emit(Expression("take", (places.name, chosen.name), (over,)), chosen.positions, shape, "int32")


def _largest(b: Builder, value: Tensor, at: int, count: int, parts: int) -> tuple[Tensor, Tensor]:
    """`topk` and `argtopk`."""
    over = value.positions[at]
    assert over is not None
    to = b.dims.fresh(count)
    b.dims.apart(over, to)
    positions = (*value.positions[:at], to, *value.positions[at + 1 :])
    shape = (*value.shape[:at], count, *value.shape[at + 1 :])
    largest, places = (
        b.emit(Expression(op, (value.name,), (over,), (to,), number=parts), positions, shape, dtype)
        for op, dtype in (("topk", value.dtype), ("argtopk", "int32"))
    )
    return largest, places


def sort(b: Builder, values: Sequence[Value], at: int) -> list[Value]:
    """Values in the rising order of the first of them; of equal ones the first before the others. They are the largest
    of what is negated, all of them."""
    key = b.tensor(b.numbers(values[0]))
    if key.shape[at] == 1:
        return list(values)
    turned = b.map("neg", b.materialise(key, [at]))
    largest, places = _largest(b, turned, at, key.shape[at], 1)
    first: Value = b.map("neg", largest)
    made = [b.truth(b.tensor(first)) if b.tensor(values[0]).dtype == "bool" else first]
    for value in values[1:]:
        if tables.counts_along(value) == at:
            made.append(places)
            continue
        batch = {d: d for d in range(len(key.shape)) if d != at}
        made.append(take(b, b.tensor(value), places, at, batch, [], key.shape))
    return made


def scatter_add(
    b: Builder,
    updates: Tensor,
    ids: Tensor,
    scattered: Sequence[int],
    summed: Sequence[int],
    out: Sequence[int | None],
    shape: Sequence[int],
) -> Tensor:
    """For each place the sum of the updates that have its id. `scattered` has the dim of the updates for each dim of the
    ids, `summed` the dims of the ids that are added up, `out` for each dim of the result that of the updates, and None for
    the places."""
    wanted: list[Dim | None] = [None] * len(updates.shape)
    for n, d in enumerate(scattered):
        wanted[d] = ids.positions[n]
    updates = b.meet(tuple(wanted), updates)
    updates = _added(b, updates, [scattered[n] for n in summed if ids.positions[n] is None])
    over = tuple(dim for n in summed if (dim := updates.positions[scattered[n]]) is not None)
    row = b.dims.fresh(shape[out.index(None)])
    b.dims.tensor((*updates.dims, *ids.dims, row))
    positions = tuple(row if d is None else updates.positions[d] for d in out)
    if over:
        expression = Expression("scatter_add", (updates.name, ids.name), over, (row,))
    else:  # all to one place
        chosen = one_hot(b, ids, row, updates.dtype)
        expression = Expression(
            "einsum", (chosen.name, updates.name), tuple(dim for dim in positions if dim is not None)
        )
    return b.emit(expression, positions, shape, updates.dtype)


def _added(b: Builder, value: Tensor, at: Sequence[int]) -> Tensor:
    """The sum over dims, which stay in the shape."""
    dims = tuple(dim for d in at if (dim := value.positions[d]) is not None)
    if not dims:
        return value
    positions = tuple(None if d in at else dim for d, dim in enumerate(value.positions))
    return b.emit(Expression("sum", (value.name,), dims), positions, value.shape, value.dtype)


def within(b: Builder, ids: Value, size: int) -> Tensor:
    """Ids of which each is a place: what lies outside is the first or the last."""
    most = b.number(size - 1, ids)
    return b.tensor(b.binary("minimum", b.binary("maximum", ids, b.number(0, ids)), most))


def merged(b: Builder, table: Tensor, along: Sequence[int]) -> tuple[Tensor, int, list[int]]:
    """The table with several dims as one, in the place of the first; that place; which dims it has."""
    first, *others = along
    kept = [d for d in range(len(table.shape)) if d not in others]
    if others:
        table = b.materialise(table, along, even_one=True)
        dims = tuple(dim for d in along if (dim := table.positions[d]) is not None)
        size = math.prod(table.shape[d] for d in along)
        whole = b.dims.fresh(size)
        positions = tuple(whole if d == first else table.positions[d] for d in kept)
        shape = [size if d == first else table.shape[d] for d in kept]
        table = b.emit(Expression("merge", (table.name,), dims, (whole,)), positions, shape, table.dtype)
    return table, kept.index(first), kept


def parted(b: Builder, value: Tensor, along: Sequence[int], shape: Sequence[int]) -> Tensor:
    """What `merged` made one, several dims again."""
    first, *others = along
    if not others:
        return value
    kept = [d for d in range(len(shape)) if d not in others]
    whole = value.positions[kept.index(first)]
    assert whole is not None
    parts = {d: b.dims.fresh(shape[d]) for d in along}
    positions = tuple(parts[d] if d in parts else value.positions[kept.index(d)] for d in range(len(shape)))
    return b.emit(Expression("split", (value.name,), (whole,), tuple(parts.values())), positions, shape, value.dtype)
