"""Linear recurrences along a dim: each element is what is added there, and a factor times the one before."""

from __future__ import annotations

from . import known as tables
from . import shapes
from .builder import Builder
from .lib import numpy
from .program import Expression, Known, Tensor, Value


def linear(b: Builder, added: Value, factor: Value, at: int) -> Value:
    """`h[t] = added[t] + factor[t] * h[t - 1]` along one dim, from zero on."""
    number = tables.number(factor)
    if number == 0 or tables.number(added) == 0:
        return added
    value = b.materialise(b.tensor(added), [at])
    if value.positions[at] is None:  # one element
        return value
    if number == 1:
        return shapes.cumulative(b, value, at)
    times = b.tensor(factor)
    value = b.materialise(value, [p for p, dim in enumerate(times.positions) if dim is not None])
    times = b.meet(value.positions, times)
    dim = value.positions[at]
    assert dim is not None
    expression = Expression("scan", (value.name, times.name), (dim,))
    return b.emit(expression, value.positions, value.shape, value.dtype)


def products(b: Builder, value: Tensor, at: int, from_behind: bool) -> Tensor:
    """Products of all up to each, or of all from each on: the first element, and each other times what is before it."""
    value = b.materialise(value, [at])
    if value.positions[at] is None:
        return value
    if from_behind:
        return shapes.reverse(b, products(b, shapes.reverse(b, value, [at]), at, False), [at])
    shape = [n if d == at else 1 for d, n in enumerate(value.shape)]
    array = (numpy().arange(value.shape[at]) == 0).astype("float32").reshape(shape)
    first = Known(value.shape, "float32", tuple(d == at for d in range(len(shape))), lambda _: array, True)
    word = next(name for name in ("float32", "bfloat16", "float16", "int32") if b.dtype(name) == value.dtype)
    alone = b.binary("*", value, b.cast(first, word))
    return b.tensor(linear(b, alone, value, at))
