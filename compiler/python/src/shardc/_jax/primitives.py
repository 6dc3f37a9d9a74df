"""What each primitive becomes that has a counterpart as it is; `indexing`, `convolutions` and `loops` have the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._program import arithmetic, products, recurrence, shapes
from .._program import known as tables
from .._program.builder import Builder
from .._program.program import Known, Stack, Tensor, Value

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
_OF_TRUTHS = {"max": "or", "min": "and", "mul": "and", "add": "or"}


def dtype(equation: Any) -> str:
    """The dtype of the result."""
    return str(equation.outvars[0].aval.dtype)


def shape(equation: Any) -> Sequence[int]:
    """The shape of the result."""
    found: Sequence[int] = equation.outvars[0].aval.shape
    return found


def elementwise(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Maps, and combinations of two."""
    name = equation.primitive.name
    if name in MAPS:
        return [b.map(MAPS[name], operands[0])]
    if dtype(equation) == "bool" and name in _OF_TRUTHS:
        return [arithmetic.logic(b, _OF_TRUTHS[name], operands)]
    return [b.binary(BINARIES[name], operands[0], operands[1])]


def integer_pow(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """`a ** 3`."""
    return [arithmetic.whole_power(b, operands[0], equation.params["y"])]


def power(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """`a ** b`."""
    return [arithmetic.power(b, operands[0], operands[1], dtype(equation))]


def log1p(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """`log(1 + a)`."""
    return [arithmetic.log1p(b, operands[0])]


def expm1(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """`exp(a) - 1`."""
    return [arithmetic.expm1(b, operands[0])]


def exp2(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """`2 ** a`."""
    return [arithmetic.exp2(b, operands[0])]


def as_is(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """An operation that does not change values."""
    return list(operands)


def convert(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Another dtype."""
    return [arithmetic.convert(b, operands[0], str(equation.params.get("new_dtype", dtype(equation))))]


def compare(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """A comparison."""
    return [arithmetic.compare(b, equation.primitive.name, operands[0], operands[1])]


def logic(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """And, or, xor and not of truths."""
    if dtype(equation) != "bool":
        raise b.fail(f"`.shard` has no counterpart of `{equation.primitive.name}` of whole numbers")
    return [arithmetic.logic(b, equation.primitive.name, operands)]


def select(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """`where(p, a, b)`."""
    if len(operands) != 3:
        raise b.fail("`.shard` has no counterpart of a choice among more than two")
    which, no, yes = operands
    return [arithmetic.choose(b, which, yes, no, dtype(equation))]


def reduction(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Sums and the like over dims."""
    name, axes = equation.primitive.name, equation.params["axes"]
    return [arithmetic.reduction(b, name, operands[0], axes, shape(equation))]


def clamp(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Between two bounds."""
    low, value, high = operands
    return [arithmetic.clamp(b, value, low, high)]


def sign(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """1, 0 or -1."""
    return [arithmetic.sign(b, operands[0], dtype(equation))]


def finite(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Whether numbers are finite."""
    return [arithmetic.finite(b, shape(equation))]


def dot_general(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """What `@`, `jnp.einsum` and the like become."""
    pairs = products.Pairs(*equation.params["dimension_numbers"])
    return [products.product(b, operands[0], operands[1], pairs, shape(equation), dtype(equation))]


def broadcast(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Dims that are added or repeated."""
    to = equation.params["broadcast_dimensions"]
    return [shapes.broadcast(b.tensor(operands[0]), equation.params["shape"], to)]


def transpose(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Another order of dims."""
    return [shapes.transpose(b.tensor(operands[0]), equation.params["permutation"])]


def squeeze(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Without some dims of size 1."""
    if isinstance(operands[0], Stack):
        return [operands[0].parts[0]]
    return [shapes.squeeze(b.tensor(operands[0]), equation.params["dimensions"])]


def reshape(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Dims that are cut and joined."""
    if equation.params.get("dimensions") is not None:
        raise b.fail("`.shard` has no counterpart of a reshape that permutes dims")
    return [shapes.reshape(b, b.tensor(operands[0]), shape(equation))]


def slices(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Some positions of dims."""
    starts, limits = equation.params["start_indices"], equation.params["limit_indices"]
    strides = equation.params["strides"] or [1] * len(starts)
    value = operands[0]
    if isinstance(value, Stack):
        return [_of_stack(b, value, starts, limits, strides)]
    tensor = b.tensor(value)
    for at, (start, limit, stride) in enumerate(zip(starts, limits, strides)):
        tensor = shapes.strided(b, tensor, at, start, limit, stride)
    return [tensor]


def _of_stack(b: Builder, stack: Stack, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int]) -> Value:
    parts = stack.parts[starts[0] : limits[0] : strides[0]]
    if any(start or limit != n for start, limit, n in list(zip(starts, limits, stack.shape))[1:]):
        raise b.fail("this slices the inner dims of what a loop makes in its turns")
    return Stack(parts, (len(parts), *stack.shape[1:]))


def concatenate(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Tensors joined along a dim."""
    parts = [b.tensor(operand) for operand in operands if 0 not in operand.shape]
    return [shapes.concatenate(b, parts, equation.params["dimension"])]


def split(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """One tensor as several along a dim."""
    return list(shapes.split(b, b.tensor(operands[0]), equation.params["axis"], equation.params["sizes"]))


def pad(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """A number in front of and behind a tensor; a negative count cuts."""
    filling = tables.number(operands[1])
    if filling is None:
        raise b.fail("`.shard` has no counterpart of a padding with a computed number")
    if 0 in operands[0].shape:
        return [tables.filled(shape(equation), filling, dtype(equation))]
    value: Tensor = b.tensor(operands[0])
    for at, (low, high, inner) in enumerate(equation.params["padding_config"]):
        if inner and filling != 0:
            raise b.fail("`.shard` has no counterpart of a padding between elements with another number than 0")
        wide = shapes.spread(b, value, at, inner)
        value = shapes.padded(b, wide, at, low, high, filling, dtype(equation))
    return [value]


def reverse(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """The last first."""
    return [shapes.reverse(b, b.tensor(operands[0]), equation.params["dimensions"])]


def cumulative(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Sums of all up to each, or of all from each on."""
    return [shapes.cumulative(b, b.tensor(operands[0]), equation.params["axis"], equation.params["reverse"])]


def cumulative_product(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Products of all up to each, or of all from each on."""
    return [recurrence.products(b, b.tensor(operands[0]), equation.params["axis"], equation.params["reverse"])]


def added_mask(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value] | None:
    """A triangle of minus infinity that is added to scores."""
    if equation.primitive.name != "add" or not any(isinstance(operand, Known) for operand in operands):
        return None
    made = arithmetic.add_mask(b, operands[0], operands[1])
    return None if made is None else [made]
