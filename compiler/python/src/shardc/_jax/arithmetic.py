"""Elementwise primitives, comparisons and reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import known as tables
from .builder import LEAST_STEP, Builder
from .lib import numpy
from .program import Expression, Known, Tensor, Value

MAPS = {
    "exp": "exp",
    "log": "log",
    "tanh": "tanh",
    "logistic": "sigmoid",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "abs": "abs",
    "square": "square",
    "neg": "neg",
}
BINARIES = {"add": "+", "add_any": "+", "sub": "-", "mul": "*", "div": "/", "max": "maximum", "min": "minimum"}


def elementwise(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Maps, and combinations of two."""
    name = equation.primitive.name
    if name in MAPS:
        return [b.map(MAPS[name], operands[0])]
    return [_ordered(b, BINARIES[name], operands[0], operands[1])]


def _ordered(b: Builder, word: str, one: Value, other: Value) -> Value:
    made = b.binary(word, one, other)
    # `add(1.0, x)` gives x + 1.0: the number stands behind where that is the same.
    return made


def integer_pow(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """`a ** 3`, by squaring."""
    base, power = operands[0], equation.params["y"]
    return [_power(b, base, power)]


def _power(b: Builder, base: Value, power: int) -> Value:
    if power == 0:
        return b.number(1, base)
    if power < 0:
        return b.binary("/", b.number(1, base), _power(b, base, -power))
    if power == 1:
        return base
    half = b.map("square", _power(b, base, power // 2))
    return b.binary("*", half, base) if power % 2 else half


def power(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """`a ** b`: a root, or `exp(b * log(a))`."""
    base, exponent = operands
    number = tables.number(exponent)
    if number is not None and float(number).is_integer() and abs(number) <= 64:
        return [_power(b, base, int(number))]
    if number == 0.5:
        return [b.map("sqrt", base)]
    if number == -0.5:
        return [b.map("rsqrt", base)]
    start = tables.number(base)
    if start is not None and start > 0:
        logarithm: Value = b.number(math.log(start), base)
    elif isinstance(base, Known):
        raise b.fail("`.shard` has no power of a table that is not positive")
    else:
        b.note("a power is written exp(b * log(a)), which needs a positive base")
        logarithm = b.map("log", base)
    if isinstance(exponent, Tensor) and exponent.dtype == "int32":
        exponent = b.cast(exponent, str(equation.outvars[0].aval.dtype))
    return [b.map("exp", b.binary("*", exponent, logarithm))]


def log1p(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """`log(1 + a)`."""
    return [b.map("log", b.binary("+", operands[0], b.number(1, operands[0])))]


def expm1(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """`exp(a) - 1`."""
    made = b.map("exp", operands[0])
    return [b.binary("-", made, b.number(1, made))]


def exp2(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """`2 ** a`."""
    return [b.map("exp", b.binary("*", operands[0], b.number(math.log(2), operands[0])))]


def as_is(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """What changes nothing of the values."""
    return list(operands)


def convert(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Another dtype."""
    to = str(equation.params.get("new_dtype", equation.outvars[0].aval.dtype))
    value = operands[0]
    if to == "bool" and not (isinstance(value, Tensor) and value.truth):
        return [differ(b, value, b.number(0, value))]
    return [b.cast(value, to)]


def differ(b: Builder, one: Value, other: Value) -> Value:
    """1 where two values differ, 0 where they are equal."""
    return at_most_one(b, b.map("abs", b.binary("-", one, other)))


def at_most_one(b: Builder, value: Value) -> Value:
    """Of a number that is not negative: 1 where it is not 0."""
    tensor = b.tensor(value)
    steep = tensor if tensor.dtype == "int32" else b.binary("*", tensor, b.number(LEAST_STEP, tensor))
    return _truth(b.binary("minimum", steep, b.number(1, tensor)))


def greater(b: Builder, one: Value, other: Value) -> Value:
    """1 where the first is greater, else 0."""
    return at_most_one(b, b.map("relu", b.binary("-", one, other)))


def negation(b: Builder, value: Value) -> Value:
    """1 for 0 and 0 for 1."""
    return _truth(b.binary("-", b.number(1, value), value))


def _truth(value: Value) -> Value:
    if isinstance(value, Tensor):
        return Tensor(value.name, value.positions, value.shape, value.dtype, True)
    return value


def compare(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """A comparison, as the numbers 0 and 1: the language has none."""
    one, other = (_number_of_truth(b, value) for value in operands)
    name = equation.primitive.name
    if name == "gt":
        return [greater(b, one, other)]
    if name == "lt":
        return [greater(b, other, one)]
    if name == "ge":
        return [negation(b, greater(b, other, one))]
    if name == "le":
        return [negation(b, greater(b, one, other))]
    if name == "ne":
        return [differ(b, one, other)]
    return [negation(b, differ(b, one, other))]


def _number_of_truth(b: Builder, value: Value) -> Value:
    return b.cast(value, "int32") if isinstance(value, Known) and value.dtype == "bool" else value


def logic(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """And, or and not of truths."""
    if str(equation.outvars[0].aval.dtype) != "bool":
        raise b.fail(f"`.shard` has no counterpart of `{equation.primitive.name}` of whole numbers")
    values = [_number_of_truth(b, value) for value in operands]
    name = equation.primitive.name
    if name == "not":
        return [negation(b, values[0])]
    one, other = _alike(b, values[0], values[1])
    if name == "and":
        return [_truth(b.binary("*", one, other))]
    if name == "or":
        return [_truth(b.binary("maximum", one, other))]
    return [differ(b, one, other)]


def _alike(b: Builder, one: Value, other: Value) -> tuple[Value, Value]:
    """Two truths in one dtype: each has that of what was compared."""
    dtypes = [value.dtype for value in (one, other) if isinstance(value, Tensor)]
    if len(set(dtypes)) < 2 and not any(isinstance(value, Known) for value in (one, other)):
        return one, other
    return b.cast(one, "int32"), b.cast(other, "int32")


def select(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """`where(p, a, b)`."""
    if len(operands) != 3:
        raise b.fail("`.shard` has no counterpart of a choice among more than two")
    which, no, yes = operands
    dtype = str(equation.outvars[0].aval.dtype)
    if dtype == "bool":
        no, yes = _number_of_truth(b, no), _number_of_truth(b, yes)
        no, yes = _alike(b, no, yes)
        dtype = "float32" if isinstance(yes, Tensor) and yes.dtype != "int32" else "int32"
    return [choose(b, which, yes, no, dtype)]


def choose(b: Builder, which: Value, yes: Value, no: Value, dtype: str) -> Value:
    """One value where a truth holds, the other where it does not."""
    always = tables.number(which)
    if always is not None:
        return yes if always else no
    masked = _masked(b, which, yes, no, dtype)
    if masked is not None:
        return masked
    chosen = b.cast(which, dtype)
    if isinstance(which, Known):
        others: Value = b.fold("-", [b.number(1, chosen), chosen]) if isinstance(chosen, Known) else chosen
    else:
        others = b.binary("-", b.number(1, chosen), chosen)
    low, high = tables.number(no), tables.number(yes)
    if low == -math.inf:
        return b.binary("+", yes, b.map("log", chosen))
    if high == -math.inf:
        return b.binary("+", no, b.map("log", others))
    if low == 0:
        return b.binary("*", yes, chosen)
    if high == 0:
        return b.binary("*", no, others)
    return b.binary("+", b.binary("*", yes, chosen), b.binary("*", no, others))


VERY_NEGATIVE = -1e4
"""A score that nothing is left of in a softmax."""


def _masked(b: Builder, which: Value, yes: Value, no: Value, dtype: str) -> Value | None:
    """Scores where a table is true, a very negative number elsewhere: `causal`, or a table that is added."""
    low = tables.number(no)
    if not isinstance(which, Known) or not isinstance(yes, Tensor) or low is None or low > VERY_NEGATIVE:
        return None
    window = tables.causal(which)
    if window is not None:
        return causal(b, which, yes, window)
    table = b.fold("convert_element_type", [which], dtype)
    added = b.fold("*", [b.fold("-", [table, b.number(1, table)]), b.number(-max(low, -1e30), table)])
    return b.binary("+", yes, added)


def causal(b: Builder, which: Known, scores: Tensor, window: int) -> Tensor | None:
    """The scores with minus infinity where a key comes after its query, or a window of it ends before."""
    at = [position for position, real in enumerate(which.real) if real]
    scores = b.materialise(scores, at)
    queries, keys = scores.positions[at[0]], scores.positions[at[1]]
    assert queries is not None and keys is not None
    hides = window < which.shape[at[1]]
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


def reduction(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Sums and the like over dims."""
    name, axes = equation.primitive.name, equation.params["axes"]
    value = operands[0] if isinstance(operands[0], Known) else b.tensor(operands[0])
    shape = equation.outvars[0].aval.shape
    tensor = b.tensor(value)
    if name == "reduce_sum":
        return [b.reduce("sum", tensor, axes, shape)]
    if name in ("reduce_max", "reduce_or"):
        made = b.reduce("max", tensor, axes, shape)
        return [_truth(made) if name == "reduce_or" else made]
    if name in ("reduce_min", "reduce_and"):
        made = b.map("neg", b.reduce("max", b.map("neg", tensor), axes, shape))
        return [_truth(made) if name == "reduce_and" else made]
    raise b.fail(f"`.shard` has no counterpart of `{name}`")


def clamp(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Between two bounds."""
    low, value, high = operands
    return [b.binary("minimum", b.binary("maximum", value, low), high)]


def sign(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """1, 0 or -1."""
    value = operands[0]
    zero = b.number(0, value)
    return [b.binary("-", greater(b, value, zero), greater(b, zero, value))]


def finite(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Whether numbers are finite: taken to be so."""
    b.note("all numbers are taken to be finite")
    return [tables.filled(equation.outvars[0].aval.shape, True, "bool")]
