"""Operations that change the dims of a tensor, and keep its elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import known as tables
from .builder import Builder
from .dims import Dim
from .lib import numpy
from .program import Expression, Known, Tensor


def renewed(value: Tensor, positions: Sequence[Dim | None], shape: Sequence[int]) -> Tensor:
    """The same value, its dims elsewhere in the tensor of the program."""
    return Tensor(value.name, tuple(positions), tuple(shape), value.dtype)


def broadcast(value: Tensor, shape: Sequence[int], to: Sequence[int]) -> Tensor:
    """A dim that is added or repeated is only noted: elements along it are alike. `to` has the place of each dim."""
    positions: list[Dim | None] = [None] * len(shape)
    for at, place in enumerate(to):
        positions[place] = value.positions[at]
    return renewed(value, positions, shape)


def transpose(value: Tensor, order: Sequence[int]) -> Tensor:
    """Dims are matched by name, so their order is no statement."""
    return renewed(value, [value.positions[at] for at in order], [value.shape[at] for at in order])


def squeeze(value: Tensor, away: Sequence[int]) -> Tensor:
    """Dims of size 1 have no name."""
    gone = {at % len(value.shape) for at in away}
    kept = [at for at in range(len(value.shape)) if at not in gone]
    return renewed(value, [value.positions[at] for at in kept], [value.shape[at] for at in kept])


def reshape(b: Builder, value: Tensor, shape: Sequence[int]) -> Tensor:
    """Dims that are cut and joined: the factors that both shapes have."""
    old = [at for at, n in enumerate(value.shape) if n != 1]
    new = [at for at, n in enumerate(shape) if n != 1]
    positions: list[Dim | None] = [None] * len(shape)
    while old and new:
        olds, news = [old.pop(0)], [new.pop(0)]
        while (left := _size(value.shape, olds)) != (right := _size(shape, news)):
            if left < right:
                olds.append(old.pop(0))
            else:
                news.append(new.pop(0))
        if len(olds) == len(news) == 1:
            positions[news[0]] = value.positions[olds[0]]
            continue
        if all(value.positions[at] is None for at in olds):
            continue
        value = b.materialise(value, olds)
        dims = [value.positions[at] for at in olds]
        whole = dims[0]
        assert whole is not None
        if len(olds) > 1:
            whole = b.dims.fresh(_size(value.shape, olds), like=whole if len(news) == 1 else None)
            value = _merge(b, value, olds, whole)
        if len(news) > 1:
            parts = tuple(b.dims.fresh(shape[at]) for at in news)
            value = _split(b, value, whole, parts)
            for at, part in zip(news, parts):
                positions[at] = part
        else:
            positions[news[0]] = whole
    return renewed(value, positions, shape)


def _size(shape: Sequence[int], at: Sequence[int]) -> int:
    return math.prod(shape[position] for position in at)


def _merge(b: Builder, value: Tensor, olds: Sequence[int], whole: Dim) -> Tensor:
    dims = tuple(dim for at in olds if (dim := value.positions[at]) is not None)
    # The remaining dims stay at the place of the first; the shape is not used until the end.
    positions = tuple(whole if at == olds[0] else None if at in olds else dim for at, dim in enumerate(value.positions))
    return b.emit(Expression("merge", (value.name,), dims, (whole,)), positions, value.shape, value.dtype)


def _split(b: Builder, value: Tensor, whole: Dim, parts: tuple[Dim, ...]) -> Tensor:
    expression = Expression("split", (value.name,), (whole,), parts)
    kept = tuple(dim for dim in value.positions if dim is not None and b.dims.root(dim) != b.dims.root(whole))
    # All dims are present, in some order: the caller sets positions.
    made = b.emit(expression, kept + parts, tuple(map(b.dims.size, kept + parts)), value.dtype)
    away = tuple(None if dim is None or b.dims.root(dim) == b.dims.root(whole) else dim for dim in value.positions)
    return Tensor(made.name, away, value.shape, value.dtype)


def strided(b: Builder, value: Tensor, at: int, start: int, limit: int, stride: int) -> Tensor:
    """Every n-th position along one dim."""
    count = -(-(limit - start) // stride)
    if stride == 1 or count == 1:
        return window(b, value, at, start, count)
    size, dim = value.shape[at], value.positions[at]
    if dim is None:
        return window(b, value, at, 0, count)
    if start >= stride or size % stride or count != size // stride:
        return _rows(b, value, at, _positions(b, dim, range(start, limit, stride)))
    parts = (b.dims.fresh(count), b.dims.fresh(stride))
    cut = _split(b, value, dim, parts)
    split = Tensor(cut.name, (*value.positions[:at], *parts, *value.positions[at + 1 :]), (), cut.dtype)
    shape = (*value.shape[:at], count, stride, *value.shape[at + 1 :])
    chosen = window(b, Tensor(split.name, split.positions, shape, cut.dtype), at + 1, start, 1)
    kept = [p for p in range(len(shape)) if p != at + 1]
    return renewed(chosen, [chosen.positions[p] for p in kept], [chosen.shape[p] for p in kept])


def window(b: Builder, value: Tensor, at: int, start: int, count: int) -> Tensor:
    """`count` positions along one dim, from `start` on."""
    if count == value.shape[at]:
        return value
    shape = (*value.shape[:at], count, *value.shape[at + 1 :])
    dim = value.positions[at]
    if dim is None:
        return renewed(value, value.positions, shape)
    to = b.dims.fresh(count, like=None if count == 1 else dim)
    positions = (*value.positions[:at], to, *value.positions[at + 1 :])
    expression = Expression("slice", (value.name,), (dim,), (to,), number=start)
    made = b.emit(expression, positions, shape, value.dtype)
    if count > 1:
        return made
    # A dim of size 1 has no name.
    positions = (*positions[:at], None, *positions[at + 1 :])
    if value.dtype == "bool":
        made = b.tensor(b.numbers(made))
        summed = b.emit(Expression("sum", (made.name,), (to,)), positions, shape, made.dtype)
        return b.truth(summed)
    summed = b.emit(Expression("sum", (made.name,), (to,)), positions, shape, value.dtype)
    return summed


def concatenate(b: Builder, values: Sequence[Tensor], at: int) -> Tensor:
    """Tensors joined along a dim."""
    made = values[0]
    for other in values[1:]:
        made = join(b, made, other, at)
    return made


def join(b: Builder, one: Tensor, other: Tensor, at: int) -> Tensor:
    """Two tensors, joined along a dim."""
    one = b.materialise(one, [at], even_one=True)
    other = b.materialise(other, [at], even_one=True)
    for position in range(len(one.shape)):
        # A side that is only repeated along a dim may lack it, if the other has no second dim of that name.
        mine, its = one.positions[position], other.positions[position]
        if mine is None and its is not None and b.dims.root(its) in {b.dims.root(dim) for dim in one.dims}:
            one = b.materialise(one, [position])
        elif its is None and mine is not None and b.dims.root(mine) in {b.dims.root(dim) for dim in other.dims}:
            other = b.materialise(other, [position])
    other = b.meet((*one.positions[:at], None, *one.positions[at + 1 :]), other)
    left, right = one.positions[at], other.positions[at]
    assert left is not None and right is not None
    if b.dims.root(left) == b.dims.root(right) or b.dims.root(right) in {b.dims.root(dim) for dim in one.dims}:
        away = b.dims.fresh(b.dims.size(right), like=right)
        other = b.rename(other, [(right, away)])
        right = away
    if b.dims.root(left) in {b.dims.root(dim) for dim in other.dims}:
        away = b.dims.fresh(b.dims.size(left), like=left)
        one = b.rename(one, [(left, away)])
        left = away
    whole = b.dims.fresh(one.shape[at] + other.shape[at], like=left)
    shape = (*one.shape[:at], one.shape[at] + other.shape[at], *one.shape[at + 1 :])
    # A side lacks a dim along which it is only repeated, and a concat accepts that.
    of_both = [mine if mine is not None else its for mine, its in zip(one.positions, other.positions, strict=True)]
    positions = (*of_both[:at], whole, *of_both[at + 1 :])
    b.dims.tensor((left, right, *positions))  # neither has what the other joins beside its own
    expression = Expression("concat", (one.name, other.name), (left, right), (whole,))
    return b.emit(expression, positions, shape, one.dtype)


def split(b: Builder, value: Tensor, at: int, sizes: Sequence[int]) -> list[Tensor]:
    """One tensor as several along a dim."""
    made: list[Tensor] = []
    start = 0
    for size in sizes:
        made.append(window(b, value, at, start, size))
        start += size
    return made


def padded(b: Builder, value: Tensor, at: int, low: int, high: int, filling: float, dtype: str) -> Tensor:
    """A number `low` times in front of a dim, `high` times behind it; a negative count cuts."""
    cut = window(b, value, at, max(-low, 0), value.shape[at] - max(-low, 0) - max(-high, 0))
    if filling != 0:
        return _filled_beside(b, cut, at, max(low, 0), max(high, 0), filling, dtype)
    moved = low if low == -high else 0
    if moved > 0 and value.positions[at] is not None and value.dtype != "bool":
        expression = Expression("shift", (value.name,), (value.positions[at],), number=moved)  # type: ignore[arg-type]
        return b.emit(expression, value.positions, value.shape, value.dtype)
    return _zeros_beside(b, cut, at, max(low, 0), max(high, 0))


def _zeros_beside(b: Builder, value: Tensor, at: int, low: int, high: int) -> Tensor:
    if not low and not high:
        return value
    if value.dtype == "bool":
        return b.truth(_zeros_beside(b, b.tensor(b.numbers(value)), at, low, high))
    value = b.materialise(value, [at], even_one=True)
    dim = value.positions[at]
    assert dim is not None
    size = low + value.shape[at] + high
    to = b.dims.fresh(size, like=dim)
    expression = Expression("pad", (value.name,), (dim,), (to,), number=low)
    positions, shape = _put(value.positions, at, to), _put(value.shape, at, size)
    return b.emit(expression, positions, shape, value.dtype)


def _put(items: Sequence[Any], at: int, one: Any) -> tuple[Any, ...]:
    return (*items[:at], one, *items[at + 1 :])


def _filled_beside(b: Builder, value: Tensor, at: int, low: int, high: int, filling: float, dtype: str) -> Tensor:
    for count, in_front in ((low, True), (high, False)):
        if count:
            shape = _put(value.shape, at, count)
            real = tuple(n > 1 or p == at for p, n in enumerate(shape))
            real = tuple(is_real and (p == at or value.positions[p] is not None) for p, is_real in enumerate(real))
            some = filled_real(shape, real, filling, dtype)
            other = b.tensor(some)
            value = join(b, other, value, at) if in_front else join(b, value, other, at)
    return value


def spread(b: Builder, value: Tensor, at: int, inner: int) -> Tensor:
    """The elements along a dim with so many zeros between them: each is one of a block, the others of which are zeros."""
    if value.shape[at] == 1 or not inner:
        return value
    value = b.materialise(value, [at])
    dim = value.positions[at]
    assert dim is not None
    size = value.shape[at]
    own = b.dims.fresh(size, like=dim)
    expression = Expression("split", (value.name,), (dim,), (own, b.dims.fresh(1)))
    one = expression.to[1]
    b.dims.apart(dim, own)
    positions = (*value.positions[:at], own, one, *value.positions[at + 1 :])
    shape = (*value.shape[:at], size, 1, *value.shape[at + 1 :])
    tall = _zeros_beside(b, b.emit(expression, positions, shape, value.dtype), at + 1, 0, inner)
    whole = (*value.shape[:at], size * (inner + 1), *value.shape[at + 1 :])
    return window(b, reshape(b, tall, whole), at, 0, size * (inner + 1) - inner)


def filled_real(shape: Sequence[int], real: Sequence[bool], filling: float, dtype: str) -> Known:
    """One number, with dims."""
    even = tables.filled(shape, filling, dtype)
    sizes = [n if is_real else 1 for n, is_real in zip(shape, real)]
    np = numpy()
    return Known(tuple(shape), dtype, tuple(real), lambda flat: np.broadcast_to(even.data(flat), sizes), True)


def reverse(b: Builder, value: Tensor, dims: Sequence[int]) -> Tensor:
    """Reverses a dim."""
    for at in dims:
        over = value.positions[at]
        if over is None:
            continue
        root = b.dims.root(over)
        if root not in b.backward:
            b.backward[root] = _positions(b, over, range(value.shape[at] - 1, -1, -1))
        (to,) = b.backward[root].dims
        value = b.rename(_rows(b, value, at, b.backward[root]), [(to, over)])
    return value


def _positions(b: Builder, over: Dim, chosen: range) -> Tensor:
    to = b.dims.fresh(len(chosen), like=over)
    b.dims.apart(over, to)
    return b.table("rows", (to,), numpy().asarray(chosen, dtype="int32"), "int32")


def _rows(b: Builder, value: Tensor, at: int, ids: Tensor) -> Tensor:
    """The positions of a dim that are known beforehand, in their order: rows of a table by ids."""
    over, to = value.positions[at], ids.positions[0]
    assert over is not None
    positions, shape = _put(value.positions, at, to), _put(value.shape, at, ids.shape[0])
    return b.emit(Expression("take", (value.name, ids.name), (over,)), positions, shape, value.dtype)


def cumulative(b: Builder, value: Tensor, at: int, from_behind: bool = False) -> Tensor:
    """Sums of all up to each, or of all from each on."""
    value = b.materialise(value, [at])
    dim = value.positions[at]
    if dim is None:
        return value
    turned = reverse(b, value, [at]) if from_behind else value
    made = b.emit(Expression("cumsum", (turned.name,), (dim,)), turned.positions, turned.shape, turned.dtype)
    return reverse(b, made, [at]) if from_behind else made
