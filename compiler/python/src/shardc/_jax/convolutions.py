"""`conv_general_dilated` along one dim: the causal one of each channel by itself is an op, any other a sum of products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._program import shapes
from .._program.builder import Builder
from .._program.products import natural, side_by_side
from .._program.program import Expression, Tensor, Value

MOST_TAPS = 16
"""A sum of products is written out, tap by tap."""


def convolution(b: Builder, equation: Any, operands: Sequence[Value]) -> list[Value]:
    """Along one dim, with strides and padding."""
    params = equation.params
    how = params["dimension_numbers"]
    if len(how.lhs_spec) != 3:
        raise b.fail("`.shard` has no counterpart of a convolution along several dims")
    if any(n != 1 for n in (*params["lhs_dilation"], *params["rhs_dilation"], params["batch_group_count"])):
        raise b.fail("`.shard` has no counterpart of a dilated convolution")
    a, w = b.tensor(operands[0]), b.tensor(operands[1])
    channels, taps = how.rhs_spec[0], how.rhs_spec[2]
    count, (padding,), (stride,) = w.shape[taps], params["padding"], params["window_strides"]
    alone = w.shape[how.rhs_spec[1]] == 1 and params["feature_group_count"] == a.shape[how.lhs_spec[1]]
    alone = alone and w.shape[channels] == a.shape[how.lhs_spec[1]]
    if alone and tuple(padding) == (count - 1, 0) and stride == 1 and count > 1:
        return [_causal(b, equation, a, w)]
    if params["feature_group_count"] != 1:
        raise b.fail("`.shard` has no counterpart of a convolution in groups that is not causal, one channel by itself")
    if count > MOST_TAPS:
        raise b.fail(f"{count} taps of a convolution are too many to write out")
    return [_written_out(b, equation, a, w)]


def _causal(b: Builder, equation: Any, a: Tensor, w: Tensor) -> Tensor:
    how, out = equation.params["dimension_numbers"], equation.outvars[0].aval
    batch, channel, place = how.lhs_spec
    a = b.materialise(a, [channel, place])
    w = b.materialise(w, [how.rhs_spec[2]])
    a, w = side_by_side(b, a, w, channel, how.rhs_spec[0])
    positions: list[Any] = [None] * 3
    for to, at in zip(how.out_spec, (batch, channel, place)):
        positions[to] = a.positions[at]
    over, taps = a.positions[place], w.positions[how.rhs_spec[2]]
    if over is None:  # one position: its own tap
        last = shapes.window(b, w, how.rhs_spec[2], w.shape[how.rhs_spec[2]] - 1, 1)
        made = b.tensor(
            b.binary("*", a, Tensor(last.name, (None, last.positions[how.rhs_spec[0]], None), a.shape, w.dtype))
        )
        return Tensor(made.name, tuple(positions), tuple(out.shape), made.dtype)
    assert taps is not None
    expression = Expression("conv", (a.name, w.name), (over, taps))
    return b.emit(expression, tuple(positions), tuple(out.shape), b.dtype(out.dtype))


def _written_out(b: Builder, equation: Any, a: Tensor, w: Tensor) -> Value:
    params = equation.params
    how, out = params["dimension_numbers"], equation.outvars[0].aval
    batch, channel, place = how.lhs_spec
    (low, high), (stride,), taps = params["padding"][0], params["window_strides"], how.rhs_spec[2]
    cut = shapes.window(b, a, place, max(-low, 0), a.shape[place] - max(-low, 0) - max(-high, 0))
    size, word = out.shape[how.out_spec[2]], b.dtype(out.dtype)
    # Each tap slices whole strides; the padding that completes the last strides is not read.
    lacking = w.shape[taps] - 1 + size * stride - cut.shape[place] - max(low, 0)
    cut = shapes.padded(b, cut, place, max(low, 0), max(high, lacking, 0), 0.0, str(out.dtype))
    total: Value | None = None
    for tap in range(w.shape[taps]):
        part = shapes.window(b, cut, place, tap, size * stride)
        part = shapes.strided(b, part, place, 0, size * stride, stride)
        weights = shapes.window(b, w, taps, tap, 1)
        part, weights = side_by_side(b, part, weights, channel, how.rhs_spec[1])
        outer = weights.positions[how.rhs_spec[0]]
        if outer is not None and b.dims.root(outer) in {b.dims.root(dim) for dim in part.dims}:
            other = b.dims.fresh(weights.shape[how.rhs_spec[0]])
            weights = b.rename(weights, [(outer, other)])
            outer = other
        positions: list[Any] = [None] * 3
        for to, dim in zip(how.out_spec, (part.positions[batch], outer, part.positions[place])):
            positions[to] = dim
        dims = tuple(dim for dim in positions if dim is not None)
        stated = "" if natural(part.dtype, weights.dtype) == word else word
        term = b.emit(
            Expression("einsum", (part.name, weights.name), dims, word=stated), tuple(positions), out.shape, word
        )
        total = term if total is None else b.binary("+", total, term)
    assert total is not None
    return total
