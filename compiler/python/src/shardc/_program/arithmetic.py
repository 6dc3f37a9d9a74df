"""Elementwise functions, comparisons, choices and reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from . import known as tables
from .builder import Builder
from .lib import numpy
from .program import Expression, Known, Tensor, Value


def power(b: Builder, base: Value, exponent: Value, dtype: str) -> Value:
    """`a ** b` in a dtype: by squaring, a root, or `exp(b * log(a))`."""
    number = tables.number(exponent)
    if number is not None and float(number).is_integer() and abs(number) <= 64:
        return whole_power(b, base, int(number))
    if number == 0.5:
        return b.map("sqrt", base)
    if number == -0.5:
        return b.map("rsqrt", base)
    start = tables.number(base)
    if start is not None and start > 0:
        logarithm: Value = b.number(math.log(start), base)
    elif isinstance(base, Known):
        raise b.fail("`.shard` has no power of a table that is not positive")
    else:
        b.note("a power is written exp(b * log(a)), which needs a positive base")
        logarithm = b.map("log", base)
    if isinstance(exponent, Tensor) and exponent.dtype == "int32":
        exponent = b.cast(exponent, dtype)
    return b.map("exp", b.binary("*", exponent, logarithm))


def whole_power(b: Builder, base: Value, exponent: int) -> Value:
    """`a ** 3`, by squaring."""
    if exponent == 0:
        return b.number(1, base)
    if exponent < 0:
        return b.binary("/", b.number(1, base), whole_power(b, base, -exponent))
    if exponent == 1:
        return base
    half = b.map("square", whole_power(b, base, exponent // 2))
    return b.binary("*", half, base) if exponent % 2 else half


def log1p(b: Builder, value: Value) -> Value:
    """`log(1 + a)`."""
    return b.map("log", b.binary("+", value, b.number(1, value)))


def expm1(b: Builder, value: Value) -> Value:
    """`exp(a) - 1`."""
    made = b.map("exp", value)
    return b.binary("-", made, b.number(1, made))


def exp2(b: Builder, value: Value) -> Value:
    """`2 ** a`."""
    return b.map("exp", b.binary("*", value, b.number(math.log(2), value)))


def convert(b: Builder, value: Value, dtype: str) -> Value:
    """Another dtype."""
    if dtype == "bool" and isinstance(value, Tensor):
        return value if value.dtype == "bool" else b.truth(b.map("abs", value))
    return b.cast(value, dtype)


ORDERS = {"lt": ("less", False), "gt": ("less", True), "le": ("less_equal", False), "ge": ("less_equal", True)}
"""A comparison as one of the language, and whether its operands change places."""


def compare(b: Builder, name: str, one: Value, other: Value) -> Value:
    """A comparison, by the name that JAX has for it."""
    one, other = b.numbers(one), b.numbers(other)
    one, other = _counted(b, one, other), _counted(b, other, one)
    if name in ORDERS:
        word, turned = ORDERS[name]
        return b.binary(word, other, one, "bool") if turned else b.binary(word, one, other, "bool")
    same = b.binary("equal", one, other, "bool")
    return negation(b, same) if name == "ne" else same


def _counted(b: Builder, value: Value, beside: Value) -> Value:
    """Positions 0, 1, 2 and so on along a dim of the tensor beside: what the language has a word for."""
    if not isinstance(value, Known) or not isinstance(beside, Tensor) or value.dtype not in ("int32", "int64"):
        return value
    along = tables.counts_along(value)
    if along is None or len(value.shape) != len(beside.shape):
        return value
    dim = beside.positions[along]
    if dim is None or beside.dtype != "int32":
        return value
    return b.emit(Expression("iota", (beside.name,), (dim,)), beside.positions, beside.shape, "int32")


def greater(b: Builder, one: Value, other: Value) -> Value:
    """Where the first is greater."""
    return compare(b, "gt", one, other)


def negation(b: Builder, value: Value) -> Value:
    """Where a boolean is false."""
    if isinstance(value, Known):
        numbers = b.cast(value, "int32")
        assert isinstance(numbers, Known)
        return b.fold("equal", [numbers, b.number(0, numbers)], "bool")
    tensor = b.tensor(value)
    found = b.negated.get(tensor.name)
    if found is not None:
        return Tensor(found.name, tensor.positions, tensor.shape, "bool")
    numbers = b.numbers(tensor)
    made = b.tensor(b.binary("equal", numbers, b.number(0, numbers), "bool"))
    b.negated[made.name] = tensor
    return made


def logic(b: Builder, name: str, operands: Sequence[Value]) -> Value:
    """And, or, xor and not of booleans."""
    if name == "not":
        return negation(b, operands[0])
    one, other = operands
    for left, right in ((one, other), (other, one)):
        always = tables.number(left)
        if always is None or name == "xor":
            continue
        if (name == "and") == bool(always):
            return right
        return tables.filled(right.shape, bool(always), "bool")
    if name == "xor":
        return compare(b, "ne", one, other)
    yes, no = (other, one) if name == "and" else (one, other)
    return _where(b, b.tensor(one), yes, no, "bool")


def choose(b: Builder, which: Value, yes: Value, no: Value, dtype: str) -> Value:
    """One value where a truth holds, the other where it does not; of a dtype by the name that JAX has for it."""
    always = tables.number(which)
    if always is not None:
        return yes if always else no
    masked = _masked(b, which, yes, no)
    if masked is not None:
        return masked
    if all(isinstance(value, Known) for value in (which, yes, no)):
        return b.fold("where", [which, yes, no], dtype)  # type: ignore[list-item]
    tensor = b.tensor(which)
    if tensor.name in b.negated:
        positive = b.negated[tensor.name]
        tensor, yes, no = Tensor(positive.name, tensor.positions, tensor.shape, "bool"), no, yes
    low, high = tables.number(no), tables.number(yes)
    if (high, low) == (1, 0):
        return b.cast(tensor, dtype)
    return _where(b, tensor, yes, no, b.dtype(dtype))


def _where(b: Builder, which: Tensor, yes: Value, no: Value, word: str) -> Tensor:
    literals = [None if word == "bool" else _literal(value, word) for value in (yes, no)]
    if None not in literals and word != "f32":  # two literals are of f32
        literals[0] = None
    tensors = [which, *(b.tensor(value) for value, number in zip((yes, no), literals) if number is None)]
    tensors, positions, shape = b.together(tensors)
    names = iter([tensor.name for tensor in tensors])
    holds = next(names)
    operands = [next(names) if number is None else number for number in literals]
    return b.emit(Expression("where", (holds, *operands)), positions, shape, word)


def _literal(value: Value, word: str) -> float | int | None:
    """The number that a choice has as it is. `rewrite` knows what becomes of minus infinity, which has no literal."""
    number = tables.number(value)
    if number is None or math.isfinite(number):
        return number
    return number if number == -math.inf and word in ("f32", "bf16", "f16") else None


VERY_NEGATIVE = -1e4
"""A score that nothing is left of in a softmax."""


def _masked(b: Builder, which: Value, yes: Value, no: Value) -> Value | None:
    """Scores where a table is the triangle or a band of it, and a very negative number elsewhere: `causal`."""
    low = tables.number(no)
    if not isinstance(which, Known) or not isinstance(yes, Tensor) or low is None or low > VERY_NEGATIVE:
        return None
    window = tables.causal(which)
    return None if window is None else causal(b, which, yes, window)


def causal(b: Builder, which: Known, scores: Tensor, window: int) -> Tensor:
    """The scores with minus infinity where a key comes after its query, or a window of it ends before."""
    at = [position + len(scores.shape) - len(which.shape) for position, real in enumerate(which.real) if real]
    return causal_over(b, scores, at[0], at[1], window)


def causal_over(b: Builder, scores: Tensor, query: int, key: int, window: int) -> Tensor:
    """The same over two positions; a window of all keys hides none."""
    scores = b.materialise(scores, [query, key])
    queries, keys = scores.positions[query], scores.positions[key]
    assert queries is not None and keys is not None
    hides = window < scores.shape[key]
    expression = Expression("causal", (scores.name,), (queries, keys), number=window if hides else 0)
    return b.emit(expression, scores.positions, scores.shape, scores.dtype)


def add_mask(b: Builder, one: Value, other: Value) -> Value | None:
    """Scores to which a table is added that is 0 up to the diagonal and very negative behind it."""
    np = numpy()
    for scores, table in ((one, other), (other, one)):
        if not isinstance(scores, Tensor) or not isinstance(table, Known) or not table.constant:
            continue
        if sum(table.real) != 2:
            continue
        array = np.asarray(table.data(()), dtype="float64")
        if not ((array == 0) | (array <= VERY_NEGATIVE)).all():
            continue
        truth = Known(table.shape, "bool", table.real, lambda _, a=array: a == 0, True, table.origin)  # type: ignore[misc]
        window = tables.causal(truth)
        if window is not None:
            return causal(b, truth, scores, window)
    return None


def reduction(b: Builder, name: str, value: Value, axes: Sequence[int], shape: Sequence[int]) -> Value:
    """Sums and the like over dims, by the name that JAX has for them."""
    tensor = b.tensor(value)
    if name == "reduce_sum":
        return b.reduce("sum", tensor, axes, shape)
    if name in ("reduce_max", "reduce_min"):
        if name == "reduce_max":
            return b.reduce("max", tensor, axes, shape)
        return b.map("neg", b.reduce("max", b.map("neg", tensor), axes, shape))
    if name in ("reduce_or", "reduce_and"):
        # "All hold" is written as "not any does not hold".
        turned = negation(b, tensor) if name == "reduce_and" else tensor
        found = b.truth(b.reduce("max", b.tensor(b.numbers(turned)), axes, shape))
        return negation(b, found) if name == "reduce_and" else found
    raise b.fail(f"`.shard` has no counterpart of `{name}`")


def clamp(b: Builder, value: Value, low: Value | None, high: Value | None) -> Value:
    """Between two bounds."""
    value = value if low is None else b.binary("maximum", value, low)
    return value if high is None else b.binary("minimum", value, high)


def sign(b: Builder, value: Value, dtype: str) -> Value:
    """1, 0 or -1."""
    zero = b.number(0, value)
    above, below = (b.cast(compare(b, name, value, zero), dtype) for name in ("gt", "lt"))
    return b.binary("-", above, below)


def finite(b: Builder, shape: Sequence[int]) -> Value:
    """Whether numbers are finite: they are assumed to be."""
    b.note("all numbers are taken to be finite")
    return tables.filled(shape, True, "bool")
