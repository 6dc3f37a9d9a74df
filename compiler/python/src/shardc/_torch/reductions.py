"""Reductions over dims, softmax and norms."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .._program import arithmetic, indexing, recurrence, shapes
from .._program.builder import Builder
from .._program.program import Expression, Tensor, Value
from .node import Node, aligned, promoted

WORDS = {"sum": "reduce_sum", "amax": "reduce_max", "amin": "reduce_min", "any": "reduce_or", "all": "reduce_and"}


def reduced(b: Builder, node: Node) -> Value:
    """Sums and the like over dims."""
    value = node.tensor("self")
    if node.name in ("any", "all"):
        value = b.tensor(arithmetic.convert(b, value, "bool"))
    elif node.name in ("sum", "mean"):
        value = b.tensor(b.cast(value, node.dtype))
    over = node.many("dim", len(value.shape))
    shape = [n for at, n in enumerate(value.shape) if at not in over]
    if node.name == "mean":
        made: Value = _mean(b, value, over, shape)
    else:
        word = {"max": "reduce_max", "min": "reduce_min"}.get(node.name) or WORDS[node.name]
        made = arithmetic.reduction(b, word, value, over, shape)
    return _kept(b.tensor(made), over, node.shape)


def _kept(value: Tensor, over: Sequence[int], shape: Sequence[int]) -> Tensor:
    """With the dims of size 1 that `keepdim` asks for."""
    if len(value.shape) == len(shape):
        return value
    rest = iter(value.positions)
    positions = [None if at in over else next(rest) for at in range(len(shape))]
    return shapes.renewed(value, positions, shape)


def _mean(b: Builder, value: Tensor, over: Sequence[int], shape: Sequence[int]) -> Value:
    made = b.reduce("sum", value, over, shape)
    return b.binary("/", made, b.number(math.prod(value.shape[at] for at in over), made))


def variance(b: Builder, node: Node) -> Value:
    """The mean of squared differences from the mean."""
    value = node.tensor("self")
    over = node.many("dim", len(value.shape))
    correction = node.plain("correction")
    if correction is None:
        correction = 0 if node.plain("unbiased") is False else 1
    _, squares, _ = _centred(b, value, over)
    count = math.prod(value.shape[at] for at in over)
    made = b.binary("*", squares, b.number(count / (count - correction), squares)) if correction else squares
    return _kept(shapes.squeeze(b.tensor(made), over), over, node.shape)


def _centred(b: Builder, value: Tensor, over: Sequence[int]) -> tuple[Value, Value, Value]:
    """What is left without the mean; the mean of its squares; the mean."""
    shape = [n for at, n in enumerate(value.shape) if at not in over]
    small = [1 if at in over else n for at, n in enumerate(value.shape)]
    mean = _kept(b.tensor(_mean(b, value, over, shape)), over, small)
    rest = b.binary("-", value, mean)
    squares = b.tensor(_mean(b, b.map("square", rest), over, shape))
    return rest, _kept(squares, over, small), mean


def largest(b: Builder, node: Node) -> Value | list[Value]:
    """The largest element; with a dim its place as well."""
    if not node.has("dim"):
        return reduced(b, node)
    value = node.tensor("self")
    at = node.at("dim", len(value.shape))
    place = indexing.argmax(b, b.map("neg", value) if node.name == "min" else value, at)
    return [reduced(b, node), _kept(b.tensor(place), [at], node.shape)]


def argmax(b: Builder, node: Node) -> Value:
    """The first place of the largest element."""
    value = node.tensor("self")
    if not node.has("dim"):
        value = shapes.reshape(b, value, [math.prod(value.shape)])
    if node.name == "argmin":
        value = b.map("neg", value)
    at = node.at("dim", len(value.shape)) if node.has("dim") else 0
    return _kept(b.tensor(indexing.argmax(b, value, at)), [at], node.shape)


def top_k(b: Builder, node: Node) -> list[Value]:
    """The largest elements and where they are."""
    value = node.tensor("self")
    at = node.at("dim", len(value.shape))
    if node.plain("largest") is not False:
        return list(indexing.top_k(b, value, at, node.plain("k")))
    least, places = indexing.top_k(b, b.map("neg", value), at, node.plain("k"))
    return [b.map("neg", least), places]


def sort(b: Builder, node: Node) -> Value | list[Value]:
    """In rising or falling order, and where each was: all of the largest."""
    value = node.tensor("self")
    at = node.at("dim", len(value.shape))
    if node.plain("descending"):
        made = list(indexing.top_k(b, value, at, value.shape[at]))
    else:
        least, places = indexing.top_k(b, b.map("neg", value), at, value.shape[at])
        made = [b.map("neg", least), places]
    return made[1] if node.name == "argsort" else made


def cumulative_product(b: Builder, node: Node) -> Value:
    """Products of all up to each."""
    value = b.tensor(b.cast(node.tensor("self"), node.dtype))
    return recurrence.products(b, value, node.at("dim", len(value.shape)), False)


def cumulative(b: Builder, node: Node) -> Value:
    """Sums of all up to each."""
    value = b.tensor(b.cast(node.tensor("self"), node.dtype))
    return shapes.cumulative(b, value, node.at("dim", len(value.shape)))


def softmax(b: Builder, node: Node) -> Value:
    """Along one dim."""
    value = b.tensor(b.cast(node.tensor("self"), node.dtype))
    return softmax_of(b, value, node.at("dim", len(value.shape)))


def softmax_of(b: Builder, value: Tensor, at: int) -> Tensor:
    """A softmax along one dim of a tensor."""
    value = b.materialise(value, [at], even_one=True)
    dim = value.positions[at]
    assert dim is not None
    return b.emit(Expression("softmax", (value.name,), (dim,)), value.positions, value.shape, value.dtype)


def log_softmax(b: Builder, node: Node) -> Value:
    """`a - max - log(sum(exp(a - max)))`."""
    value = b.tensor(b.cast(node.tensor("self"), node.dtype))
    at = node.at("dim", len(value.shape))
    shape = [n for place, n in enumerate(value.shape) if place != at]
    small = [1 if place == at else n for place, n in enumerate(value.shape)]
    most = _kept(b.reduce("max", value, [at], shape), [at], small)
    less = b.binary("-", value, most)
    total = _kept(b.reduce("sum", b.map("exp", less), [at], shape), [at], small)
    return b.binary("-", less, b.map("log", total))


def norm(b: Builder, node: Node) -> Value | list[Value]:
    """`layer_norm` and `rms_norm` over the last dims, with scale and bias."""
    value = node.tensor("input")
    rank = len(value.shape)
    over = list(range(rank - len(node.plain("normalized_shape")), rank))
    # For coarse dtypes a norm is computed in a finer dtype.
    coarse = node.dtype in ("bfloat16", "float16")
    value = b.tensor(b.cast(value, "float32")) if coarse else value
    epsilon = node.plain("eps")
    if epsilon is None:
        epsilon = 2.0**-23 if node.dtype in ("float32", "bfloat16", "float16") else 2.0**-52
    if node.name == "rms_norm":
        shape = [n for at, n in enumerate(value.shape) if at not in over]
        small = [1 if at in over else n for at, n in enumerate(value.shape)]
        rest: Value = value
        squares: Value = _kept(b.tensor(_mean(b, b.map("square", value), over, shape)), over, small)
        mean: Value = squares
    else:
        rest, squares, mean = _centred(b, value, over)
    scale = b.map("rsqrt", b.binary("+", squares, b.number(epsilon, squares)))
    made = b.binary("*", rest, scale)
    made = b.cast(made, node.dtype) if coarse else made
    for name, sign in (("weight", "*"), ("bias", "+")):
        if node.has(name):
            one, other = promoted(b, [made, aligned(node.value(name), rank)], node.dtype, rank)
            made = b.binary(sign, one, other)
    return [made, mean, scale] if node.name == "native_layer_norm" else made
