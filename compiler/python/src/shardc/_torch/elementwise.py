"""Elementwise functions, comparisons and choices."""

from __future__ import annotations

from .._program import arithmetic
from .._program import known as tables
from .._program.builder import Builder
from .._program.lib import numpy
from .._program.program import Known, Tensor, Value
from .node import Node, aligned, promoted

MAPS = frozenset(["exp", "log", "tanh", "sigmoid", "sqrt", "rsqrt", "abs", "relu", "silu", "square", "neg"])
BINARIES = {"add": "+", "sub": "-", "rsub": "-", "mul": "*", "div": "/", "maximum": "maximum", "minimum": "minimum"}
LOGIC = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor", "logical_not": "not"}
BITWISE = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "bitwise_not": "not"}

TANH_GELU = 1e-3
"""How far a result may be off, in parts of the largest element, where a gelu of the error function is one of tanh."""


def maps(b: Builder, node: Node) -> Value:
    """A function of one number."""
    value = node.value("self")
    if node.name in ("sigmoid", "exp", "log", "sqrt", "rsqrt", "tanh"):
        (value,) = promoted(b, [value], node.dtype, 0)
    return b.map(node.name, value)


def binary(b: Builder, node: Node) -> Value:
    """A combination of two."""
    if node.plain("rounding_mode") is not None:
        raise b.fail("`.shard` has no counterpart of a division that is rounded")
    one, other = promoted(b, [node.value("self"), node.value("other")], node.dtype, len(node.shape))
    if node.name == "rsub":
        one, other = other, one
    factor = node.plain("alpha")
    if factor not in (None, 1):
        other = b.binary("*", other, b.number(factor, other))
    masked = arithmetic.add_mask(b, one, other) if node.name == "add" else None
    return masked if masked is not None else b.binary(BINARIES[node.name], one, other)


def power(b: Builder, node: Node) -> Value:
    """`a ** b`."""
    base, exponent = (aligned(node.value(name), len(node.shape)) for name in ("self", "exponent"))
    if tables.number(exponent) is None:
        (exponent,) = promoted(b, [exponent], node.dtype, len(node.shape))
    (base,) = promoted(b, [base], node.dtype, len(node.shape))
    return arithmetic.power(b, base, exponent, node.dtype)


def reciprocal(b: Builder, node: Node) -> Value:
    """`1 / a`."""
    value = node.value("self")
    return b.binary("/", b.number(1, value), value)


def gelu(b: Builder, node: Node) -> Value:
    """The language has the one by tanh."""
    if node.plain("approximate") != "tanh":
        b.note("a gelu of the error function is written as that of tanh, from which it is off by 5e-4 at most")
    return b.map("gelu", node.value("self"))


def softplus(b: Builder, node: Node) -> Value:
    """`log(1 + exp(beta a)) / beta`."""
    value, factor = node.value("self"), node.plain("beta")
    if factor == 1:
        return b.map("softplus", value)
    made = b.map("softplus", b.binary("*", value, b.number(factor, value)))
    return b.binary("/", made, b.number(factor, made))


def leaky_relu(b: Builder, node: Node) -> Value:
    """`a`, or a part of it where it is negative."""
    value = node.value("self")
    low = b.binary("*", value, b.number(node.plain("negative_slope"), value))
    return arithmetic.choose(b, arithmetic.greater(b, value, b.number(0, value)), value, low, node.dtype)


def elu(b: Builder, node: Node) -> Value:
    """`a`, or `exp(a) - 1` where it is negative."""
    value = node.value("self")
    alpha, scale, inner = (node.plain(name) for name in ("alpha", "scale", "input_scale"))
    low = arithmetic.expm1(b, b.binary("*", value, b.number(inner, value)))
    low = b.binary("*", low, b.number(alpha * scale, low))
    high = b.binary("*", value, b.number(scale, value))
    return arithmetic.choose(b, arithmetic.greater(b, value, b.number(0, value)), high, low, node.dtype)


def hardtanh(b: Builder, node: Node) -> Value:
    """Between two numbers."""
    value = node.value("self")
    low, high = (b.number(node.plain(name), value) for name in ("min_val", "max_val"))
    return arithmetic.clamp(b, value, low, high)


def unary(b: Builder, node: Node) -> Value:
    """What is written out."""
    value = node.value("self")
    if node.name == "sign":
        return arithmetic.sign(b, value, node.dtype)
    written = {"log1p": arithmetic.log1p, "expm1": arithmetic.expm1, "exp2": arithmetic.exp2}
    return written[node.name](b, value)


def clamp(b: Builder, node: Node) -> Value:
    """Between two bounds."""
    low, high = (node.value(name) if node.has(name) else None for name in ("min", "max"))
    return arithmetic.clamp(b, node.value("self"), low, high)


def compare(b: Builder, node: Node) -> Value:
    """A comparison."""
    one, other = (aligned(node.value(name), len(node.shape)) for name in ("self", "other"))
    floats = [
        value.dtype for value in (one, other) if isinstance(value, Tensor) and value.dtype not in ("int32", "bool")
    ]
    if floats:
        one, other = (_as_float(b, value) for value in (one, other))
    return arithmetic.compare(b, node.name, one, other)


def _as_float(b: Builder, value: Value) -> Value:
    whole = isinstance(value, Tensor) and value.dtype in ("int32", "bool")
    return b.cast(value, "float32") if whole else value


def logic(b: Builder, node: Node) -> Value:
    """And, or, xor and not of truths."""
    if node.name in BITWISE and node.dtype != "bool":
        raise b.fail(f"`.shard` has no counterpart of `{node.name}` of whole numbers")
    names = ["self"] if node.name.endswith("not") else ["self", "other"]
    values = [aligned(arithmetic.convert(b, node.value(name), "bool"), len(node.shape)) for name in names]
    return arithmetic.logic(b, {**LOGIC, **BITWISE}[node.name], values)


def where(b: Builder, node: Node) -> Value:
    """One of two."""
    rank = len(node.shape)
    yes, no = promoted(b, [node.value("self"), node.value("other")], node.dtype, rank)
    return arithmetic.choose(b, aligned(node.value("condition"), rank), yes, no, node.dtype)


def masked_fill(b: Builder, node: Node) -> Value:
    """A number where a mask holds."""
    rank = len(node.shape)
    kept, filling = promoted(b, [node.value("self"), node.value("value")], node.dtype, rank)
    mask = aligned(node.value("mask"), rank)
    if isinstance(mask, Known):
        # A triangle is recognised by the positions at which scores are kept.
        return arithmetic.choose(b, arithmetic.negation(b, mask), kept, filling, node.dtype)
    return arithmetic.choose(b, mask, filling, kept, node.dtype)


def cast(b: Builder, node: Node) -> Value:
    """Another dtype."""
    return arithmetic.convert(b, node.value("self"), node.dtype)


def dropout(b: Builder, node: Node) -> Value:
    """Nothing, where the program was exported for inference."""
    if (node.plain("train") or node.plain("training")) and node.plain("p"):
        raise b.fail("`.shard` has no counterpart of a dropout in training: export the program after `.eval()`")
    return node.value("input")


def triangle(b: Builder, node: Node) -> Value:
    """The elements up to a diagonal, or from it on."""
    value = node.tensor("self")
    rows, columns = value.shape[-2:]
    np = numpy()
    kept = np.tri(rows, columns, node.plain("diagonal"), dtype=bool)
    if node.name == "triu":
        kept = ~np.tri(rows, columns, node.plain("diagonal") - 1, dtype=bool)
    table = aligned(tables.constant(kept), len(value.shape))
    return arithmetic.choose(b, table, value, b.number(0, value), node.dtype)
